// Package resp implements the server side of the Redis serialization protocol, versions 2 and 3,
// with a bound on everything that a client can request.
//
// The parser has a few hundred lines and is fuzzed. No library both bounds what a client may
// request and can be fed by an event loop:
//
//   - github.com/tidwall/redcon v1.6.2, the best known: no bound on arguments or
//     buffers, and a bulk length near 2⁶³ makes its parser index out of range in a
//     goroutine that it starts, which ends the process.
//   - github.com/secmask/go-redisproto: no releases, its reads block until a command
//     is complete, one bound on arguments for the whole process, and an empty line
//     makes it slice from 0 to -1.
//   - github.com/mediocregopher/radix/v4 and github.com/redis/go-redis/v9: they parse
//     replies, not requests; go-redis' parser is internal.
package resp

import (
	"bytes"
	"errors"
	"io"
	"math"
	"slices"
)

// Limits bound what a client may send.
type Limits struct {
	MaxArgs      int // arguments of a command
	MaxBulkBytes int // of one argument
	MaxBytes     int // of one command, with its lengths
	// Reserve is called before memory beyond the first buffer is allocated, and returns whether it
	// may be; a negative number gives memory back. It may be nil.
	Reserve func(bytes int) bool
}

// What a client may send before it has authenticated.
const (
	unauthArgs      = 10
	unauthBulkBytes = 16 << 10 // also of a command that was typed as a line
	// largestBulk is the longest argument that Redis accepts by default.
	largestBulk = 512 << 20
)

const (
	firstBuffer = 1 << 10
	maxLine     = 64 << 10
	argOverhead = 40 // memory for an argument in addition to its bytes
	keptSpans   = 64
	keptArgs    = 256  // clearing more takes longer than allocating
	inlineArgs  = 1024 // of a command that was typed as a line
)

// ProtocolError is an error in a client's input. After it the connection must be closed.
type ProtocolError string

func (e ProtocolError) Error() string { return "Protocol error: " + string(e) }

// ErrMemory is returned when Limits.Reserve returns false.
var ErrMemory = errors.New("too much memory for requests in use")

// span is the position of an argument, relative to the start of its command.
type span struct{ from, to int }

// Reader reads commands. It is used by one goroutine.
type Reader struct {
	src      io.Reader
	limits   Limits
	unauth   bool
	buf      []byte
	start    int // of the command that is being read
	pos      int // how far it has been parsed
	end      int // of the bytes that were read
	scanned  int // no line end between pos and here
	want     int // arguments still missing; 0: the command has not begun
	bulk     int // length of the argument that comes next, -1 if not yet known
	spans    []span
	args     [][]byte
	typed    bool // args have their own memory
	whole    bool // Scan found a command that Next has not returned
	reserved int
	ownBuf   []byte // the Reader's buffer while buf is a borrowed one
	borrowed bool
}

// NewReader returns a Reader. unauth means that the client has not authenticated: until Trust(true)
// is called, it may send only short commands.
func NewReader(src io.Reader, limits Limits, unauth bool) *Reader {
	return &Reader{src: src, limits: limits, unauth: unauth, bulk: -1}
}

// Trust sets whether the client has authenticated.
func (r *Reader) Trust(trusted bool) { r.unauth = !trusted }

// Close releases reserved memory. Nothing may be borrowed.
func (r *Reader) Close() { r.release() }

// Borrow makes the next Fill read into buf, unless an incomplete command would take more than half
// of it. Between Borrow and the Return that must follow, the buffer belongs to the Reader.
func (r *Reader) Borrow(buf []byte) {
	if r.want == 0 {
		r.start = r.pos
	}
	left := r.end - r.start
	if r.borrowed || left > len(buf)/2 {
		return
	}
	if left == 0 && r.reserved > 0 {
		r.release()
	}
	copy(buf, r.buf[r.start:r.end])
	r.ownBuf, r.borrowed = r.buf, true
	r.buf = buf
	r.shift()
}

// shift adjusts the offsets when the bytes from start on have been moved to the beginning of buf.
func (r *Reader) shift() {
	r.pos, r.end, r.scanned = r.pos-r.start, r.end-r.start, max(0, r.scanned-r.start)
	r.start = 0
}

// Return ends the use of a borrowed buffer, if there is one, and releases memory that is no longer
// needed. Input that has not been parsed is kept; the arguments of the last command are not. The
// error is ErrMemory if there is no memory for that input.
func (r *Reader) Return() error {
	if r.want == 0 {
		r.start = r.pos
	}
	r.dropArgs()
	if !r.borrowed {
		if r.start == r.end && r.reserved > 0 {
			r.release()
			r.start, r.pos, r.end, r.scanned = 0, 0, 0, 0
		}
		return nil
	}
	from := r.buf[r.start:r.end]
	r.buf, r.ownBuf, r.borrowed = r.ownBuf, nil, false
	if len(from) > len(r.buf) {
		size := firstBuffer
		for size < len(from) {
			size *= 2
		}
		if more := size - max(len(r.buf), firstBuffer); more > 0 && !r.reserve(more) {
			r.start, r.pos, r.end, r.scanned, r.want = 0, 0, 0, 0, 0
			return ErrMemory
		}
		r.buf = make([]byte, size)
	}
	copy(r.buf, from)
	r.shift()
	if r.end == 0 && r.reserved > 0 {
		r.release()
	}
	return nil
}

// Size returns the bytes of the command that Next returned last.
func (r *Reader) Size() int { return r.pos - r.start }

// Unread makes Next return the last command again.
func (r *Reader) Unread() {
	r.pos, r.scanned = r.start, r.start
	r.want, r.bulk, r.whole = 0, -1, false
}

// Next returns the arguments of the next command that is complete in the buffer, nil if there is
// none. They are valid until the next call of Next, Fill or Return.
func (r *Reader) Next() ([][]byte, error) {
	if n, err := r.Scan(); n == 0 || err != nil {
		return nil, err
	}
	r.whole = false
	if r.typed {
		return r.args, nil
	}
	r.args = slices.Grow(r.args[:0], len(r.spans))
	for _, s := range r.spans {
		r.args = append(r.args, r.buf[r.start+s.from:r.start+s.to:r.start+s.to])
	}
	return r.args, nil
}

// Scan returns how many arguments the next command has, which Next then returns, or 0 if it is not
// complete in the buffer. For a command of many arguments it takes less time than Next. Next or
// Unread must be called before Fill and Return.
func (r *Reader) Scan() (args int, err error) {
	for !r.whole {
		if args, err = r.parse(); args <= 0 {
			if args == 0 || err != nil {
				return 0, err
			}
			continue // an empty command
		}
		r.whole = true
		return args, nil
	}
	if r.typed {
		return len(r.args), nil
	}
	return len(r.spans), nil
}

// Fill reads more input. It returns the error of the source unchanged, ErrMemory, or a
// ProtocolError if the command is too large.
func (r *Reader) Fill() error {
	if r.want == 0 {
		r.start = r.pos
	}
	r.dropArgs()
	switch {
	case r.start == r.end:
		r.start, r.pos, r.end, r.scanned = 0, 0, 0, 0
		if r.reserved > 0 {
			r.release()
		}
	case r.start > 0 && r.end == len(r.buf):
		copy(r.buf, r.buf[r.start:r.end])
		r.shift()
	}
	if r.end == len(r.buf) {
		if r.end-r.start >= r.limits.MaxBytes {
			return ProtocolError("request too large")
		}
		size := max(firstBuffer, 2*len(r.buf))
		if need := r.pos + r.bulk + len("\r\n"); r.want > 0 && r.bulk >= len(r.buf)/2 && need > len(r.buf) {
			size = min(size, max(need, firstBuffer)) // no more than a large argument needs
		}
		if len(r.buf) > 0 && !r.reserve(size-len(r.buf)) {
			return ErrMemory
		}
		grown := make([]byte, size)
		copy(grown, r.buf[:r.end])
		r.buf = grown
	}
	n, err := r.src.Read(r.buf[r.end:])
	r.end += n
	if n > 0 {
		return nil
	}
	return err
}

// dropArgs drops the arguments of the last command: while a client is idle, they would keep memory
// that nothing accounts for, their own or a buffer that was dropped.
func (r *Reader) dropArgs() {
	if r.typed || cap(r.args) > keptArgs {
		r.typed, r.args = false, nil
	}
	clear(r.args[:cap(r.args)])
}

func (r *Reader) reserve(n int) bool {
	if r.limits.Reserve != nil && !r.limits.Reserve(n) {
		return false
	}
	r.reserved += n
	return true
}

// release releases reserved memory, and drops a buffer that is larger than the first one.
func (r *Reader) release() {
	if r.reserved > 0 && r.limits.Reserve != nil {
		r.limits.Reserve(-r.reserved)
	}
	r.reserved = 0
	if len(r.buf) > firstBuffer && !r.borrowed {
		r.buf = nil
	}
	if cap(r.spans) > keptSpans {
		r.spans, r.args = nil, nil
	}
}

// parse continues with the current command. It returns the number of its arguments, 0 if more bytes
// are needed, and -1 for an empty command.
func (r *Reader) parse() (args int, err error) {
	if r.want == 0 {
		if r.pos == r.end {
			return 0, nil
		}
		r.start = r.pos
		if r.buf[r.pos] != '*' {
			return r.inline()
		}
		line, err := r.line("too big mbulk count string")
		if line == nil {
			return 0, err
		}
		n, ok := ParseInt(line[1:])
		switch {
		case !ok || n > math.MaxInt32:
			return 0, ProtocolError("invalid multibulk length")
		case r.unauth && n > unauthArgs:
			return 0, ProtocolError("unauthenticated multibulk length")
		case n > int64(r.limits.MaxArgs):
			return 0, ProtocolError("invalid multibulk length")
		case n <= 0:
			return -1, nil
		}
		r.want, r.bulk, r.spans = int(n), -1, r.spans[:0]
	}
	for r.want > 0 {
		if r.bulk < 0 {
			first := r.pos
			line, err := r.line("too big bulk count string")
			if line == nil {
				return 0, err
			}
			if c := r.buf[first]; c != '$' {
				return 0, ProtocolError("expected '$', got '" + string(printable(c)) + "'")
			}
			n, ok := ParseInt(line[1:])
			switch {
			case r.unauth && ok && n > unauthBulkBytes && n <= largestBulk:
				return 0, ProtocolError("unauthenticated bulk length")
			case !ok || n < 0 || n > int64(r.limits.MaxBulkBytes):
				return 0, ProtocolError("invalid bulk length")
			}
			r.bulk = int(n)
		}
		if r.end-r.pos < r.bulk+2 {
			return 0, nil
		}
		if n := len(r.spans); n == cap(r.spans) && n >= keptSpans {
			if !r.reserve(argOverhead * n) {
				return 0, ErrMemory
			}
			r.spans = append(make([]span, 0, 2*n), r.spans...) // exactly as reserved
		}
		r.spans = append(r.spans, span{r.pos - r.start, r.pos - r.start + r.bulk})
		r.pos += r.bulk + 2
		r.scanned = r.pos
		r.bulk = -1
		r.want--
	}
	if r.typed {
		r.typed, r.args = false, nil
	}
	return len(r.spans), nil
}

func printable(c byte) byte {
	switch {
	case c == '\r' || c == '\n':
		return ' '
	case c < ' ' || c > '~':
		return '?'
	}
	return c
}

// line returns the bytes up to the next line end and moves past it; nil if there is none yet.
func (r *Reader) line(tooLong string) ([]byte, error) {
	r.scanned = max(r.scanned, r.pos)
	i := bytes.IndexByte(r.buf[r.scanned:r.end], '\r')
	if i < 0 || r.scanned+i+1 == r.end {
		if r.end-r.pos > maxLine {
			return nil, ProtocolError(tooLong)
		}
		if i < 0 {
			r.scanned = r.end
		}
		return nil, nil
	}
	line := r.buf[r.pos : r.scanned+i]
	r.pos = r.scanned + i + 2
	r.scanned = r.pos
	return line, nil
}

// inline reads a command that was typed as a line.
func (r *Reader) inline() (int, error) {
	longest := maxLine
	if r.unauth {
		longest = unauthBulkBytes
	}
	i := bytes.IndexByte(r.buf[r.pos:r.end], '\n')
	if i < 0 || i > longest {
		if r.end-r.pos > longest {
			return 0, ProtocolError("too big inline request")
		}
		return 0, nil
	}
	line := bytes.TrimSuffix(r.buf[r.pos:r.pos+i], []byte{'\r'})
	r.pos += i + 1
	r.scanned = r.pos
	args, ok := splitLine(r.args[:0], line)
	if !ok {
		return 0, ProtocolError("unbalanced quotes in request")
	}
	if r.unauth && len(args) > unauthArgs {
		return 0, ProtocolError("unauthenticated multibulk length")
	}
	if len(args) > inlineArgs {
		return 0, ProtocolError("too big inline request")
	}
	r.args, r.typed = args, true
	if len(args) == 0 {
		return -1, nil
	}
	return len(args), nil
}

// splitLine splits a line at spaces. It returns false if quotes are unbalanced. Within "double
// quotes" \n \r \t \b \a \xHH and a backslash before another byte stand for one byte; within
// 'single quotes' only \' does.
func splitLine(args [][]byte, line []byte) ([][]byte, bool) {
	for {
		line = bytes.TrimLeft(line, " \t\v\f\r\n\x00")
		if len(line) == 0 {
			return args, true
		}
		arg := []byte{}
		var quote byte
	word:
		for len(line) > 0 {
			c := line[0]
			switch {
			case quote == '"' && c == '\\' && len(line) >= 4 && line[1] == 'x' && isHex(line[2]) && isHex(line[3]):
				arg = append(arg, unhex(line[2])<<4|unhex(line[3]))
				line = line[4:]
				continue
			case quote == '"' && c == '\\' && len(line) >= 2:
				arg = append(arg, unescape(line[1]))
				line = line[2:]
				continue
			case quote == '\'' && c == '\\' && len(line) >= 2 && line[1] == '\'':
				arg = append(arg, '\'')
				line = line[2:]
				continue
			case quote != 0 && c == quote:
				if len(line) > 1 && line[1] != ' ' && line[1] != '\t' && line[1] != '\r' {
					return nil, false
				}
				quote = 0
				line = line[1:]
				break word
			case quote != 0:
				arg = append(arg, c)
			case c == ' ' || c == '\t' || c == '\r' || c == 0:
				break word
			case c == '"' || c == '\'':
				quote = c
			default:
				arg = append(arg, c)
			}
			line = line[1:]
		}
		if quote != 0 {
			return nil, false
		}
		args = append(args, arg)
	}
}

func unescape(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'b':
		return '\b'
	case 'a':
		return '\a'
	}
	return c
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func unhex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c <= 'F':
		return c - 'A' + 10
	}
	return c - 'a' + 10
}

// ParseInt parses a decimal number the way Redis does: without a plus sign, leading zeros, or
// anything around it.
func ParseInt(b []byte) (int64, bool) {
	neg := len(b) > 0 && b[0] == '-'
	if neg {
		b = b[1:]
	}
	if len(b) == 0 || len(b) > 19 || b[0] == '0' && (len(b) > 1 || neg) {
		return 0, false
	}
	var n uint64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	switch {
	case neg && n <= math.MaxInt64:
		return -int64(n), true
	case neg && n == 1<<63:
		return math.MinInt64, true
	}
	return int64(n), !neg && n <= math.MaxInt64
}
