package serve

import (
	"strconv"
	"testing"

	"github.com/siftdb/sift"
)

// manyItems returns a BF.MADD whose single redo entry would take almost three times muchRedo.
func manyItems(from int) []string {
	args := []string{"BF.MADD", "b"}
	for i := range 5000 {
		args = append(args, strconv.Itoa(from+i))
	}
	return args
}

// A command that changes much of a filter is written as several redo entries, none of which is much
// larger than muchRedo. A transaction is still one write.
func TestMuchRedo(t *testing.T) {
	everyWay(t, func(t *testing.T) {
		dir := t.TempDir()
		t.Run("write", func(t *testing.T) {
			s := start(t, dir, Config{Fsync: FsyncNo}, func(s *Server) { s.minRedo = 1 << 30 })
			c := dial(t, s)
			c.do("BF.RESERVE", "b", "0.0001", "100000")
			before := s.puts.Load()
			c.do(manyItems(0)...)
			if n := s.puts.Load() - before; n != 3 {
				t.Errorf("%d writes, want 3", n)
			}
			entries := 0
			for e, err := range s.db.Scan(&sift.IterOptions{Prefix: filterKey(filterOf(s, "b").id, partRedo)}) {
				if err != nil {
					t.Fatal(err)
				}
				if entries++; len(e.Value) > muchRedo+partArgs*18 {
					t.Errorf("a redo entry of %d bytes", len(e.Value))
				}
			}
			if entries < 3 {
				t.Errorf("%d redo entries, want at least 3", entries)
			}
			before = s.puts.Load()
			c.do("MULTI")
			c.do(manyItems(5000)...)
			c.do("EXEC")
			if n := s.puts.Load() - before; n != 1 {
				t.Errorf("a transaction was %d writes, want 1", n)
			}
		})
		c := dial(t, start(t, dir, Config{}))
		for from := range 2 {
			args := manyItems(5000 * from)
			args[0] = "BF.MEXISTS"
			for i, has := range c.do(args...).([]any) {
				if has != any(int64(1)) {
					t.Fatalf("item %d is missing after a restart", 5000*from+i)
				}
			}
		}
	})
}
