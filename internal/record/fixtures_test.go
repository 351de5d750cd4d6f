package record

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/siftdb/sift/internal/fixtures"
)

func TestFixturesRewriteByteEqual(t *testing.T) {
	dir := fixtures.Dir(t)
	n := 0
	for _, pattern := range []string{"*.log", "MANIFEST-*"} {
		paths, err := filepath.Glob(filepath.Join(dir, "*-*", "*", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			items, tail, _ := readAll(t, data)
			if tail.Kind != Clean {
				t.Errorf("%s: tail %+v", path, tail)
				continue
			}
			payloads := make([][]byte, len(items))
			for i := range items {
				payloads[i] = items[i].payload
			}
			again, _ := writeAll(t, payloads...)
			if !bytes.Equal(again, data) {
				i := 0
				for i < min(len(again), len(data)) && again[i] == data[i] {
					i++
				}
				t.Errorf("%s: rewritten, it differs from offset %d on (%d and %d bytes)", path, i, len(data), len(again))
			}
			n++
		}
	}
	if n < 20 {
		t.Fatalf("only %d logs found", n)
	}
}

func TestFixturesCorrupt(t *testing.T) {
	dir := fixtures.Dir(t)
	// The undamaged log: 1000 records of 73 bytes or so.
	whole, err := os.ReadFile(filepath.Join(dir, "leveldb-cpp-1.23", "wal", "000003.log"))
	if err != nil {
		t.Fatal(err)
	}
	all, _, _ := readAll(t, whole)
	if len(all) != 1000 {
		t.Fatalf("%d records", len(all))
	}
	recordAt := func(off int64) int { // the record that holds the byte
		i := 0
		for i+1 < len(all) && all[i+1].offset <= off {
			i++
		}
		return i
	}
	last := all[999].offset
	for _, tc := range []struct {
		name     string
		records  int
		kind     TailKind
		offset   int64
		salvaged []item
	}{
		{"cpp-log-empty", 0, Clean, 0, nil},
		{"cpp-log-garbage-tail", 1000, Torn, 73014, nil},
		{"cpp-log-last-crc", 999, Torn, last, nil},
		{"cpp-log-last-zero", 999, Zeros, last, nil},
		{"cpp-log-mid-crc", recordAt(40000), Damaged, all[recordAt(40000)].offset, all[recordAt(40000)+1:]},
		{"cpp-log-mid-zero", recordAt(33000), Damaged, all[recordAt(33000)].offset, all[recordAt(33999)+1:]},
		{"cpp-log-trunc-header", 999, Torn, last, nil},
		{"cpp-log-trunc-payload", 999, Torn, last, nil},
		{"cpp-log-zero-tail", 1000, Zeros, 73014, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(dir, "corrupt", tc.name, "000003.log"))
			if err != nil {
				t.Fatal(err)
			}
			items, tail, salvaged := readAll(t, data)
			sameItems(t, "records", items, all[:tc.records])
			if tail.Kind != tc.kind || tail.Offset != tc.offset {
				t.Fatalf("tail %+v, want %v at %d", tail, tc.kind, tc.offset)
			}
			sameItems(t, "salvaged", salvaged, tc.salvaged)
		})
	}
	t.Run("cpp-log-mid-block-lost", func(t *testing.T) {
		// The lost block held the end of one record and the start of another. The start of the one
		// and the end of the other form a record: the framing cannot detect that, but the caller
		// finds an inconsistent batch.
		data, err := os.ReadFile(filepath.Join(dir, "corrupt", "cpp-log-mid-block-lost", "000003.log"))
		if err != nil {
			t.Fatal(err)
		}
		items, tail, _ := readAll(t, data)
		cut, glued := recordAt(BlockSize-1), recordAt(2*BlockSize-1)
		if tail.Kind != Clean || len(items) != cut+1+len(all)-glued-1 {
			t.Fatalf("%d records, tail %+v", len(items), tail)
		}
		sameItems(t, "before", items[:cut], all[:cut])
		for i, it := range items[cut+1:] {
			if want := all[glued+1+i]; !bytes.Equal(it.payload, want.payload) || it.offset != want.offset-BlockSize {
				t.Fatalf("record %d after the lost block differs", i)
			}
		}
	})
	for _, tc := range []struct {
		name string
		kind TailKind
	}{{"cpp-manifest-flip", Damaged}, {"cpp-manifest-trunc", Torn}} {
		data, err := os.ReadFile(filepath.Join(dir, "corrupt", tc.name, "MANIFEST-000010"))
		if err != nil {
			t.Fatal(err)
		}
		if _, tail, _ := readAll(t, data); tail.Kind != tc.kind {
			t.Errorf("%s: tail %+v", tc.name, tail)
		}
	}
}
