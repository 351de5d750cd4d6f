package serve

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/siftdb/sift"
)

// start runs a server for a test.
func start(t testing.TB, dir string, cfg Config, setUp ...func(*Server)) *Server {
	t.Helper()
	db, err := sift.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:0"
	}
	way.set(&cfg)
	s, err := New(db, cfg)
	if err != nil {
		db.Close()
		t.Fatal(err)
	}
	way.slow(s)
	for _, f := range setUp {
		f(s)
	}
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve() }()
	t.Cleanup(func() {
		if err := s.Close(time.Second); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// serving is a way to serve clients.
type serving string

const (
	loops      serving = "event loops"
	handedOn   serving = "event loops that hand everything on"
	goroutines serving = "a goroutine each"
)

// way is how the servers of tests serve their clients.
var way = loops

func (w serving) set(cfg *Config) { cfg.NoLoops = w == goroutines }

func (w serving) slow(s *Server) {
	if w == handedOn {
		s.slowCommand = -1
	}
}

// everyWay runs a test once for each way to serve clients.
func everyWay(t *testing.T, fn func(t *testing.T)) {
	defer func() { way = loops }()
	for _, w := range []serving{loops, handedOn, goroutines} {
		t.Run(string(w), func(t *testing.T) {
			way = w
			fn(t)
		})
	}
}

// caller is a client that returns replies as they are on the wire.
type caller struct {
	t    testing.TB
	conn net.Conn
	r    *bufio.Reader
}

func dial(t testing.TB, s *Server) *caller {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(60 * time.Second))
	t.Cleanup(func() { conn.Close() })
	return &caller{t, conn, bufio.NewReader(conn)}
}

type (
	simple  string
	failure string
	null    struct{ proto int }
	pairs   [][2]any
)

func appendCall(b []byte, args ...string) []byte {
	b = fmt.Appendf(b, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}

// do sends a command and returns the reply: int64, bool, string, simple,
// failure, null, []any or pairs.
func (c *caller) do(args ...string) any {
	c.t.Helper()
	if _, err := c.conn.Write(appendCall(nil, args...)); err != nil {
		c.t.Fatal(err)
	}
	return c.reply()
}

func (c *caller) reply() any {
	c.t.Helper()
	v, err := readReply(c.r)
	if err != nil {
		c.t.Fatal(err)
	}
	return v
}

func readReply(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return nil, fmt.Errorf("reply line %q", line)
	}
	kind, line := line[0], line[1:len(line)-2]
	switch kind {
	case '+':
		return simple(line), nil
	case '-':
		return failure(line), nil
	case '_':
		return null{3}, nil
	case '#':
		return line == "t", nil
	}
	n, err := strconv.ParseInt(line, 10, 64)
	if err != nil {
		return nil, err
	}
	switch kind {
	case ':':
		return n, nil
	case '$':
		if n < 0 {
			return null{2}, nil
		}
		b := make([]byte, n+2)
		_, err := io.ReadFull(r, b)
		return string(b[:n]), err
	case '*':
		if n < 0 {
			return null{2}, nil
		}
		out := []any{}
		for range n {
			v, err := readReply(r)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	case '%':
		out := pairs{}
		for range n {
			k, err := readReply(r)
			if err != nil {
				return nil, err
			}
			v, err := readReply(r)
			if err != nil {
				return nil, err
			}
			out = append(out, [2]any{k, v})
		}
		return out, nil
	}
	return nil, fmt.Errorf("reply kind %q", kind)
}

// decodeReply turns a reply of the transcript into what caller.do returns.
func decodeReply(t *testing.T, v any) any {
	switch v := v.(type) {
	case json.Number:
		n, ok := new(big.Int).SetString(v.String(), 10)
		if !ok {
			t.Fatalf("number %s", v)
		}
		return n.Int64()
	case bool:
		return v
	case []any:
		out := []any{}
		for _, e := range v {
			out = append(out, decodeReply(t, e))
		}
		return out
	case map[string]any:
		for k, e := range v {
			switch k {
			case "s":
				return simple(e.(string))
			case "e":
				return failure(e.(string))
			case "b":
				return e.(string)
			case "bhex":
				b, err := hex.DecodeString(e.(string))
				if err != nil {
					t.Fatal(err)
				}
				return string(b)
			case "nil":
				n, _ := e.(json.Number).Int64()
				return null{int(n)}
			case "m":
				out := pairs{}
				for _, pair := range e.([]any) {
					p := pair.([]any)
					out = append(out, [2]any{decodeReply(t, p[0]), decodeReply(t, p[1])})
				}
				return out
			}
		}
	}
	t.Fatalf("reply %v", v)
	return nil
}
