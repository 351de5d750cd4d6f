package torture

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/golang/snappy"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/testhook"
	"github.com/siftdb/sift/internal/torture/damage"
	"github.com/siftdb/sift/sstable"
)

// allowance is the memory that a hostile file may cost beyond its size.
const allowance = 64 << 20

// cost runs fn and returns the bytes that it allocated, freed or not.
func cost(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// uvarint encodes a varint.
func uvarint(n uint64) []byte { return binary.AppendUvarint(nil, n) }

// elevenBytes is a varint that is too long.
var elevenBytes = bytes.Repeat([]byte{0xff}, 11)

// hostileTables are tables with correct checksums and malicious contents. Each must be
// detected, except those marked harmless.
func hostileTables() []struct {
	desc     string
	table    []byte
	harmless bool
} {
	key := func(i int) string { return internalKey(fmt.Sprintf("key%06d", i), 1) }
	type list = []struct {
		desc     string
		table    []byte
		harmless bool
	}
	var out list
	add := func(desc string, build func(t *rawTable) []byte) {
		out = append(out, struct {
			desc     string
			table    []byte
			harmless bool
		}{desc, build(new(rawTable)), false})
	}

	bomb := append(uvarint(math.MaxUint32), 0) // six bytes that claim 4 GiB
	add("data block claims 4 GiB", func(t *rawTable) []byte {
		t.data = []rawEntry{{key(1), t.block(bomb, 1)}}
		return t.finish()
	})
	add("index block claims 4 GiB", func(t *rawTable) []byte {
		t.entries(rawEntry{key(1), nil})
		return t.footer(t.block(rawBlock(), 0), t.block(bomb, 1))
	})
	add("metaindex claims 4 GiB", func(t *rawTable) []byte {
		t.entries(rawEntry{key(1), nil})
		return t.footer(t.block(bomb, 1), t.block(rawBlock(t.data...), 0))
	})
	for _, name := range []string{"rocksdb.properties", "fullfilter.sift.Bloom"} {
		add(name+" claims 4 GiB", func(t *rawTable) []byte {
			t.entries(rawEntry{key(1), nil})
			t.meta = []rawEntry{{name, t.block(bomb, 1)}}
			return t.finish()
		})
	}
	add("snappy block that is longer than it claims", func(t *rawTable) []byte {
		b := snappy.Encode(nil, make([]byte, 100000))
		t.data = []rawEntry{{key(1), t.block(append(uvarint(10), b[3:]...), 1)}}
		return t.finish()
	})

	for _, h := range [][]byte{
		elevenBytes, append(elevenBytes, elevenBytes...), handle(math.MaxUint64, 1), handle(1<<63, 1<<63),
		handle(0, 1<<63), handle(0, math.MaxUint64), handle(math.MaxUint64-4, 5), handle(0, 1<<40), {0x80},
	} {
		add(fmt.Sprintf("data handle % x", h), func(t *rawTable) []byte {
			t.entries(rawEntry{key(1), nil})
			t.data[0].value = h
			return t.finish()
		})
		add(fmt.Sprintf("meta handle % x", h), func(t *rawTable) []byte {
			t.entries(rawEntry{key(1), nil})
			t.meta = []rawEntry{{"fullfilter.sift.Bloom", h}}
			return t.finish()
		})
		if len(h) < 20 {
			add(fmt.Sprintf("footer's index handle % x", h), func(t *rawTable) []byte {
				t.entries(rawEntry{key(1), nil})
				return t.footer(t.block(rawBlock(), 0), h)
			})
		}
	}
	add("the index is its own data block", func(t *rawTable) []byte {
		t.block(rawBlock(rawEntry{key(1), nil}), 0)
		at := uint64(len(t.bytes))
		b := rawBlock(rawEntry{key(1), handle(at, 40)})
		b = rawBlock(rawEntry{key(1), handle(at, uint64(len(b)))})
		return t.footer(handle(0, 1), t.block(b, 0))
	})
	add("ten thousand index entries for one block", func(t *rawTable) []byte {
		h := t.block(rawBlock(rawEntry{key(0), make([]byte, 1<<20)}), 0)
		for i := range 10000 {
			t.data = append(t.data, rawEntry{key(i), h})
		}
		return t.finish()
	})
	add("ten thousand filter units that are one block", func(t *rawTable) []byte {
		t.entries(rawEntry{key(1), nil})
		h := t.block(make([]byte, 1<<20), 0)
		for _, family := range filter.Families() {
			t.meta = append(t.meta, rawEntry{"fullfilter." + family, h})
			for i := 1; i < 10000; i++ {
				t.meta = append(t.meta, rawEntry{fmt.Sprintf("fullfilter.%s.%d", family, i), h})
			}
		}
		return t.finish()
	})
	for _, n := range []uint32{math.MaxUint32, math.MaxInt32, 1 << 30, 1 << 28} {
		add(fmt.Sprintf("%d restarts", n), func(t *rawTable) []byte {
			b := rawBlock(rawEntry{key(1), nil})
			binary.LittleEndian.PutUint32(b[len(b)-4:], n)
			t.data = []rawEntry{{key(1), t.block(b, 0)}}
			return t.finish()
		})
	}
	add("restart beyond the block", func(t *rawTable) []byte {
		b := rawBlock(rawEntry{key(1), nil})
		binary.LittleEndian.PutUint32(b[len(b)-8:], 1<<31)
		t.data = []rawEntry{{key(1), t.block(b, 0)}}
		return t.finish()
	})
	for desc, entry := range map[string][]byte{
		"shares more than there is": append(append(uvarint(1<<40), 1, 1), "xy"...),
		"key of 2^63":               append(append([]byte{0}, uvarint(1<<63)...), 1, 'x'),
		"value of 2^63":             append(append([]byte{0, 1}, uvarint(1<<63)...), 'x'),
		"lengths add up to 2^64":    append(append(append([]byte{0}, uvarint(1<<63)...), uvarint(1<<63)...), 'x'),
		"length of eleven bytes":    append(append([]byte{0}, elevenBytes...), 1),
	} {
		tail := []byte{0, 0, 0, 0, 1, 0, 0, 0}
		for _, where := range []string{"data", "index", "metaindex", "properties"} {
			add(where+" entry "+desc, func(t *rawTable) []byte {
				t.entries(rawEntry{key(1), nil})
				b := append(bytes.Clone(entry), tail...)
				switch where {
				case "data":
					t.data[0].value = t.block(b, 0)
				case "index":
					return t.footer(t.block(rawBlock(), 0), t.block(b, 0))
				case "metaindex":
					return t.footer(t.block(b, 0), t.block(rawBlock(t.data...), 0))
				case "properties":
					t.meta = []rawEntry{{"rocksdb.properties", t.block(b, 0)}}
				}
				return t.finish()
			})
		}
	}
	// With prefix compression, the size of all keys is quadratic in that of the block.
	add("keys that grow", func(t *rawTable) []byte { return growingKeys(t, false) })
	out[len(out)-1].harmless = true // a valid table, if an odd one
	add("separators that grow", func(t *rawTable) []byte { return growingKeys(t, true) })
	for _, family := range filter.Families() {
		for _, n := range []int{1, 5, 16, 64, 4096} {
			for _, fill := range []byte{0xff, 0x7f, 0x01} {
				add(fmt.Sprintf("%s filter of %d bytes %02x", family, n, fill), func(t *rawTable) []byte {
					t.entries(rawEntry{key(1), nil})
					t.meta = []rawEntry{{"fullfilter." + family, t.block(bytes.Repeat([]byte{fill}, n), 0)}}
					return t.finish()
				})
				out[len(out)-1].harmless = true // by chance it may be a filter
			}
		}
	}
	add("properties with counts of 2^63", func(t *rawTable) []byte {
		t.entries(rawEntry{key(1), nil})
		var props []rawEntry
		for _, name := range []string{"rocksdb.data.size", "rocksdb.deleted.keys", "rocksdb.filter.size", "rocksdb.num.data.blocks", "rocksdb.num.entries", "sift.filter.keys", "sift.num.keys"} {
			props = append(props, rawEntry{name, uvarint(1 << 63)})
		}
		t.meta = []rawEntry{{"rocksdb.properties", t.block(rawBlock(props...), 0)}}
		return t.finish()
	})
	return out
}

// growingKeys makes 20,000 entries of a few bytes each, the size of whose keys is quadratic
// in their number.
func growingKeys(t *rawTable, index bool) []byte {
	var b []byte
	shared := 0
	value := []byte("v")
	if index {
		t.entries(rawEntry{internalKey("a", 1), nil})
		value = t.data[0].value
	}
	for range 20000 {
		b = binary.AppendUvarint(b, uint64(shared))
		b = binary.AppendUvarint(b, 9)
		b = binary.AppendUvarint(b, uint64(len(value)))
		b = append(append(append(b, 'z'), 1, 1, 0, 0, 0, 0, 0, 0), value...)
		shared += 9
	}
	b = append(b, 0, 0, 0, 0, 1, 0, 0, 0)
	if index {
		return t.footer(t.block(rawBlock(), 0), t.block(b, 0))
	}
	t.data = []rawEntry{{internalKey("zz", 1), t.block(b, 0)}}
	return t.finish()
}

// readTable reads a table in every way that the store does, and returns the errors.
func readTable(table []byte) error {
	r, err := sstable.NewReader(bytes.NewReader(table), int64(len(table)), &sstable.ReaderOptions{Path: "hostile"})
	if err != nil {
		return err
	}
	_, errs := r.FilterStatus()
	errs = errors.Join(errs, r.MetaErr())
	_, _, _, _, err = r.Get([]byte("key000001"), 9)
	errs = errors.Join(errs, err)
	it := r.NewIter(nil)
	for ok := it.First(); ok; ok = it.Next() {
		_ = it.Value()
	}
	errs = errors.Join(errs, it.Err(), it.Close())
	err = r.Verify(context.Background(), func(err error) { errs = errors.Join(errs, err) })
	return errors.Join(errs, err)
}

// TestHostile reads malicious files. Each must give an error, unless it is marked harmless, and
// reading it must allocate no more memory than its size plus 64 MiB.
func TestHostile(t *testing.T) {
	t.Run("table", func(t *testing.T) {
		for _, h := range hostileTables() {
			var err error
			if c := cost(func() { err = readTable(h.table) }); c > uint64(len(h.table))+allowance {
				t.Errorf("%s: a table of %d bytes took %d MiB", h.desc, len(h.table), c>>20)
			}
			if err == nil && !h.harmless {
				t.Errorf("%s: no error", h.desc)
			}
		}
	})
	t.Run("repair", func(t *testing.T) {
		for _, h := range hostileTables() {
			if h.desc == "keys that grow" {
				continue // when rewritten, each key begins a block and is stored whole
			}
			e := &Env{Options: hostileOptions()}
			mem, err := diskOf(damage.Files{"000005.ldb": h.table, "000007.log": rawLog(rawBatch(100, 1, 1, 1, 'k', 1, 'v'))})
			if err != nil {
				t.Fatal(err)
			}
			if c := cost(func() { _, err = sift.Repair(dbDir, e.options(mem)) }); c > uint64(len(h.table))+allowance {
				t.Errorf("%s: repairing a table of %d bytes took %d MiB", h.desc, len(h.table), c>>20)
			}
			if err != nil {
				t.Errorf("%s: Repair: %v", h.desc, err)
			}
		}
	})
	t.Run("database", func(t *testing.T) {
		for _, h := range hostileDatabases() {
			mem, err := diskOf(h.files)
			if err != nil {
				t.Fatal(err)
			}
			o := hostileOptions()
			testhook.Apply(&o, testhook.Settings{FS: mem})
			var db *sift.DB
			c := cost(func() {
				if db, err = sift.Open(dbDir, &o); err == nil {
					_, err = contentsOf(db)
					if err == nil {
						err = db.Put([]byte("k"), []byte("v"), sift.Sync)
					}
					err = errors.Join(err, db.Close())
				}
			})
			if c > uint64(h.files.Size())+allowance {
				t.Errorf("%s: files of %d bytes took %d MiB", h.desc, h.files.Size(), c>>20)
			}
			if err == nil && !h.harmless {
				t.Errorf("%s: no error", h.desc)
			}
		}
	})
}

func hostileOptions() sift.Options {
	o := tiny()
	o.MemtableBytes = 1 << 20
	return o
}

// hostileDatabases have malicious MANIFESTs, logs and CURRENTs.
func hostileDatabases() []struct {
	desc     string
	files    damage.Files
	harmless bool
} {
	var out []struct {
		desc     string
		files    damage.Files
		harmless bool
	}
	add := func(desc string, harmless bool, files damage.Files) {
		out = append(out, struct {
			desc     string
			files    damage.Files
			harmless bool
		}{desc, files, harmless})
	}
	log := rawLog(rawBatch(1, 0))
	manifest := func(desc string, harmless bool, edits ...[]byte) {
		add("MANIFEST: "+desc, harmless, damage.Files{"CURRENT": []byte("MANIFEST-000001\n"), "MANIFEST-000001": rawLog(edits...), "000002.log": log})
	}
	good := header(2, 3, 0)
	small, large := internalKey("a", 1), internalKey("z", 1)
	manifest("nothing wrong", true, good)
	manifest("sequence number 2^63", false, header(2, 3, 1<<63))
	manifest("sequence number 2^56-1", false, header(2, 3, 1<<56-1))
	manifest("next file number 2^64-1", false, header(2, math.MaxUint64, 0))
	manifest("next file number 2^63", false, header(2, 1<<63, 0))
	manifest("log number 2^64-1", false, header(math.MaxUint64, 3, 0))
	manifest("table of number 2^64-1", false, good, rawEdit(nil).table(1, math.MaxUint64, 100, small, large))
	manifest("table of 2^63 bytes", false, good, rawEdit(nil).table(1, 9, 1<<63, small, large))
	manifest("level 2^63", false, good, rawEdit(nil).table(1<<63, 9, 100, small, large))
	manifest("key of 2^63 bytes", false, good, binary.AppendUvarint(binary.AppendUvarint(rawEdit(nil).num(tagAdded, 1), 9), 1<<63))
	manifest("pointer of 2^63 bytes", false, good, binary.AppendUvarint(rawEdit(nil).num(tagPointer, 1), 1<<63))
	manifest("number of eleven bytes", false, append([]byte(good), append([]byte{tagLogNumber}, elevenBytes...)...))
	manifest("comparator of 2^63 bytes", false, binary.AppendUvarint([]byte{tagComparator}, 1<<63))
	manifest("deletes a missing table", false, good, binary.AppendUvarint(rawEdit(nil).num(tagDeleted, 1), 9))
	many := make([][]byte, 100000)
	for i := range many {
		many[i] = rawEdit(nil).table(0, uint64(i+10), 100, small, large)
	}
	manifest("100,000 missing tables", false, append([][]byte{good}, many...)...)
	one := rawEdit(nil)
	for i := range 100000 {
		one = one.table(1, 9, uint64(i), small, large)
	}
	manifest("one table 100,000 times", false, good, one)
	churn := make([][]byte, 100000)
	for i := range churn {
		churn[i] = rawEdit(nil).num(tagNextFile, 7)
	}
	manifest("100,000 edits that change nothing", true, append([][]byte{good}, churn...)...)

	logs := func(desc string, harmless bool, log []byte) {
		add("log: "+desc, harmless, damage.Files{"CURRENT": []byte("MANIFEST-000001\n"), "MANIFEST-000001": rawLog(good), "000002.log": log})
	}
	mark := rawBatch(1, 0)
	op := []byte{1, 1, 'k', 1, 'v'}
	logs("batch of 2^32-1 operations", false, rawLog(mark, rawBatch(1, math.MaxUint32, op...)))
	logs("key of 2^63 bytes", false, rawLog(mark, rawBatch(1, 1, append([]byte{1}, uvarint(1<<63)...)...)))
	logs("value of 2^63 bytes", false, rawLog(mark, rawBatch(1, 1, append([]byte{1, 1, 'k'}, uvarint(1<<63)...)...)))
	logs("key of eleven bytes' length", false, rawLog(mark, rawBatch(1, 1, append([]byte{1}, elevenBytes...)...)))
	logs("sequence number 2^64-1", false, rawLog(mark, rawBatch(math.MaxUint64, 1, op...)))
	logs("sequence number 2^56-1", false, rawLog(rawBatch(1<<56-1, 1, op...)))
	logs("record of five bytes", false, rawLog(mark, []byte{1, 2, 3, 4, 5}))
	logs("record of five bytes, of another engine", false, rawLog(rawBatch(1, 1, op...), []byte{1, 2, 3, 4, 5}))
	current := []byte("MANIFEST-000001\n")
	two := func(desc string, first, second []byte) {
		files := damage.Files{"CURRENT": current, "MANIFEST-000001": rawLog(header(2, 4, 0)), "000003.log": second}
		if first != nil {
			files["000002.log"] = first
		}
		add("two logs: "+desc, false, files)
	}
	// A mark proves that the log before it was whole and synced.
	half := rawLog(mark, rawBatch(1, 1, op...), rawBatch(2, 1, bytes.Repeat([]byte{7}, 300)...))
	half = half[:len(half)-200]
	two("the first is torn, the second continues", half, rawLog(rawBatch(3, 0), rawBatch(3, 1, op...), rawBatch(4, 0)))
	two("the first is torn, the second is another engine's", half, rawLog(rawBatch(3, 1, op...)))
	two("the first is torn and the second leaves a gap", half, rawLog(rawBatch(30, 0), rawBatch(30, 0), rawBatch(30, 1, op...)))
	two("the first is missing", nil, rawLog(rawBatch(5, 0), rawBatch(5, 1, op...)))
	two("the first is missing, the second is another engine's", nil, rawLog(rawBatch(5, 1, op...)))
	// Without properties the range of a table's keys is read from its blocks.
	var bare rawTable
	bare.entries(rawEntry{internalKey("a", 1), []byte("v")}, rawEntry{internalKey("b", 1), []byte("v")})
	bare.entries(rawEntry{internalKey("c", 1), []byte("v")})
	whole := bare.finish()
	for at, what := range map[int]string{3: "first", 45: "last"} {
		b := bytes.Clone(whole)
		b[at] ^= 0x40
		add("the "+what+" block of a table without properties is damaged", false, damage.Files{
			"CURRENT": current, "MANIFEST-000001": rawLog(header(2, 10, 1), rawEdit(nil).table(1, 9, uint64(len(b)), internalKey("a", 1), internalKey("c", 1))),
			"000009.ldb": b, "000002.log": log,
		})
	}
	logs("zeros", true, make([]byte, 4<<20))
	logs("headers everywhere", true, bytes.Repeat([]byte{1, 2, 3, 4, 0xf8, 0x7f, 1}, 300000))
	// 100,000 operations of three bytes each: the memory that an operation takes in
	// a memtable must be in proportion to its size in the log.
	dense := make([]byte, 0, 300000)
	for range 100000 {
		dense = append(dense, 0, 1, 'k')
	}
	logs("100,000 deletions of one key in 300 KB", true, rawLog(mark, rawBatch(1, 100000, dense...)))
	first := bytes.Repeat([]byte{7}, 3*record32k)
	logs("a record without an end", true, rawLog(mark, first)[:2*record32k+100])
	add("CURRENT of 16 MiB", false, damage.Files{"CURRENT": bytes.Repeat([]byte("MANIFEST-000001\n"), 1<<20), "MANIFEST-000001": rawLog(good), "000002.log": log})
	add("CURRENT that names a directory above", false, damage.Files{"CURRENT": []byte("../MANIFEST-000001\n"), "MANIFEST-000001": rawLog(good), "000002.log": log})
	add("file numbers at the end of the range", true, damage.Files{
		"CURRENT": []byte("MANIFEST-000001\n"), "MANIFEST-000001": rawLog(good), "000002.log": log, "18446744073709551615.ldb": {1}, "9223372036854775807.log": {},
	})
	return out
}

const record32k = 32 << 10
