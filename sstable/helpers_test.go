package sstable

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
)

// kv is an entry of a table under test.
type kv struct {
	key   string
	seq   uint64
	kind  Kind
	value string
}

func (e kv) ikey() []byte { return base.AppendInternalKey(nil, []byte(e.key), e.seq, e.kind) }

// sortEntries sorts entries into table order and drops duplicates.
func sortEntries(list []kv) []kv {
	slices.SortFunc(list, func(a, b kv) int { return base.CompareInternal(a.ikey(), b.ikey()) })
	return slices.CompactFunc(list, func(a, b kv) bool { return bytes.Equal(a.ikey(), b.ikey()) })
}

func buildTable(t testing.TB, list []kv, o *WriterOptions) ([]byte, *TableInfo) {
	t.Helper()
	var buf bytes.Buffer
	w := NewWriter(&buf, o)
	for _, e := range list {
		if err := w.Add([]byte(e.key), e.seq, e.kind, []byte(e.value)); err != nil {
			t.Fatalf("Add(%q, %d): %v", e.key, e.seq, err)
		}
	}
	info, err := w.Finish()
	if err != nil {
		t.Fatalf("Finish: %v", err)
	}
	if info.Size != int64(buf.Len()) {
		t.Fatalf("Size is %d, but %d bytes were written", info.Size, buf.Len())
	}
	return buf.Bytes(), info
}

func openTable(t testing.TB, data []byte, o *ReaderOptions) *Reader {
	t.Helper()
	if o == nil {
		o = &ReaderOptions{}
	}
	if o.Path == "" {
		o.Path = "test.ldb"
	}
	r, err := NewReader(bytes.NewReader(data), int64(len(data)), o)
	if err != nil {
		t.Fatalf("NewReader: %v", err)
	}
	return r
}

// numbered returns n entries with distinct keys, sequence numbers and values.
func numbered(n int) []kv {
	list := make([]kv, n)
	for i := range list {
		list[i] = kv{fmt.Sprintf("key%08d", 2*i), uint64(i + 1), KindSet, fmt.Sprintf("value-%d-%d", i, i*i)}
		if i%17 == 5 {
			list[i].kind, list[i].value = KindDelete, ""
		}
	}
	return list
}

// randomEntries returns entries with keys that share prefixes, are prefixes of
// each other, look like trailers, and come in several versions.
func randomEntries(rng *rand.Rand, n int) []kv {
	alphabet := []string{"a", "b", "\x00", "\xff", "\x01", "ab", "\x01\x01\x00\x00\x00\x00\x00\x00", "long-common-prefix-"}
	list := make([]kv, 0, n)
	for len(list) < n {
		var key string
		for range rng.IntN(7) {
			key += alphabet[rng.IntN(len(alphabet))]
		}
		for range 1 + rng.IntN(3) {
			e := kv{key, uint64(rng.IntN(5 * n)), Kind(rng.IntN(2)), ""}
			if e.kind == KindSet {
				e.value = string(bytes.Repeat([]byte{byte(rng.IntN(256))}, rng.IntN(40)))
			}
			list = append(list, e)
		}
	}
	list = sortEntries(list)
	// A sequence number is used once per key.
	return slices.CompactFunc(list, func(a, b kv) bool { return a.key == b.key && a.seq == b.seq })
}

// modelGet does what Reader.Get does, in a sorted slice.
func modelGet(list []kv, key string, seq uint64) (kv, bool) {
	for _, e := range list {
		if e.key == key && e.seq <= seq {
			return e, true
		}
	}
	return kv{}, false
}

// checkGet compares one Get with the model.
func checkGet(r *Reader, list []kv, key string, seq uint64) error {
	want, wantFound := modelGet(list, key, seq)
	v, kind, entrySeq, found, err := r.Get([]byte(key), seq)
	if err != nil {
		return err
	}
	if found != wantFound || found && (string(v) != want.value || kind != want.kind || entrySeq != want.seq) {
		return &wrongAnswer{fmt.Sprintf("Get(%q, %d) = %q, %d, %d, %v; want %+v, %v", key, seq, v, kind, entrySeq, found, want, wantFound)}
	}
	return nil
}

// wrongAnswer is an error for an answer that differs from the model.
type wrongAnswer struct{ what string }

func (w *wrongAnswer) Error() string { return w.what }

// checkScan compares forward and backward scans with the model.
func checkScan(r *Reader, list []kv, o *IterOptions) error {
	it := r.NewIter(o)
	defer it.Close()
	i := 0
	for ok := it.First(); ok; ok = it.Next() {
		if i == len(list) || !bytes.Equal(it.Key(), list[i].ikey()) || string(it.Value()) != list[i].value {
			return &wrongAnswer{fmt.Sprintf("entry %d is %q = %q", i, it.Key(), it.Value())}
		}
		i++
	}
	if err := it.Err(); err != nil {
		return err
	}
	if i != len(list) {
		return &wrongAnswer{fmt.Sprintf("%d entries of %d", i, len(list))}
	}
	for ok := it.Last(); ok; ok = it.Prev() {
		i--
		if i < 0 || !bytes.Equal(it.Key(), list[i].ikey()) || string(it.Value()) != list[i].value {
			return &wrongAnswer{fmt.Sprintf("backward, entry %d is %q = %q", i, it.Key(), it.Value())}
		}
	}
	if err := it.Err(); err != nil {
		return err
	}
	if i != 0 {
		return &wrongAnswer{fmt.Sprintf("backward, %d entries were missing", i)}
	}
	return nil
}

// hashList is a policy whose filters are lists of key hashes, eight bytes each, and a last unit
// that marks the list as complete.
type hashList struct {
	unitKeys int // keys per unit; 0: all

	probes   *atomic.Int64 // number of probes; may be nil
	excluded *atomic.Int64 // number of keys excluded; may be nil
}

var errHashList = errors.New("hash list: bad length")

func (p hashList) Name() string             { return "hashes" }
func (p hashList) Family() string           { return "test.hashes" }
func (p hashList) NewWriter() filter.Writer { return &hashListWriter{p: p} }
func (p hashList) Open(units [][]byte) (filter.Reader, error) {
	r := &hashListReader{p: p, partial: true, set: map[uint64]bool{}}
	for _, u := range units {
		r.size += len(u)
		if len(u) == 1 && u[0] == 0xee {
			r.partial = false // the last unit
			continue
		}
		if len(u)%8 != 0 {
			return nil, errHashList
		}
		for ; len(u) > 0; u = u[8:] {
			r.set[binary.LittleEndian.Uint64(u)] = true
		}
	}
	return r, nil
}

// testHash is independent of package filter's hash.
func testHash(k filter.Key) uint64 {
	h := fnv.New64a()
	h.Write(k.Bytes)
	return h.Sum64()
}

type hashListWriter struct {
	p      hashList
	hashes []uint64
}

func (w *hashListWriter) Add(k filter.Key) { w.hashes = append(w.hashes, testHash(k)) }
func (w *hashListWriter) NumKeys() int     { return len(w.hashes) }
func (w *hashListWriter) Finish() ([][]byte, error) {
	var units [][]byte
	var one []byte
	for _, h := range w.hashes {
		one = binary.LittleEndian.AppendUint64(one, h)
		if len(one) == 8*w.p.unitKeys {
			units = append(units, one)
			one = nil
		}
	}
	w.hashes = nil
	if len(one) > 0 {
		units = append(units, one)
	}
	return append(units, []byte{0xee}), nil
}

// hashListReader excludes keys only if it has all units.
type hashListReader struct {
	p       hashList
	partial bool
	size    int
	set     map[uint64]bool
}

func (r *hashListReader) MayContain(k filter.Key) bool {
	if r.p.probes != nil {
		r.p.probes.Add(1)
	}
	positive := r.partial || r.set[testHash(k)]
	if !positive && r.p.excluded != nil {
		r.p.excluded.Add(1)
	}
	return positive
}

func (r *hashListReader) MayContainMany(keys []filter.Key, positive []bool) {
	for i, k := range keys {
		positive[i] = r.MayContain(k)
	}
}
func (r *hashListReader) FPR() float64   { return 0 }
func (r *hashListReader) SizeBytes() int { return r.size }

// countingReader counts reads.
type countingReader struct {
	io.ReaderAt
	n atomic.Int64
}

func (c *countingReader) ReadAt(p []byte, off int64) (int, error) {
	c.n.Add(1)
	return c.ReaderAt.ReadAt(p, off)
}
