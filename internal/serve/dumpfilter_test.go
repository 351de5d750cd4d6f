package serve

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/siftdb/sift/internal/redisbloom"
)

// A filter that is dumped and restored, perhaps in a transaction, has the same items and settings.
// A dump with a changed byte restores to some filter or is refused.
func TestFilterDump(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c := dial(t, s)
	for i := range 500 {
		c.do("BF.ADD", "b", fmt.Sprint(i))
		c.do("CF.ADD", "c", fmt.Sprint(i%400))
	}
	c.do("BF.RESERVE", "fixed", "0.001", "1000", "NONSCALING")
	c.do("BF.ADD", "fixed", "0")
	c.do("CF.RESERVE", "empty", "64", "BUCKETSIZE", "4", "EXPANSION", "0")
	for _, name := range []string{"b", "c", "fixed", "empty"} {
		kind := "BF"
		if name == "c" || name == "empty" {
			kind = "CF"
		}
		dump := c.do("DUMP", name).(string)
		if got := c.do("RESTORE", name, "0", dump); got != any(failure("BUSYKEY Target key name already exists.")) {
			t.Errorf("over a filter: %v", got)
		}
		c.do("SET", name+"2", "what it replaces")
		for _, call := range [][]string{{"RESTORE", name + "2", "0", dump, "REPLACE"}, {"RESTORE", name + "2", "1000000", dump, "REPLACE"}} {
			if got := c.do(call...); got != simple("OK") {
				t.Fatalf("%s: %v", name, got)
			}
		}
		if got := c.do("DUMP", name+"2"); got != any(dump) {
			t.Errorf("%s: the dump of what was restored differs", name)
		}
		if got := c.do("TTL", name+"2"); got != any(int64(1000)) && got != any(int64(999)) {
			t.Errorf("%s: expires in %v s", name, got)
		}
		for i := range 600 {
			item := fmt.Sprint(i)
			if a, b := c.do(kind+".ADD", name, item), c.do(kind+".ADD", name+"2", item); !reflect.DeepEqual(a, b) {
				t.Fatalf("%s: item %s: %v and %v", name, item, a, b)
			}
		}
		if a, b := fmt.Sprint(c.do(kind+".INFO", name)), fmt.Sprint(c.do(kind+".INFO", name+"2")); a != b {
			t.Errorf("%s: %s and %s", name, a, b)
		}
		c.do("MULTI")
		c.do("RESTORE", name+"3", "0", dump)
		c.do(kind+".ADD", name+"3", "more")
		if got := fmt.Sprint(c.do("EXEC")); strings.Contains(got, "ERR") {
			t.Errorf("%s: in a transaction: %s", name, got)
		}
	}
	// Each byte of a dump is changed, with the checksum of the result.
	for _, name := range []string{"b", "c"} {
		dump := []byte(c.do("DUMP", name).(string))
		for i := range len(dump) - dumpTail {
			if i > 200 && i%97 != 0 {
				continue
			}
			bad := bytes.Clone(dump[:len(dump)-dumpTail])
			bad[i] ^= 0x41
			got := c.do("RESTORE", "bad", "0", string(appendDumpTail(bad)), "REPLACE")
			if e, ok := got.(failure); ok && e != "ERR Bad data format" && !strings.HasPrefix(string(e), "OOM") {
				t.Errorf("byte %d of %s: %v", i, name, got)
			}
		}
		if got := c.do("RESTORE", "bad", "0", string(dump[:len(dump)-1]), "REPLACE"); got != any(failure(errDump.Error())) {
			t.Errorf("cut short: %v", got)
		}
	}
	other := dial(t, start(t, t.TempDir(), Config{Layout: redisbloom.Tight, Fsync: FsyncNo}))
	other.do("BF.ADD", "b", "x")
	if got := other.do("DUMP", "b"); got != any(failure(errTightDump.Error())) {
		t.Errorf("a tight filter: %v", got)
	}
}

// RESTORE of a filter is one write to the store, from which the filter can be loaded.
func TestFilterDumpIsOneWrite(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c := dial(t, s)
	c.do("BF.ADD", "b", "x")
	dump := c.do("DUMP", "b").(string)
	before := s.puts.Load()
	c.do("RESTORE", "r", "0", dump)
	if n := s.puts.Load() - before; n != 1 {
		t.Errorf("%d writes to the store", n)
	}
	f := &filter{id: filterOf(s, "r").id, kind: kindBloom}
	if err := s.loadFilter(f); err != nil {
		t.Fatal(err)
	}
	if !f.bloom.Contains([]byte("x")) {
		t.Error("the store's filter excludes what was restored")
	}
}
