package serve

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// BenchmarkKeyCount measures DBSIZE with a million keys: by a scan, after some keys have changed
// and after none has; and what it adds to a write.
func BenchmarkKeyCount(b *testing.B) {
	keys := 1_000_000
	if testing.Short() {
		keys = 20_000
	}
	s := start(b, b.TempDir(), Config{Fsync: FsyncNo})
	c := dial(b, s)
	set := func(n, step int) {
		for from := 0; from < n; from += 1000 {
			args := []string{"MSET"}
			for i := from; i < min(from+1000, n); i++ {
				args = append(args, fmt.Sprintf("key:%08d", i*step%keys), "a value of some length")
			}
			c.do(args...)
		}
	}
	set(keys, 1)
	dbsize := func(b *testing.B) {
		c.conn.SetDeadline(time.Now().Add(time.Minute))
		if n := c.do("DBSIZE"); n != int64(keys) {
			b.Fatal("DBSIZE is", n)
		}
	}
	b.Run("scan", func(b *testing.B) {
		for b.Loop() {
			if base := s.keyCounts.base.Load(); base != nil {
				s.keyCounts.drop(base)
			}
			dbsize(b)
		}
	})
	for _, changed := range []int{0, 100, 10_000, keys / changedShare} {
		b.Run(fmt.Sprint("changed=", changed), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				dbsize(b)
				set(changed, 7919)
				b.StartTimer()
				dbsize(b)
			}
		})
	}
	b.Run("write", func(b *testing.B) {
		head := []byte("k0000key:00000001")
		for b.Loop() {
			if s.keyCounts.base.Load() == nil {
				s.keyCounts.base.Store(&countBase{limit: math.MaxInt})
			}
			s.keyCounts.noteChange(head)
		}
	})
}
