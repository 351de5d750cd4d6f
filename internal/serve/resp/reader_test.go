package resp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

var limits = Limits{MaxArgs: 100, MaxBulkBytes: 1 << 12, MaxBytes: 1 << 16}

// readAll returns the commands that a Reader reads from a stream, and the error that ends it.
func readAll(src io.Reader, l Limits, unauth bool) (out string) {
	r := NewReader(src, l, unauth)
	defer r.Close()
	for {
		args, err := r.Next()
		if err == nil && args == nil {
			err = r.Fill()
		}
		if err != nil {
			return out + err.Error()
		}
		if args != nil {
			out += fmt.Sprintf("%q ", args)
		}
	}
}

// readBorrowing is readAll, except that it reads as an event loop does: into a borrowed buffer,
// which is cleared after each turn. In every second turn it reads each command twice.
func readBorrowing(src io.Reader, l Limits, size int) (out string) {
	r := NewReader(src, l, false)
	defer r.Close()
	shared := make([]byte, size)
	for turn := 0; ; turn++ {
		r.Borrow(shared)
		if err := r.Fill(); err != nil {
			return out + err.Error()
		}
		for {
			n, err := r.Scan()
			if err != nil {
				return out + err.Error()
			}
			if turn%4 >= 2 && n > 0 {
				r.Unread()
			}
			args, err := r.Next()
			if err != nil {
				return out + err.Error()
			}
			if len(args) != n {
				return out + fmt.Sprintf("%d arguments scanned, %q", n, args)
			}
			if args == nil {
				break
			}
			if turn%2 == 1 {
				size := r.Size()
				r.Unread()
				if args, err = r.Next(); err != nil || size != r.Size() {
					return out + "read again: " + fmt.Sprint(err)
				}
			}
			out += fmt.Sprintf("%q ", args)
			if turn%3 == 1 {
				if err := r.Return(); err != nil {
					return out + err.Error()
				}
				clear(shared)
			}
		}
		if err := r.Return(); err != nil {
			return out + err.Error()
		}
		clear(shared)
	}
}

func TestReader(t *testing.T) {
	for _, c := range []struct{ desc, in, want string }{
		{"two commands", "*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n", `["PING"] ["GET" ""] EOF`},
		{"empty commands", "*0\r\n*-1\r\n\r\n\nPING\n", `["PING"] EOF`},
		{"lines and commands", "GET a\r\n*2\r\n$3\r\nGET\r\n$1\r\nb\r\nGET c\r\n*1\r\n$4\r\nPING\r\n", `["GET" "a"] ["GET" "b"] ["GET" "c"] ["PING"] EOF`},
		{"truncated", "*2\r\n$3\r\nGET\r\n$5\r\nab", "EOF"},
		{"words in quotes", `SET "a\x41\n\"b" 'it\'s'` + "\r\n", `["SET" "aA\n\"b" "it's"] EOF`},
		{"open quote", "SET \"a\r\n", "Protocol error: unbalanced quotes in request"},
		{"a word against a quote", "SET \"a\"b\r\n", "Protocol error: unbalanced quotes in request"},
		{"too many words", strings.Repeat("a ", 1025) + "\r\n", "Protocol error: too big inline request"},
		{"a sign", "*+1\r\n", "Protocol error: invalid multibulk length"},
		{"a leading zero", "*01\r\n", "Protocol error: invalid multibulk length"},
		{"a length near 2^63", "*1\r\n$9223372036854775800\r\nabc\r\n", "Protocol error: invalid bulk length"},
		{"a length beyond 2^64", "*1\r\n$18446744073709551617\r\nabc\r\n", "Protocol error: invalid bulk length"},
		{"too many arguments", "*101\r\n", "Protocol error: invalid multibulk length"},
		{"no bulk", "*1\r\n:1\r\n", "Protocol error: expected '$', got ':'"},
		{"a control byte for a bulk", "*1\r\n\x01\r\n", "Protocol error: expected '$', got '?'"},
		{"too large a request", "*100\r\n" + strings.Repeat("$4096\r\n"+strings.Repeat("x", 4096)+"\r\n", 20), "Protocol error: request too large"},
	} {
		for name, src := range map[string]io.Reader{"whole": strings.NewReader(c.in), "in single bytes": iotest.OneByteReader(strings.NewReader(c.in))} {
			if got := readAll(src, limits, false); got != c.want {
				t.Errorf("%s, %s:\n got %s\nwant %s", c.desc, name, got, c.want)
			}
		}
		for _, size := range []int{1, 16, 1 << 10, 64 << 10} {
			for name, src := range map[string]io.Reader{"whole": strings.NewReader(c.in), "in single bytes": iotest.OneByteReader(strings.NewReader(c.in))} {
				if got := readBorrowing(src, limits, size); got != c.want {
					t.Errorf("%s, %s, %d bytes borrowed:\n got %s\nwant %s", c.desc, name, size, got, c.want)
				}
			}
		}
	}
}

// Scan of a command with many arguments allocates no memory for them: an event loop would do so
// while all its clients wait.
func TestScanTakesNoMemory(t *testing.T) {
	const args = 100_000
	in := fmt.Sprintf("*%d\r\n", args) + strings.Repeat("$1\r\nx\r\n", args)
	r := NewReader(strings.NewReader(in), Limits{MaxArgs: args, MaxBulkBytes: 1, MaxBytes: 1 << 24}, false)
	for n, err := 0, error(nil); n == 0; n, err = r.Scan() {
		if err == nil {
			err = r.Fill()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	allocs := testing.AllocsPerRun(1, func() {
		r.Unread()
		if n, err := r.Scan(); n != args || err != nil {
			t.Error(n, err)
		}
	})
	if allocs > 0 || cap(r.args) > keptSpans {
		t.Errorf("%v allocations, capacity for %d arguments", allocs, cap(r.args))
	}
	if got, err := r.Next(); len(got) != args || err != nil {
		t.Error(len(got), err)
	}
}

// Memory is reserved before it is allocated, and released when a request is done.
func TestReserve(t *testing.T) {
	var now, peak int
	l := limits
	l.MaxArgs, l.MaxBulkBytes, l.MaxBytes = 1<<20, 1<<20, 1<<24
	l.Reserve = func(n int) bool {
		if now+n > 1<<18 {
			return false
		}
		now += n
		peak = max(peak, now)
		return true
	}
	big := "*1\r\n$100000\r\n" + strings.Repeat("x", 100000) + "\r\n"
	if got := readAll(strings.NewReader(big+"PING\r\n"), l, false); !strings.HasSuffix(got, `["PING"] EOF`) {
		t.Errorf("a large request ends in %.40q", got[max(0, len(got)-40):])
	}
	if now != 0 || peak < 100000-firstBuffer || peak > 100000+firstBuffer { // no doubling beyond a large argument
		t.Errorf("%d bytes reserved at the end, %d at the peak", now, peak)
	}
	for _, in := range []string{"*1\r\n$300000\r\n" + strings.Repeat("x", 300000), "*1000000\r\n" + strings.Repeat("$0\r\n\r\n", 1000000)} {
		if got := readAll(strings.NewReader(in), l, false); got != ErrMemory.Error() {
			t.Errorf("%.20q: %q", in, got)
		}
		if now != 0 {
			t.Errorf("%d bytes reserved at the end", now)
		}
		if got := readBorrowing(strings.NewReader(in), l, 1<<16); got != ErrMemory.Error() {
			t.Errorf("%.20q, borrowing: %q", in, got)
		}
		if now != 0 {
			t.Errorf("%d bytes reserved at the end, borrowing", now)
		}
	}
	// An incomplete command in a borrowed buffer is copied, which needs memory.
	reserve := l.Reserve
	l.Reserve = func(n int) bool { return n < 0 }
	if got := readBorrowing(strings.NewReader("PING\r\n"+big[:5000]), l, 1<<16); got != `["PING"] `+ErrMemory.Error() {
		t.Errorf("without memory: %q", got)
	}
	l.Reserve = reserve
	// The length of an argument alone reserves nothing.
	peak = 0
	if got := readAll(strings.NewReader("*1\r\n$1000000\r\nabc"), l, false); got != "EOF" || peak != 0 {
		t.Errorf("a length without data: %q, %d bytes reserved", got, peak)
	}
}

// What is reserved for the arguments of a command is near the memory that they take.
func TestReserveForArguments(t *testing.T) {
	const n = 600_001
	in := fmt.Sprintf("*%d\r\n", n) + strings.Repeat("$0\r\n\r\n", n)
	now, peak := 0, 0
	l := Limits{MaxArgs: n, MaxBulkBytes: 1, MaxBytes: 2 * len(in), Reserve: func(n int) bool {
		now += n
		peak = max(peak, now)
		return true
	}}
	r := NewReader(strings.NewReader(in), l, false)
	for args, err := [][]byte(nil), error(nil); args == nil; args, err = r.Next() {
		if err == nil {
			err = r.Fill()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	took := argOverhead*n + len(in)
	if peak < took || peak > 2*took {
		t.Errorf("%d bytes were reserved for %d arguments, which take %d", peak, n, took)
	}
	if err := r.Fill(); err != io.EOF || now != 0 {
		t.Errorf("%d bytes are reserved at the end (%v)", now, err)
	}
}

// Once a command has been executed, the Reader keeps no argument, nor the buffer of a large one.
func TestArgumentsAreDropped(t *testing.T) {
	word := strings.Repeat("x", 5000)
	line, long := "PING "+word+"\r\n", "*2\r\n$4\r\nPING\r\n$5000\r\n"+word+"\r\n"
	l := limits
	l.MaxBulkBytes = 1 << 16
	for name, in := range map[string]string{
		"a line": line, "a long argument": long, "more arguments before": "PING a b c\r\n" + long, "a line before": line + long, "a line afterwards": long + line,
	} {
		for _, borrowed := range []int{0, 1 << 10, 1 << 16} {
			r := NewReader(strings.NewReader(in), l, false)
			check := func(after string) {
				t.Helper()
				for _, arg := range r.args[:cap(r.args)] {
					if arg != nil {
						t.Errorf("%s, %d bytes borrowed: an argument of %d bytes is kept after %s", name, borrowed, len(arg), after)
					}
				}
			}
			for err := error(nil); err == nil; {
				if borrowed > 0 {
					r.Borrow(make([]byte, borrowed))
				}
				err = r.Fill()
				check("Fill")
				for args := [][]byte{nil}; args != nil; {
					if args, _ = r.Next(); args != nil && string(args[0]) != "PING" {
						t.Fatalf("%s, %d bytes borrowed: %.20q", name, borrowed, args)
					}
				}
				if borrowed > 0 {
					r.Return()
					check("Return")
				}
			}
		}
	}
}

// Before a client has authenticated, a line may be as long as an argument, and no longer.
func TestUnauthenticatedLine(t *testing.T) {
	line := "AUTH " + strings.Repeat("x", unauthBulkBytes-len("AUTH \r")) + "\r\n"
	for _, c := range []struct {
		in     string
		unauth bool
		want   string
	}{
		{line, true, fmt.Sprintf("%q EOF", strings.Fields(line))},
		{"x" + line, true, "Protocol error: too big inline request"},
		{"x" + line[:len(line)-1], true, "Protocol error: too big inline request"},
		{"x" + line, false, fmt.Sprintf("%q EOF", strings.Fields("x"+line))},
	} {
		for name, src := range map[string]io.Reader{"whole": strings.NewReader(c.in), "in single bytes": iotest.OneByteReader(strings.NewReader(c.in))} {
			if got := readAll(src, limits, c.unauth); got != c.want {
				t.Errorf("%d bytes, %s: %.60q, want %.60q", len(c.in), name, got, c.want)
			}
		}
	}
}

// A stream gives the same commands however it is split into reads.
func FuzzReader(f *testing.F) {
	f.Add([]byte("*2\r\n$3\r\nGET\r\n$1\r\na\r\nPING \"x\"\r\n"), false)
	f.Add([]byte("*11\r\n"), true)
	f.Add([]byte("*1\r\n$9223372036854775800\r\n"), false)
	f.Fuzz(func(t *testing.T, in []byte, unauth bool) {
		whole := readAll(bytes.NewReader(in), limits, unauth)
		single := readAll(iotest.OneByteReader(bytes.NewReader(in)), limits, unauth)
		if whole != single {
			t.Errorf("whole:  %s\nsingle: %s", whole, single)
		}
	})
}

func TestWriter(t *testing.T) {
	for _, c := range []struct {
		proto int
		want  string
	}{
		{2, "+OK\r\n-ERR a  b\r\n:-5\r\n:1\r\n:0\r\n$1\r\nx\r\n$-1\r\n*1\r\n*2\r\n"},
		{3, "+OK\r\n-ERR a  b\r\n:-5\r\n#t\r\n#f\r\n$1\r\nx\r\n_\r\n*1\r\n%1\r\n"},
	} {
		w := Writer{Proto: c.proto}
		w.OK()
		w.Error("ERR a\r\nb")
		w.Int(-5)
		w.Bool(true)
		w.Bool(false)
		w.BulkString("x")
		w.Nil()
		w.Array(1)
		w.Map(1)
		if string(w.Buf) != c.want {
			t.Errorf("RESP%d: %q, want %q", c.proto, w.Buf, c.want)
		}
	}
	if err := error(ProtocolError("x")); !errors.As(err, new(ProtocolError)) {
		t.Error("errors.As does not find a ProtocolError")
	}
}
