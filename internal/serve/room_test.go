package serve

import (
	"fmt"
	"strings"
	"testing"

	"github.com/siftdb/sift"
)

const mib = 1 << 20

// tightServer returns the leader of a group that accepts batches of up to 12 MiB, while arguments
// have up to 1 MiB, so that commands may write up to 8 MiB. Nothing runs in the background.
func tightServer(t *testing.T) *Server {
	t.Helper()
	db := groupDB(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Group: &singleNodeGroup{db: db, maxBatch: 12 * mib}, Leads: true, MaxBulkBytes: mib})
	if err != nil {
		t.Fatal(err)
	}
	s.ctx = t.Context()
	return s
}

// doAll executes commands of one client, writes their changes, and returns the replies.
func doAll(t *testing.T, s *Server, calls ...[]string) string {
	t.Helper()
	c := localClient(s)
	defer c.dropQueue()
	for _, call := range calls {
		var args [][]byte
		for _, a := range call {
			args = append(args, []byte(a))
		}
		c.do(lookup(args[0]), args)
	}
	if err := c.finishWrites(); err != nil {
		t.Fatal(err)
	}
	if s.failed.Load() {
		t.Fatal("the server takes no more writes")
	}
	return string(c.w.Buf)
}

// longKey returns a key of n bytes, in the same slot as the others.
func longKey(i, n int) string {
	key := fmt.Sprintf("{x}%d,", i)
	return key + strings.Repeat("k", n-len(key))
}

// repeated returns n calls.
func repeated(n int, call func(i int) []string) (calls [][]string) {
	for i := range n {
		calls = append(calls, call(i))
	}
	return calls
}

// Many long keys that expire at the same time, or are flushed, are removed in several writes.
func TestLongKeysAreRemoved(t *testing.T) {
	const keys, size = 128, 24 << 10
	s := tightServer(t)
	s.cfg.Group.(*singleNodeGroup).maxBatch = 2 * mib
	left := func() (n int) {
		for _, space := range []byte{spaceHead, spaceExpiry} {
			for _, err := range s.db.Scan(&sift.IterOptions{Prefix: []byte{space}}) {
				if err != nil {
					t.Fatal(err)
				}
				n++
			}
		}
		return n
	}
	for i := range keys {
		doAll(t, s, []string{"SET", longKey(i, size), "v", "PXAT", "1000"})
	}
	if n := left(); n != 2*keys {
		t.Fatalf("%d entries", n)
	}
	if err := s.sweepDue(&client{srv: s, writes: s.newWrites(keptBytes)}); err != nil {
		t.Fatal(err)
	}
	if n := left(); n > 0 || s.stats.expired.Load() != keys {
		t.Errorf("of the expired keys %d entries are left; %d were removed", n, s.stats.expired.Load())
	}
	for i := range keys {
		doAll(t, s, []string{"SET", longKey(i, size), "v"})
	}
	doAll(t, s, []string{"FLUSHALL"})
	if err := s.collectOld(); err != nil {
		t.Fatal(err)
	}
	if n := left(); n > 0 {
		t.Errorf("after FLUSHALL %d entries are left", n)
	}
	doAll(t, s, []string{"SET", "k", "v"}) // checks that the server still takes writes
}

// A key that is longer than what is otherwise removed at once is removed as well.
func TestVeryLongKeyIsRemoved(t *testing.T) {
	s := tightServer(t)
	doAll(t, s, []string{"SET", longKey(1, removeBytes+1), "v", "PXAT", "1000"}, []string{"SET", longKey(2, removeBytes+1), "v", "PXAT", "1000"})
	if err := s.sweepDue(&client{srv: s, writes: s.newWrites(keptBytes)}); err != nil || s.stats.expired.Load() != 2 {
		t.Errorf("%d keys were removed, %v", s.stats.expired.Load(), err)
	}
}

// Transactions that would be larger than the group accepts end with commands that are refused.
func TestTransactionTooLarge(t *testing.T) {
	value := strings.Repeat("v", mib)
	mset := []string{"MSET"}
	for i := range 6 {
		mset = append(mset, longKey(i, 10), value)
	}
	const chunk = 31_000 // less than muchRedo
	for _, test := range []struct {
		name   string
		before [][]string
		calls  [][]string
		ok     string // the reply to a command that is executed
	}{
		{"SET", nil, repeated(16, func(i int) []string { return []string{"SET", longKey(i, 10), value} }), "+OK\r\n"},
		{"MSET at the end", nil, append(repeated(7, func(i int) []string { return []string{"SET", longKey(i, 10), value} }), mset), "+OK\r\n"},
		{"SETRANGE", nil, repeated(16, func(i int) []string { return []string{"SETRANGE", longKey(i, 10), "1048575", "x"} }), ":1048576\r\n"},
		{"long keys", nil, repeated(16, func(i int) []string { return []string{"SETEX", longKey(i, mib), "1000", "v"} }), "+OK\r\n"},
		{
			"DEL", repeated(8, func(i int) []string { return []string{"SETEX", longKey(i, mib), "1000", "v"} }),
			repeated(8, func(i int) []string { return []string{"DEL", longKey(i, mib)} }), ":1\r\n",
		},
		{
			"values that change", repeated(16, func(i int) []string { return []string{"SET", longKey(i, 10), value} }),
			repeated(16, func(i int) []string { return []string{"EXPIRE", longKey(i, 10), "1000"} }), ":1\r\n",
		},
		{
			"filters", repeated(450, func(i int) []string { return []string{"BF.RESERVE", longKey(i, 10), "0.01", "40000"} }),
			repeated(450, func(i int) []string {
				return []string{"BF.LOADCHUNK", longKey(i, 10), fmt.Sprint(1 + chunk), strings.Repeat("\xff", chunk)}
			}), "+OK\r\n",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := tightServer(t)
			for _, call := range test.before {
				doAll(t, s, call)
			}
			got := doAll(t, s, append(append([][]string{{"MULTI"}}, test.calls...), []string{"EXEC"})...)
			_, got, _ = strings.Cut(got, fmt.Sprintf("*%d\r\n", len(test.calls)))
			done := strings.Count(got, test.ok)
			want := strings.Repeat(test.ok, done) + strings.Repeat("-"+errExecOOM.Error()+"\r\n", len(test.calls)-done)
			if got != want || done < 2 || done == len(test.calls) {
				t.Errorf("%d of %d commands were executed: %.100q", done, len(test.calls), got)
			}
		})
	}
}

// Commands that would write more than the group accepts are refused, and change nothing; DEL
// removes as many long keys as it is given.
func TestCommandTooLarge(t *testing.T) {
	const keys = 8
	var del, msetnx, mset []string
	for i := range keys {
		del = append(del, longKey(i, mib))
		msetnx = append(msetnx, longKey(i, mib), "v")
	}
	for i := range 2 * keys {
		mset = append(mset, longKey(i, 10), strings.Repeat("v", mib))
	}
	refused := "-" + errTooMuch.Error() + "\r\n"
	for _, test := range []struct {
		name, at, want string
		call           []string
	}{
		{"DEL", "9999999999999", ":8\r\n", append([]string{"DEL"}, del...)},
		{"MSETNX of expired keys", "1000", refused, append([]string{"MSETNX"}, msetnx...)},
		{"MSET", "1000", refused, append([]string{"MSET"}, mset...)},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := tightServer(t)
			for _, key := range del {
				doAll(t, s, []string{"SET", key, "v", "PXAT", test.at})
			}
			if got := doAll(t, s, test.call); got != test.want {
				t.Errorf("%.100q, want %q", got, test.want)
			}
			if got := doAll(t, s, []string{"DBSIZE"}); got != ":0\r\n" {
				t.Errorf("then there are %.100q keys", got)
			}
		})
	}
}

// The changes of one filter are written in several writes before they are larger than the group
// accepts.
func TestMuchRedoInGroup(t *testing.T) {
	s := tightServer(t)
	doAll(t, s, []string{"BF.RESERVE", "f", "0.01", "1000000"})
	chunk := strings.Repeat("\xff", mib)
	calls := repeated(14, func(int) []string { return []string{"BF.LOADCHUNK", "f", fmt.Sprint(1 + mib), chunk} })
	if got, want := doAll(t, s, calls...), strings.Repeat("+OK\r\n", len(calls)); got != want {
		t.Errorf("%.100q", got)
	}
}

// CF.INSERT may move many items for each that it adds. Outside a transaction it writes these
// changes in several writes, and within one it ends when they are too large.
func TestCuckooMovesInGroup(t *testing.T) {
	// The last partArgs of these items write 1.5 MB.
	const slots, items = 1 << 14, 16 * partArgs
	insert := func(from, to int) []string {
		call := []string{"CF.INSERT", "f", "ITEMS"}
		for ; from < to; from++ {
			call = append(call, fmt.Sprint("i", from))
		}
		return call
	}
	for _, exec := range []bool{false, true} {
		s := tightServer(t)
		s.cfg.Group.(*singleNodeGroup).maxBatch = mib
		s.maxWrite = mib / 4
		doAll(t, s, []string{"CF.RESERVE", "f", fmt.Sprint(slots), "BUCKETSIZE", "4", "MAXITERATIONS", "65535", "EXPANSION", "0"})
		for from := 0; from < items-partArgs; from += partArgs {
			doAll(t, s, insert(from, from+partArgs))
		}
		last := insert(items-partArgs, items)
		if !exec {
			doAll(t, s, last)
		} else if got := doAll(t, s, []string{"MULTI"}, last, []string{"EXEC"}); !strings.HasSuffix(got, errExecOOM.Error()+"\r\n") {
			t.Errorf("the transaction: %.100q", got)
		}
	}
}

// TestManyItems: commands that add items to a filter in parts are not refused for the size of all
// of them together, except in a transaction.
func TestManyItems(t *testing.T) {
	const items = 300_000 // with argBytes each, more than tightServer accepts at once
	for _, call := range [][]string{{"BF.MADD", "{x}b"}, {"BF.INSERT", "{x}b", "ITEMS"}, {"CF.INSERT", "{x}c", "ITEMS"}} {
		s := tightServer(t)
		for i := range items {
			call = append(call, fmt.Sprint(i))
		}
		if got := doAll(t, s, call); !strings.HasPrefix(got, fmt.Sprintf("*%d\r\n", items)) {
			t.Errorf("%s: %.40q", call[0], got)
		}
	}
}
