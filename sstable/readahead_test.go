package sstable

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sort"
	"strings"
	"sync/atomic"
	"testing"
)

// large returns n entries of 1 KiB, and a table of them whose windows have mostOfSmall bytes.
func large(t *testing.T, n int) (list []kv, data []byte) {
	for i := range n {
		list = append(list, kv{fmt.Sprintf("%08d", 2*i), 1, KindSet, strings.Repeat(string(rune('a'+i%26)), 1000)})
	}
	data, _ = buildTable(t, list, &WriterOptions{DisableCompression: true})
	return list, data
}

// badBytes fails reads of a range of the file.
type badBytes struct {
	io.ReaderAt
	from, to int64
}

func (r *badBytes) ReadAt(p []byte, off int64) (int, error) {
	if off < r.to && off+int64(len(p)) > r.from {
		return 0, errDisk
	}
	return r.ReaderAt.ReadAt(p, off)
}

// A scan returns all entries before a block that cannot be read, and then the error, wherever the
// block lies in the window that is read while the one before it is decoded.
func TestComingWindowFails(t *testing.T) {
	list, data := large(t, 500)
	good := openTable(t, data, nil)
	x, err := good.loadIndex()
	if err != nil {
		t.Fatal(err)
	}
	for i := range x.numBlocks() {
		h := x.handle(i)
		for _, o := range []*IterOptions{nil, {Readahead: true}} {
			r := openTable(t, data, nil)
			r.r = &badBytes{r.r, int64(h.Offset) + 10, int64(h.Offset) + 11}
			it := r.NewIter(o)
			n := 0
			for ok := it.First(); ok; ok = it.Next() {
				if string(it.Key()) != string(list[n].ikey()) || string(it.Value()) != list[n].value {
					t.Fatalf("block %d is bad: entry %d is %q", i, n, it.Key())
				}
				n++
			}
			want := 0
			for first := it.x.handle(i).Offset; want < len(list) && handleOf(t, it.x, list[want]).Offset < first; want++ {
			}
			if err := it.Err(); !errors.Is(err, errDisk) || !strings.Contains(err.Error(), fmt.Sprintf("offset %d", h.Offset)) || n != want {
				t.Errorf("block %d at %d is bad, %+v: %d entries, want %d: %v", i, h.Offset, o, n, want, err)
			}
			it.Close()
		}
	}
}

func handleOf(t *testing.T, x *index, e kv) Handle {
	i := x.find([]byte(e.key), e.seq<<8|uint64(e.kind))
	if i == x.numBlocks() {
		t.Fatalf("%q is after the last block", e.key)
	}
	return x.handle(i)
}

// An iterator that is moved elsewhere while its next window is read returns what is there.
func TestMovesWhileReading(t *testing.T) {
	list, data := large(t, 600)
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		it := openTable(t, data, nil).NewIter(&IterOptions{Readahead: seed%2 == 0})
		for range 50 {
			key := fmt.Sprintf("%08d", rng.IntN(2*len(list)+2))
			at := sort.Search(len(list), func(i int) bool { return list[i].key >= key })
			ok := it.SeekGE(kv{key: key, seq: 2}.ikey())
			for range rng.IntN(200) {
				if ok != (at < len(list)) || ok && (string(it.Key()) != string(list[at].ikey()) || string(it.Value()) != list[at].value) {
					t.Fatalf("seed %d: at entry %d: %v, %q, %v", seed, at, ok, it.Key(), it.Err())
				}
				ok = it.Next()
				at = min(at+1, len(list))
			}
			if it.Err() != nil {
				t.Fatal(it.Err())
			}
		}
		it.Close()
	}
}

// gatedReads lets each read after the first wait at the gate.
type gatedReads struct {
	io.ReaderAt
	reads, running atomic.Int32
	arrived, gate  chan struct{}
}

func (r *gatedReads) ReadAt(p []byte, off int64) (int, error) {
	r.running.Add(1)
	defer r.running.Add(-1)
	if r.reads.Add(1) > 1 {
		r.arrived <- struct{}{}
		<-r.gate
	}
	return r.ReaderAt.ReadAt(p, off)
}

// Close waits for the read of the next window: the file may be closed afterwards.
func TestCloseWaitsForReads(t *testing.T) {
	_, data := large(t, 500)
	r := openTable(t, data, nil)
	reads := &gatedReads{ReaderAt: r.r, arrived: make(chan struct{}), gate: make(chan struct{})}
	if _, err := r.loadIndex(); err != nil {
		t.Fatal(err)
	}
	r.r = reads
	it := r.NewIter(&IterOptions{Readahead: true})
	if !it.First() {
		t.Fatal(it.Err())
	}
	<-reads.arrived
	go close(reads.gate)
	it.Close()
	if n := reads.running.Load(); n != 0 {
		t.Errorf("%d reads after Close", n)
	}
}
