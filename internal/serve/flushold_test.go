package serve

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestFlushDropsTables: the keys that FLUSHDB has removed are dropped with their tables, not one by
// one; keys in other databases, and those set later, stay.
func TestFlushDropsTables(t *testing.T) {
	s := start(t, t.TempDir(), Config{})
	c := dial(t, s)
	const keys = 120_000
	rng := rand.New(rand.NewPCG(1, 1))
	value := func() string { // incompressible
		b := make([]byte, 256)
		for i := range b {
			b[i] = byte('!' + rng.IntN(90))
		}
		return string(b)
	}
	name := func(i int) string { return "key" + strings.Repeat("0", i%7) + string(rune('a'+i%26)) }
	c.do("SELECT", "3")
	c.do("SET", "stays", "1")
	c.do("SELECT", "0")
	for from := 0; from < keys; from += 1000 {
		args := []string{"MSET"}
		for i := from; i < from+1000; i++ {
			args = append(args, name(i)+value()[:12], value())
		}
		if got := c.do(args...); got != simple("OK") {
			t.Fatal(got)
		}
	}
	if err := s.db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	size, err := s.db.ApproximateSize(nil, nil)
	if err != nil || size < 2*minDrop {
		t.Fatalf("%d bytes on disk, %v", size, err)
	}
	if got := c.do("DBSIZE"); got != int64(keys) { // this keeps a snapshot
		t.Fatal("DBSIZE", got)
	}
	before := s.db.Metrics().LastSequence
	if got := c.do("FLUSHDB"); got != simple("OK") {
		t.Fatal(got)
	}
	c.do("SET", "later", "2")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if size, err = s.db.ApproximateSize(nil, nil); err != nil || size < minDrop {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a minute later %d bytes are left", size)
		}
	}
	// All but the first and the last of their tables hold nothing else.
	if writes := s.db.Metrics().LastSequence - before; err != nil || writes > keys*3/4 {
		t.Errorf("%d writes for %d keys, %v", writes, keys, err)
	}
	for _, want := range [][]any{{"DBSIZE", int64(1)}, {"GET later", "2"}, {"SELECT 3", simple("OK")}, {"GET stays", "1"}} {
		if got := c.do(strings.Fields(want[0].(string))...); got != want[1] {
			t.Errorf("%s: %v, want %v", want[0], got, want[1])
		}
	}
}
