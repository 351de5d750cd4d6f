package sift

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/sstable"
)

// orderedFile records whether it is asked to prefetch before it is read.
type orderedFile struct {
	io.ReaderAt
	mu         sync.Mutex
	prefetched int // ranges asked for before the first read
	reads      int
}

func (f *orderedFile) Prefetch(_, _ int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reads == 0 {
		f.prefetched++
	}
	return true
}

func (f *orderedFile) ReadAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	f.reads++
	f.mu.Unlock()
	return f.ReaderAt.ReadAt(p, off)
}

// TestManyPrefetch: GetMany asks for all blocks of a level before it reads the first.
func TestManyPrefetch(t *testing.T) {
	const n = 64
	var data bytes.Buffer
	w := sstable.NewWriter(&data, &sstable.WriterOptions{BlockBytes: 1}) // a block per key
	var keys [][]byte
	for i := range n {
		keys = append(keys, fmt.Appendf(nil, "%04d", i))
		if err := w.Add(keys[i], 1, base.KindSet, keys[i]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	f := &orderedFile{ReaderAt: bytes.NewReader(data.Bytes())}
	r, err := sstable.NewReader(f, int64(data.Len()), nil)
	if err != nil {
		t.Fatal(err)
	}
	f.reads = 0
	tbl := new(table)
	tbl.reader.Store(r)
	m := &many{values: make([][]byte, n)}
	m.add(nil, keys, base.MaxSequence, new(readStripe), 0)
	for i := range keys {
		m.jobs = append(m.jobs, manyJob{i, tbl, nil})
	}
	if err := m.read(1); err != nil {
		t.Fatal(err)
	}
	for i, v := range m.values {
		if !bytes.Equal(v, keys[i]) {
			t.Errorf("value of %s: %q", keys[i], v)
		}
	}
	if f.prefetched != n || f.reads != n {
		t.Errorf("%d blocks asked for before the first read, %d read, want %d", f.prefetched, f.reads, n)
	}
}
