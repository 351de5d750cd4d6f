package serve

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/siftdb/sift/internal/redisbloom"
)

// A filter that is dumped and restored, perhaps in a transaction, has the same items and settings.
// A dump with a changed byte is rejected. If the checksum is corrected, the dump is rejected, or it
// restores a filter whose dump is the same.
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
			t.Errorf("RESTORE over a filter: %v", got)
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
	for _, name := range []string{"b", "c"} {
		dump := []byte(c.do("DUMP", name).(string))
		for i := range len(dump) - dumpTail {
			if i > 200 && i%97 != 0 {
				continue
			}
			bad := bytes.Clone(dump)
			bad[i] ^= 0x41
			if got := c.do("RESTORE", "bad", "0", string(bad), "REPLACE"); got != any(failure(errDump.Error())) {
				t.Errorf("byte %d of %s, checksum mismatch: %v", i, name, got)
			}
			bad = appendDumpTail(bad[:len(bad)-dumpTail])
			got := c.do("RESTORE", "bad", "0", string(bad), "REPLACE")
			if e, ok := got.(failure); ok {
				if e != "ERR Bad data format" && !strings.HasPrefix(string(e), "OOM") {
					t.Errorf("byte %d of %s: %v", i, name, got)
				}
				continue
			}
			again, ok := c.do("DUMP", "bad").(string)
			if !ok || !reflect.DeepEqual(dumpOf(t, s, []byte(again)), dumpOf(t, s, bad)) {
				t.Errorf("byte %d of %s: %v, but the dump of the result differs", i, name, got)
			}
		}
		if got := c.do("RESTORE", "bad", "0", string(dump[:len(dump)-1]), "REPLACE"); got != any(failure(errDump.Error())) {
			t.Errorf("a truncated dump of %s: %v", name, got)
		}
	}
	// A cuckoo filter with one link of 2 buckets of 2 slots.
	for buckets, want := range map[uint64]any{2: simple("OK"), 3: failure("ERR Bad data format"), 1<<63 + 2: failure("ERR Bad data format")} {
		dump := appendDumpLen([]byte{dumpModule}, moduleID(kindCuckoo))
		for _, n := range []uint64{1, 2, 0, 0, 2, 20, 1, buckets} {
			dump = appendModuleUint(dump, n)
		}
		dump = appendModuleString(dump, make([]byte, 4))
		if got := c.do("RESTORE", "buckets", "0", string(appendDumpTail(append(dump, moduleEnd))), "REPLACE"); got != want {
			t.Errorf("a link of 4 slots in %d buckets: %v, want %v", buckets, got, want)
		}
	}
	// One whose header says that there are more buckets: no memory is allocated for them.
	for _, claim := range []uint64{4, 1 << 39} {
		dump := appendDumpLen([]byte{dumpModule}, moduleID(kindCuckoo))
		for _, n := range []uint64{1, claim, 0, 0, 2, 20, 1, 2} {
			dump = appendModuleUint(dump, n)
		}
		dump = appendModuleString(dump, make([]byte, 4))
		if got := c.do("RESTORE", "claim", "0", string(appendDumpTail(append(dump, moduleEnd))), "REPLACE"); got != any(failure("ERR Bad data format")) {
			t.Errorf("a link of 4 slots, where the header says %d buckets: %v", claim, got)
		}
	}
	other := dial(t, start(t, t.TempDir(), Config{Layout: redisbloom.Tight, Fsync: FsyncNo}))
	other.do("BF.ADD", "b", "x")
	if got := other.do("DUMP", "b"); got != any(failure(errTightDump.Error())) {
		t.Errorf("a tight filter: %v", got)
	}
}

// dumpOf parses a dump of a filter.
func dumpOf(t *testing.T, s *Server, b []byte) filterDump {
	t.Helper()
	b, err := checkDump(b)
	if err != nil {
		t.Fatal(err)
	}
	d, err := parseFilterDump(b[1:], s.cfg.MaxBulkBytes)
	if err != nil {
		t.Fatal(err)
	}
	return d
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
		t.Errorf("RESTORE was %d writes to the store, want 1", n)
	}
	f := &filter{id: filterOf(s, "r").id, kind: kindBloom}
	if err := s.loadFilter(f); err != nil {
		t.Fatal(err)
	}
	if !f.bloom.Contains([]byte("x")) {
		t.Error("the filter in the store excludes an item that was restored")
	}
}

// If a filter is deleted or expires after DUMP has found it, DUMP replies as if it did not exist.
func TestDumpOfDeletedFilter(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c := dial(t, s)
	c.do("BF.ADD", "b", "x")
	filterOf(s, "b").expiry.Store(1) // in memory only
	if got := c.do("DUMP", "b"); got != any(null{2}) {
		t.Error(got)
	}
}

// CF.COMPACT writes its changes in several writes, since together they may take many times the
// filter's memory.
func TestCompactionIsWrittenInParts(t *testing.T) {
	db, _ := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo})
	if err != nil {
		t.Fatal(err)
	}
	c := localClient(s)
	run := func(args ...string) {
		t.Helper()
		var call [][]byte
		for _, a := range args {
			call = append(call, []byte(a))
		}
		c.w.Reset()
		c.do(lookup(call[0]), call)
		if got := string(c.w.Buf); got != "+OK\r\n" {
			t.Fatalf("%s: %q", args[0], got)
		}
		if err := c.finishWrites(); err != nil {
			t.Fatal(err)
		}
	}
	const slots = 1 << 18 // of each of two links; the first is empty, the second full
	le := binary.LittleEndian
	var header []byte
	for _, n := range []uint64{slots, slots / 2, 0, 2} {
		header = le.AppendUint64(header, n)
	}
	for _, n := range []uint16{2, 20, 1} {
		header = le.AppendUint16(header, n)
	}
	run("CF.LOADCHUNK", "c", "1", string(header))
	run("CF.LOADCHUNK", "c", fmt.Sprint(2*slots+1), strings.Repeat("\x07", slots))
	// In a transaction, which is one write, such a compaction is refused.
	s.execMax = slots
	c.w.Reset()
	for _, call := range []string{"MULTI", "CF.COMPACT c", "EXEC"} {
		args := fields(call)
		c.do(lookup(args[0]), args)
	}
	if got, want := string(c.w.Buf), "+OK\r\n+QUEUED\r\n*1\r\n-"+errExecOOM.Error()+"\r\n"; got != want {
		t.Errorf("in a transaction: %q, want %q", got, want)
	}
	before := s.puts.Load()
	run("CF.COMPACT", "c")
	if n := s.puts.Load() - before; n < 3 {
		t.Errorf("CF.COMPACT was %d writes, want at least 3", n)
	}
	f := filterOf(s, "c")
	stored := &filter{id: f.id, kind: kindCuckoo}
	if err := s.loadFilter(stored); err != nil {
		t.Fatal(err)
	}
	if got, want := stored.cuckoo.Links(), f.cuckoo.Links(); got != want {
		t.Fatalf("%d links in the store, %d in memory", got, want)
	}
	for i := range f.cuckoo.Links() {
		if !bytes.Equal(stored.cuckoo.Data(i), f.cuckoo.Data(i)) {
			t.Errorf("link %d in the store differs", i)
		}
	}
}
