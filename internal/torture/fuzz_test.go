package torture

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/torture/damage"
)

// The fuzz targets below compute correct checksums, so that the fuzzer's bytes reach the decoders.
// Nothing may panic or hang; a result may be an error; memory stays within the files' size plus 64
// MiB. The packages of the decoders fuzz raw bytes.

// FuzzTable reads a table with blocks from the fuzzer. where says which of the blocks are the
// fuzzer's (bit 0: data, 1: properties, 2: filter, 3: metaindex, 4: index) and which are compressed
// (bits 5 to 9).
func FuzzTable(f *testing.F) {
	key := internalKey("key000001", 1)
	f.Add([]byte{}, []byte{}, []byte{}, []byte{}, []byte{}, uint16(0))
	f.Add(rawBlock(rawEntry{key, []byte("v")}), rawBlock(rawEntry{"rocksdb.num.entries", uvarint(1)}), make([]byte, 69),
		rawBlock(rawEntry{"rocksdb.properties", handle(0, 10)}), rawBlock(rawEntry{key, handle(0, 10)}), uint16(31))
	for i, policy := range families() {
		if filter.IsNone(policy) {
			continue
		}
		w := policy.NewWriter()
		for j := range 20 {
			w.Add(filter.NewKey([]byte{byte(j), byte(i)}))
		}
		units, err := w.Finish()
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte{}, []byte{}, units[0], []byte{}, []byte{}, uint16(4))
	}
	f.Fuzz(func(t *testing.T, data, props, unit, metaindex, index []byte, where uint16) {
		var table rawTable
		put := func(bit int, own, other []byte) []byte {
			b := other
			if where>>bit&1 != 0 {
				b = own
			}
			return table.block(b, byte(where>>(bit+5)&1))
		}
		h := put(0, data, rawBlock(rawEntry{key, []byte("v")}))
		p := put(1, props, rawBlock())
		u := put(2, unit, nil)
		var meta []rawEntry
		for _, family := range filter.Families() {
			meta = append(meta, rawEntry{"fullfilter." + family, u})
		}
		m := put(3, metaindex, rawBlock(append(meta, rawEntry{"rocksdb.properties", p})...))
		i := put(4, index, rawBlock(rawEntry{key, h}))
		b := table.footer(m, i)
		if c := cost(func() { _ = readTable(b) }); c > uint64(len(b))+allowance {
			t.Errorf("%d bytes took %d MiB", len(b), c>>20)
		}
	})
}

// FuzzLog recovers a log of two records, with or without sift's header before them.
func FuzzLog(f *testing.F) {
	op := []byte{1, 1, 'k', 1, 'v'}
	f.Add(rawBatch(1, 1, op...), rawBatch(2, 2, append(op, op...)...), true)
	f.Add(rawBatch(1, 0), rawBatch(1, 1, 0, 1, 'k'), false)
	for _, h := range hostileDatabases() {
		if b := h.files["000002.log"]; len(b) > 7 && len(b) < 4096 {
			f.Add(b[7:], []byte{}, true)
		}
	}
	f.Fuzz(func(t *testing.T, a, b []byte, mark bool) {
		records := [][]byte{a, b}
		if mark {
			records = [][]byte{rawBatch(1, 0), a, b}
		}
		fuzzDatabase(t, damage.Files{
			"CURRENT": []byte("MANIFEST-000001\n"), "MANIFEST-000001": rawLog(header(2, 3, 0)), "000002.log": rawLog(records...),
		})
	})
}

// FuzzManifest loads a MANIFEST of two edits, with or without a good one before
// them, in a database that has tables and a log.
func FuzzManifest(f *testing.F) {
	s, err := CleanSample("clean", filter.Bloom(10))
	if err != nil {
		f.Fatal(err)
	}
	small, large := internalKey("a", 1), internalKey("z", 1)
	f.Add([]byte(header(2, 30, 0)), []byte(rawEdit(nil).table(1, 9, 100, small, large)), true)
	f.Add([]byte(header(2, 30, 0)), []byte(rawEdit(nil).num(tagPointer, 2).str(large)), false)
	for _, h := range hostileDatabases() {
		if b := h.files["MANIFEST-000001"]; len(b) > 7 && len(b) < 4096 {
			f.Add(b[7:], []byte{}, true)
		}
	}
	f.Fuzz(func(t *testing.T, a, b []byte, good bool) {
		edits := [][]byte{a, b}
		if good {
			edits = [][]byte{header(2, 30, 0), a, b}
		}
		files := maps.Clone(s.Files)
		files["CURRENT"], files["MANIFEST-000001"], files["000002.log"] = []byte("MANIFEST-000001\n"), rawLog(edits...), rawLog(rawBatch(1, 0))
		fuzzDatabase(t, files)
	})
}

// FuzzCurrent opens a database with the fuzzer's CURRENT.
func FuzzCurrent(f *testing.F) {
	f.Add([]byte("MANIFEST-000001\n"))
	f.Add([]byte("../MANIFEST-18446744073709551616\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzDatabase(t, damage.Files{"CURRENT": b, "MANIFEST-000001": rawLog(header(2, 3, 0)), "000002.log": rawLog(rawBatch(1, 0))})
	})
}

// fuzzDatabase opens a database, reads all of it, and repairs it.
func fuzzDatabase(t *testing.T, files damage.Files) {
	s := &Sample{Env: &Env{Options: hostileOptions()}}
	c := cost(func() { SiftEngine{s, false}.Read(files, []string{"k", "key001"}) })
	if c > uint64(files.Size())+allowance {
		t.Errorf("%d bytes took %d MiB", files.Size(), c>>20)
	}
	if err := repairFiles(s.Env, files); err != nil {
		t.Error(err)
	}
}

// repairFiles repairs a database, which must open afterwards, unless its MANIFEST appears to be
// that of another program.
func repairFiles(e *Env, files damage.Files) error {
	mem, err := diskOf(files)
	if err != nil {
		return err
	}
	if _, err := sift.Repair(dbDir, e.options(mem)); errors.Is(err, sift.ErrUnsupported) {
		return nil
	} else if err != nil {
		return fmt.Errorf("Repair: %w", err)
	}
	e.Dir = dbDir
	if _, err := e.readImage(mem); err != nil {
		return fmt.Errorf("after Repair: %w", err)
	}
	return nil
}
