package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/sstable"
)

// tableFile writes a table with two data blocks and returns its path.
func tableFile(t *testing.T, policy filter.Policy) string {
	t.Helper()
	var b bytes.Buffer
	w := sstable.NewWriter(&b, &sstable.WriterOptions{BlockBytes: 64, DisableCompression: true, Filter: policy, FileNumber: 5})
	add := func(key string, seq uint64, kind sstable.Kind, value string) {
		if err := w.Add([]byte(key), seq, kind, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	add("", 9, sstable.KindSet, "empty")
	add("a\tb", 8, sstable.KindDelete, "")
	add("a\tb", 7, sstable.KindSet, "gone")
	for i := range 3 {
		add(fmt.Sprintf("key%d", i), 10, sstable.KindSet, strings.Repeat("v", 20))
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "000005.ldb")
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDumpTable(t *testing.T) {
	path := tableFile(t, filter.Bloom(10))
	golden(t, "table.txt", strings.ReplaceAll(mustSift(t, "", "dump", path), path, "000005.ldb"))
	golden(t, "table-entries.txt", strings.ReplaceAll(mustSift(t, "", "dump", "--entries", "--hex", path), path, "000005.ldb"))

	// With an unknown name, the magic number decides.
	renamed := filepath.Join(t.TempDir(), "table")
	if err := os.Rename(tableFile(t, filter.None()), renamed); err != nil {
		t.Fatal(err)
	}
	golden(t, "table-nofilter.txt", strings.ReplaceAll(mustSift(t, "", "dump", renamed), renamed, "table"))
}

// TestDumpTableDamaged: whatever byte is damaged, dump fails, or prints the same as for the intact
// table, as when the byte is unused padding.
func TestDumpTableDamaged(t *testing.T) {
	path := tableFile(t, filter.Bloom(10))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dump := func(table []byte) (string, error) {
		var out bytes.Buffer
		e := &env{ctx: context.Background(), out: bufio.NewWriter(&out)}
		d := dumper{env: e, entries: true, path: path, file: bytes.NewReader(table), size: int64(len(table))}
		err := d.table()
		e.out.Flush()
		return out.String(), err
	}
	want, err := dump(whole)
	if err != nil {
		t.Fatal(err)
	}
	reported := 0
	for i := range whole {
		bad := bytes.Clone(whole)
		bad[i] ^= 0x04
		got, err := dump(bad)
		switch {
		case err != nil && strings.Contains(err.Error(), path):
			reported++
		case err == nil && got == want:
		default:
			t.Errorf("byte %d: error %v, prints\n%s", i, err, got)
		}
	}
	if reported < len(whole)*9/10 {
		t.Errorf("%d of %d damaged bytes reported", reported, len(whole))
	}

	bad := bytes.Clone(whole)
	bad[20] ^= 1
	if err := os.WriteFile(path, bad, 0o644); err != nil {
		t.Fatal(err)
	}
	r := runSift(t, "", "dump", "--entries", path)
	golden(t, "table-damaged.txt", strings.ReplaceAll(r.out, path, "000005.ldb"))
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	if r := runSift(t, "", "dump", path); r.status != statusFailed || !strings.Contains(r.err, path) {
		t.Errorf("truncated: status %d, stderr %q", r.status, r.err)
	}
}

func TestDumpUnsupportedTable(t *testing.T) {
	const name = "rocksdb-7.8.3_fv5_crc_bloom.sst"
	dir := copied(t, "tables")
	r := runSift(t, "", "dump", filepath.Join(dir, name))
	if r.status != statusFailed || !strings.Contains(r.err, "unsupported") || !strings.Contains(r.err, name) {
		t.Errorf("status %d, stderr %q", r.status, r.err)
	}
}

// TestDumpUnknownKind checks that an entry that sift cannot read, in a block with a valid checksum,
// is reported by dump and by browse, and that the entries of the next block do not take its place.
func TestDumpUnknownKind(t *testing.T) {
	path := tableFile(t, filter.None())
	table, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var h sstable.Handle
	if err := withTable(path, func(r *sstable.Reader) error {
		b, err := r.DataBlock(0)
		h = b.Handle
		return err
	}); err != nil {
		t.Fatal(err)
	}
	end := h.Offset + h.Length + 1 // with the block's type
	table[h.Offset+3] = 2          // after the three lengths: the kind, the first byte of the trailer of the empty key
	binary.LittleEndian.PutUint32(table[end:], base.Checksum(table[h.Offset:end]))
	if err := os.WriteFile(path, table, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"dump", "--entries", path}, {"dump", "--entries", "--json", path}} {
		if r := runSift(t, "", args...); r.status != statusFailed || !strings.Contains(r.out, "kind 2") {
			t.Errorf("%q: status %d, prints\n%s", args, r.status, r.out)
		}
	}
	var p blockPage
	err = withTable(path, func(r *sstable.Reader) (err error) {
		b := &browser{}
		if p.blockRow, err = b.blockRow(r, 0); err != nil {
			return err
		}
		return b.entries(&p, r, 0)
	})
	if err != nil || !strings.Contains(p.Error, "kind 2") || len(p.Entries) > 0 {
		t.Errorf("browse: %v, %q, shows %d entries of another block", err, p.Error, len(p.Entries))
	}
}
