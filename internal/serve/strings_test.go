package serve

import (
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// stringSteps are commands on a database, one after the other, and their replies.
func stringSteps() []struct {
	call string
	want any
} {
	nothing := null{2}
	return []struct {
		call string
		want any
	}{
		{"SET k v", simple("OK")},
		{"GET k", "v"},
		{"set k w NX", nothing},
		{"SET new w XX", nothing},
		{"SET k w XX GET", "v"},
		{"SET k x NX GET", "w"},
		{"GET k", "w"},
		{"SET k v EX 100", simple("OK")},
		{"SET k v KEEPTTL", simple("OK")},
		{"TTL k", int64(100)},
		{"SET k v", simple("OK")},
		{"TTL k", int64(-1)},
		{"TTL none", int64(-2)},
		{"SET k v EX 0", failure("ERR invalid expire time in 'set' command")},
		{"SET k v EX 9223372036854775807", failure("ERR invalid expire time in 'set' command")},
		{"SET k v EX x", failure("ERR value is not an integer or out of range")},
		{"SET k v EX 1 PX 1", failure("ERR syntax error")},
		{"SET k v NX XX", failure("ERR syntax error")},
		{"SET k v BOGUS", failure("ERR syntax error")},
		{"SETNX k x", int64(0)},
		{"SETEX e 100 v", simple("OK")},
		{"PSETEX e 100000 v", simple("OK")},
		{"TTL e", int64(100)},
		{"EXPIRE e 50 GT", int64(0)},
		{"EXPIRE e 50 LT", int64(1)},
		{"EXPIRE e 60 NX", int64(0)},
		{"EXPIRE e 60 XX", int64(1)},
		{"TTL e", int64(60)},
		{"PERSIST e", int64(1)},
		{"PERSIST e", int64(0)},
		{"EXPIRE e -1", int64(1)},
		{"EXISTS e k k", int64(2)},
		{"EXPIRE none 1", int64(0)},
		{"EXPIRE k 9223372036854775807", failure("ERR invalid expire time in 'expire' command")},
		{"INCR n", int64(1)},
		{"INCRBY n 9223372036854775806", int64(9223372036854775807)},
		{"INCR n", failure("ERR increment or decrement would overflow")},
		{"DECRBY n -9223372036854775808", failure("ERR decrement would overflow")},
		{"DECR n", int64(9223372036854775806)},
		{"INCR k", failure("ERR value is not an integer or out of range")},
		{"INCRBYFLOAT f 1.5", "1.5"},
		{"INCRBYFLOAT f inf", failure("ERR increment would produce NaN or Infinity")},
		{"INCRBYFLOAT sum 0.1", "0.1"},
		{"INCRBYFLOAT sum 0.2", "0.3"},
		{"GETEX sum PERSIST", "0.3"},
		{"GETRANGE sum 0 -2", "0."},
		{"SETRANGE sum 2 45", int64(4)},
		{"MSETNX sum 1 other 2", int64(0)},
		{"SETBIT bit 7 1", int64(0)},
		{"BITCOUNT bit", int64(1)},
		{"BITCOUNT bit -1 -2", int64(0)},
		{"BITPOS bit 1", int64(7)},
		{"BITPOS bit 1 -1 -2", int64(7)},
		{"EXPIRE sum 100 NX XX", failure("ERR NX and XX, GT or LT options at the same time are not compatible")},
		{"EXPIRE sum 100 LT XX", int64(0)},
		{"TOUCH sum bit none", int64(2)},
		{"KEYS su?", []any{"sum"}},
		{"MOVE sum 1", int64(1)},
		{"EXISTS sum", int64(0)},
		{"DEL bit", int64(1)},
		{"INCRBYFLOAT k 1", failure("ERR value is not a valid float")},
		{"APPEND k w", int64(2)},
		{"STRLEN k", int64(2)},
		{"GETSET k z", "vw"},
		{"GETDEL k", "z"},
		{"GET k", nothing},
		{"MSET a 1 b 2 a 3", simple("OK")},
		{"MGET a b none", []any{"3", "2", nothing}},
		{"MSET a", failure("ERR wrong number of arguments for 'mset' command")},
		{"DEL a a b none", int64(2)},
		{"RENAME none x", failure("ERR no such key")},
		{"SET a 1", simple("OK")},
		{"SET b 2", simple("OK")},
		{"RENAMENX a b", int64(0)},
		{"RENAME a b", simple("OK")},
		{"GET b", "1"},
		{"COPY b c", int64(1)},
		{"COPY b c", int64(0)},
		{"GET c", "1"},
		{"TYPE c", simple("string")},
		{"TYPE none", simple("none")},
		{"OBJECT ENCODING c", "int"},
		{"BF.ADD filter x", int64(1)},
		{"GET filter", failure("WRONGTYPE Operation against a key holding the wrong kind of value")},
		{"MGET filter", []any{nothing}},
		{"INCR filter", failure("WRONGTYPE Operation against a key holding the wrong kind of value")},
		{"SET filter v", simple("OK")},
		{"BF.ADD filter x", failure("WRONGTYPE Operation against a key holding the wrong kind of value")},
		{"DEL filter", int64(1)},
		{"BF.EXISTS filter x", int64(0)},
		{"CF.ADD filter x", int64(1)},
		{"MULTI", simple("OK")},
		{"SET t 1", simple("QUEUED")},
		{"INCR t", simple("QUEUED")},
		{"EXEC", []any{simple("OK"), int64(2)}},
		{"MULTI", simple("OK")},
		{"NOSUCH x", failure("ERR unknown command 'NOSUCH', with args beginning with: 'x' ")},
		{"EXEC", failure("EXECABORT Transaction discarded because of previous errors.")},
		{"EXEC", failure("ERR EXEC without MULTI")},
		{"SELECT 0", simple("OK")},
		{"SELECT 16", failure("ERR DB index is out of range")},
		{"HELLO 4", failure("NOPROTO unsupported protocol version")},
		{"CONFIG SET appendfsync everysec", simple("OK")},
		{"CONFIG GET appendfsync", []any{"appendfsync", "everysec"}},
		{"GET", failure("ERR wrong number of arguments for 'get' command")},
		{"FLUSHALL", simple("OK")},
		{"DBSIZE", int64(0)},
		{"CF.EXISTS filter x", int64(0)},
	}
}

func TestStrings(t *testing.T) { everyWay(t, testStrings) }

func testStrings(t *testing.T) {
	c := dial(t, start(t, t.TempDir(), Config{Fsync: FsyncNo}))
	for _, step := range stringSteps() {
		if got := c.do(strings.Fields(step.call)...); !reflect.DeepEqual(got, step.want) {
			t.Errorf("%s: %#v, want %#v", step.call, got, step.want)
		}
	}
}

// A key that expires while a command changes its expiry stays expired.
func TestExpiryOfExpired(t *testing.T) {
	db, _ := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo}) // nothing runs in the background
	if err != nil {
		t.Fatal(err)
	}
	c := localClient(s)
	args := fields("SET k v PXAT 1000")
	c.do(lookup(args[0]), args)
	for _, expiry := range []int64{0, s.nowMs() + 1_000_000} {
		if err := c.locked(func() error {
			found, err := c.setExpiry([]byte("k"), expiry)
			if found {
				t.Error("an expired key is found")
			}
			return err
		}, []byte("k")); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.finishWrites(); err != nil {
		t.Fatal(err)
	}
	c.w.Reset()
	for _, call := range []string{"GET k", "KEYS *"} {
		args := fields(call)
		c.do(lookup(args[0]), args)
	}
	if got, want := string(c.w.Buf), "$-1\r\n*0\r\n"; got != want {
		t.Errorf("GET and KEYS: %q, want %q", got, want)
	}
}

func TestExpiry(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c := dial(t, s)
	c.do("SET", "s", "v", "PX", "20")
	c.do("BF.ADD", "b", "x")
	c.do("PEXPIRE", "b", "20")
	time.Sleep(30 * time.Millisecond)
	for call, want := range map[string]any{"GET s": null{2}, "EXISTS s b": int64(0), "BF.EXISTS b x": int64(0), "SET s w XX": null{2}, "DBSIZE": int64(0)} {
		if got := c.do(strings.Fields(call)...); got != want {
			t.Errorf("%s: %v, want %v", call, got, want)
		}
	}
	if got := c.do("BF.ADD", "b", "y"); got != any(int64(1)) {
		t.Errorf("BF.ADD to an expired filter: %v", got)
	}
	if got := c.do("BF.CARD", "b"); got != any(int64(1)) {
		t.Errorf("BF.CARD of the new filter: %v", got)
	}
	for deadline := time.Now().Add(20 * time.Second); s.stats.expired.Load() == 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the sweeper removes nothing")
		}
	}
	if got := c.do("BF.CARD", "b"); got != any(int64(1)) {
		t.Errorf("BF.CARD after the sweep: %v", got)
	}
}

func TestScan(t *testing.T) { everyWay(t, testScan) }

func testScan(t *testing.T) {
	c := dial(t, start(t, t.TempDir(), Config{Fsync: FsyncNo}))
	for i := range 500 {
		c.do("SET", fmt.Sprint("k", i), "v")
	}
	c.do("BF.ADD", "k-filter", "x")
	for _, q := range []struct {
		words []string
		want  int
	}{
		{nil, 501},
		{[]string{"MATCH", "k1*"}, 111},
		{[]string{"MATCH", "k[1-3]?", "COUNT", "7"}, 30},
		{[]string{"TYPE", "MBbloom--"}, 1},
		{[]string{"TYPE", "string", "COUNT", "1000"}, 500},
	} {
		seen := map[string]bool{}
		cursor := "0"
		for {
			r := c.do(append([]string{"SCAN", cursor}, q.words...)...).([]any)
			for _, key := range r[1].([]any) {
				if seen[key.(string)] {
					t.Errorf("%v: %s twice", q.words, key)
				}
				seen[key.(string)] = true
			}
			if cursor = r[0].(string); cursor == "0" {
				break
			}
		}
		if len(seen) != q.want {
			t.Errorf("%v: %d keys, want %d", q.words, len(seen), q.want)
		}
	}
}

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true}, {"*", "", true}, {"*", "abc", true}, {"a*c", "abbc", true}, {"a*c", "abcd", false},
		{"?", "", false}, {"a?c", "abc", true}, {"[a-c]x", "bx", true}, {"[c-a]x", "bx", true}, {"[^a]x", "ax", false},
		{`\*`, "*", true}, {`\*`, "a", false}, {"[a", "a", true}, {"[", "a", false}, {`a\`, `a\`, true},
		{strings.Repeat("a*", 30) + "b", strings.Repeat("a", 3000), false},
	} {
		if got := glob([]byte(c.pattern), []byte(c.text)); got != c.want {
			t.Errorf("glob(%q, %.20q) = %v, want %v", c.pattern, c.text, got, c.want)
		}
	}
}

func TestHead(t *testing.T) {
	h := head{kindString, 1000, []byte("hi")}
	b := appendHead(nil, h)
	if got := hex.EncodeToString(b); got != "8100000000000003e86869" {
		t.Errorf("the encoded head is %s", got)
	}
	if got, err := decodeHead(b); err != nil || !reflect.DeepEqual(got, h) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "\x00", "\x04", "\x81", "\x81\x00\x00\x00\x00\x00\x00\x00", "\x02", "\x031234567"} {
		if _, err := decodeHead([]byte(bad)); err == nil {
			t.Errorf("decodeHead accepts %q", bad)
		}
	}
}

// A command that replies with the old value changes nothing if the reply does not fit in memory.
func TestRefusedOldValueStays(t *testing.T) { everyWay(t, testRefusedOldValueStays) }

func testRefusedOldValueStays(t *testing.T) {
	s := start(t, t.TempDir(), Config{RequestBytes: 4 << 20, Fsync: FsyncNo})
	c := dial(t, s)
	value := strings.Repeat("v", 200<<10)
	for _, call := range [][]string{{"GETDEL", "k"}, {"GETSET", "k", "new"}, {"SET", "k", "new", "GET"}, {"GETEX", "k", "EX", "1"}} {
		if got := c.do("SET", "k", value); got != simple("OK") {
			t.Fatal(got)
		}
		waitFor(t, "the memory is released", func() bool { return s.requestBytes.Load() == 0 })
		others := s.cfg.RequestBytes - 100<<10
		s.requestBytes.Add(others) // other clients take it
		got := c.do(call...)
		s.requestBytes.Add(-others)
		if got != any(failure(errReplyOOM.Error())) {
			t.Errorf("%s without memory for the reply: %.40v", call, got)
		}
		if got := c.do("GET", "k"); got != any(value) {
			t.Errorf("after %s was refused the key holds %.40v", call, got)
		}
		if got := c.do("TTL", "k"); got != any(int64(-1)) {
			t.Errorf("after %s was refused the key expires in %v s", call, got)
		}
	}
}
