package compact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/internal/vfs/vfstest"
	"github.com/siftdb/sift/memtable"
	"github.com/siftdb/sift/sstable"
)

// backwards gives entries in an order that no table can have.
type backwards struct {
	base.Iterator
	keys [][]byte
	at   int
}

func (b *backwards) First() bool   { b.at = 0; return true }
func (b *backwards) Next() bool    { b.at++; return b.Valid() }
func (b *backwards) Valid() bool   { return b.at < len(b.keys) }
func (b *backwards) Key() []byte   { return b.keys[b.at] }
func (b *backwards) Value() []byte { return nil }
func (b *backwards) Err() error    { return nil }

func jobTo(fs vfs.FS, input base.Iterator) *Job {
	num := uint64(0)
	return &Job{Input: input, Boundaries: []uint64{base.MaxSequence}, Writer: &sstable.WriterOptions{},
		Create: func() (uint64, vfs.File, error) {
			num++
			f, err := fs.Create(fmt.Sprintf("%06d.ldb", num))
			return num, f, err
		}}
}

// Entries in a wrong order make no table.
func TestRunRefusesDisorder(t *testing.T) {
	key := func(s string, seq uint64) []byte { return base.AppendInternalKey(nil, []byte(s), seq, base.KindSet) }
	for _, keys := range [][][]byte{
		{key("b", 2), key("a", 1)},
		{key("b", 2), key("c", 2), key("a", 1), key("d", 9)},
	} {
		outputs, _, err := Run(context.Background(), jobTo(vfstest.NewMem(), &backwards{keys: keys}))
		if err == nil || len(outputs) > 0 {
			t.Errorf("%q: %v, %v", keys, outputs, err)
		}
	}
}

// Run tells of each operation that fails, whenever it is: tables are larger than
// what is gathered before it is written.
func TestRunFails(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	mem := memtable.New(4 << 20)
	mem.Reserve(3 << 20)
	for i := range 500 {
		value := make([]byte, 4000)
		for j := range value {
			value[j] = byte(rng.Uint32())
		}
		if err := mem.Add(uint64(i), uint64(i+1), base.KindSet, fmt.Appendf(nil, "key%06d", i), value); err != nil {
			t.Fatal(err)
		}
	}
	failed := map[vfstest.OpKind]int{}
	for at := 0; ; at++ {
		faulty := vfstest.Inject(vfstest.NewMem())
		faulty.SetFaults(vfstest.Fault{Index: at})
		job := jobTo(faulty, mem.NewIter())
		job.TableBytes = 1 << 20
		outputs, stats, err := Run(context.Background(), job)
		ops := faulty.Failed()
		if len(ops) == 0 {
			if err != nil || len(outputs) < 2 || stats.EntriesOut != 500 {
				t.Fatalf("%d tables, %+v, %v", len(outputs), stats, err)
			}
			break
		}
		if failed[ops[0].Kind]++; !errors.Is(err, syscall.EIO) {
			t.Errorf("%v fails: %v", ops[0], err)
		}
		if open := faulty.OpenFiles(); len(open) > 0 {
			t.Errorf("%v fails: left open: %v", ops[0], open)
		}
	}
	for _, kind := range []vfstest.OpKind{vfstest.OpCreate, vfstest.OpWrite, vfstest.OpSync, vfstest.OpClose} {
		if failed[kind] < 2 {
			t.Errorf("%v failed %d times", kind, failed[kind])
		}
	}
}

// A job that is cancelled before a key gives up.
func TestRunCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var keys [][]byte
	for i := range 100_000 {
		keys = append(keys, base.AppendInternalKey(nil, fmt.Appendf(nil, "key%06d", i), 1, base.KindSet))
	}
	if !slices.IsSortedFunc(keys, bytes.Compare) {
		t.Fatal("keys are not sorted")
	}
	cancel()
	if outputs, _, err := Run(ctx, jobTo(vfstest.NewMem(), &backwards{keys: keys})); !errors.Is(err, context.Canceled) || len(outputs) > 0 {
		t.Errorf("%v, %v", outputs, err)
	}
}
