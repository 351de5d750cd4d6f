package resp

import (
	"strconv"
	"strings"
)

const (
	// FreeReply is how many bytes a Writer collects without calling Reserve.
	FreeReply = 32 << 10
	// keptReply bounds the memory that is kept from one use to the next.
	keptReply = 16 << 10
)

// Writer collects replies. Proto is 2 or 3 and may change between replies.
type Writer struct {
	Buf   []byte
	Proto int
	// Reserve is called before memory beyond FreeReply is allocated for a string, and returns
	// whether it may be; a negative number gives memory back. It may be nil.
	Reserve func(bytes int) bool
	// Refused is set when Reserve has returned false for a string, which is then missing from Buf,
	// or for a Claim. The reply is then incomplete and must not be sent. The owner resets Refused.
	Refused bool
	// Errors counts the errors that were written, LastError is the last one.
	Errors    uint64
	LastError string
	reserved  int
}

// Reset empties the Writer, and releases what it has reserved.
func (w *Writer) Reset() {
	if w.reserved > 0 {
		w.Reserve(-w.reserved)
		w.reserved = 0
	}
	if cap(w.Buf) > keptReply {
		w.Buf = nil
	} else {
		w.Buf = w.Buf[:0]
	}
}

// Grow allocates space for n more bytes, and reports whether there was enough memory.
func (w *Writer) Grow(n int) bool {
	refused := w.Refused
	ok := w.room(n)
	w.Refused = refused
	return ok
}

// Claim reserves memory that replies other than strings have taken, and reports whether there was
// enough. If not, it sets Refused.
func (w *Writer) Claim() bool {
	size := cap(w.Buf)
	if size <= max(w.reserved, FreeReply) || w.Reserve == nil {
		return true
	}
	if !w.Reserve(size - w.reserved) {
		w.Refused = true
		return false
	}
	w.reserved = size
	return true
}

// Cut drops what follows the first n bytes, and the memory that was not reserved for it.
func (w *Writer) Cut(n int) {
	w.Buf = w.Buf[:n]
	if cap(w.Buf) > max(w.reserved, FreeReply) {
		w.Buf = append(make([]byte, 0, n+128), w.Buf...)
	}
}

// room allocates space for a string of n bytes, and reports whether it may be written.
func (w *Writer) room(n int) bool {
	const around = 32 // the string's length and line ends
	need := len(w.Buf) + n + around
	if need <= cap(w.Buf) || need <= FreeReply || w.Reserve == nil {
		return true
	}
	size := max(need, 2*len(w.Buf))
	if !w.Reserve(size - w.reserved) {
		w.Refused = true
		return false
	}
	w.reserved = size
	buf := make([]byte, len(w.Buf), size)
	copy(buf, w.Buf)
	w.Buf = buf
	return true
}

func (w *Writer) header(kind byte, n int64) {
	w.Buf = append(w.Buf, kind)
	w.Buf = strconv.AppendInt(w.Buf, n, 10)
	w.Buf = append(w.Buf, '\r', '\n')
}

// Simple writes a simple string, which has no line ends.
func (w *Writer) Simple(s string) {
	w.Buf = append(w.Buf, '+')
	w.Buf = append(w.Buf, s...)
	w.Buf = append(w.Buf, '\r', '\n')
}

// OK writes the simple string OK.
func (w *Writer) OK() { w.Buf = append(w.Buf, "+OK\r\n"...) }

// Error writes an error. Line ends become spaces.
func (w *Writer) Error(s string) {
	if strings.ContainsAny(s, "\r\n") {
		s = strings.NewReplacer("\r", " ", "\n", " ").Replace(s)
	}
	w.Errors++
	w.LastError = s
	w.Buf = append(w.Buf, '-')
	w.Buf = append(w.Buf, s...)
	w.Buf = append(w.Buf, '\r', '\n')
}

// Int writes an integer.
func (w *Writer) Int(n int64) { w.header(':', n) }

// Bool writes a boolean, in RESP2 the integer 1 or 0.
func (w *Writer) Bool(v bool) {
	switch {
	case w.Proto == 2 && v:
		w.Buf = append(w.Buf, ":1\r\n"...)
	case w.Proto == 2:
		w.Buf = append(w.Buf, ":0\r\n"...)
	case v:
		w.Buf = append(w.Buf, "#t\r\n"...)
	default:
		w.Buf = append(w.Buf, "#f\r\n"...)
	}
}

// Bulk writes a bulk string.
func (w *Writer) Bulk(b []byte) {
	if !w.room(len(b)) {
		return
	}
	w.header('$', int64(len(b)))
	w.Buf = append(w.Buf, b...)
	w.Buf = append(w.Buf, '\r', '\n')
}

// BulkString writes a bulk string.
func (w *Writer) BulkString(s string) {
	if !w.room(len(s)) {
		return
	}
	w.header('$', int64(len(s)))
	w.Buf = append(w.Buf, s...)
	w.Buf = append(w.Buf, '\r', '\n')
}

// Nil writes a null.
func (w *Writer) Nil() {
	if w.Proto == 2 {
		w.Buf = append(w.Buf, "$-1\r\n"...)
	} else {
		w.Buf = append(w.Buf, "_\r\n"...)
	}
}

// NilArray writes a null in place of an array.
func (w *Writer) NilArray() {
	if w.Proto == 2 {
		w.Buf = append(w.Buf, "*-1\r\n"...)
	} else {
		w.Buf = append(w.Buf, "_\r\n"...)
	}
}

// Array starts an array of n replies.
func (w *Writer) Array(n int) { w.header('*', int64(n)) }

// Map starts a map of n pairs of replies, in RESP2 an array.
func (w *Writer) Map(n int) {
	if w.Proto == 2 {
		w.header('*', int64(2*n))
	} else {
		w.header('%', int64(n))
	}
}
