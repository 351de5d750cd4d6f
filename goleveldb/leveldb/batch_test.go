package leveldb

import (
	stderrors "errors"
	"strconv"
	"testing"

	"github.com/siftdb/sift"

	"github.com/syndtr/goleveldb/leveldb/storage"
)

// ignoreOps is a BatchReplay.
type ignoreOps struct{}

func (ignoreOps) Put(key, value []byte) {}
func (ignoreOps) Delete(key []byte)     {}

// TestBatchTooLarge checks that a batch to which an operation could not be added is rejected,
// instead of being written without it.
func TestBatchTooLarge(t *testing.T) {
	if strconv.IntSize < 64 {
		t.Skip("the value takes a quarter of the address space")
	}
	db, err := Open(storage.NewMemStorage(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	large := make([]byte, 1<<30) // never written to, so it takes no memory
	for _, before := range []int{0, 1} {
		var b Batch
		for range before {
			b.Put([]byte("before"), nil)
		}
		b.Put([]byte("key"), large)
		if b.Len() != before {
			t.Fatalf("the batch has %d operations", b.Len())
		}
		if err := db.Write(&b, nil); !stderrors.Is(err, sift.ErrBatchTooLarge) {
			t.Errorf("Write after %d operations: %v", before, err)
		}
		if err := b.Replay(ignoreOps{}); !stderrors.Is(err, sift.ErrBatchTooLarge) {
			t.Errorf("Replay after %d operations: %v", before, err)
		}
		tr, err := db.OpenTransaction()
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.Write(&b, nil); !stderrors.Is(err, sift.ErrBatchTooLarge) {
			t.Errorf("Transaction.Write after %d operations: %v", before, err)
		}
		tr.Discard()
		b.Reset()
		b.Put([]byte("key"), []byte("value"))
		if err := db.Write(&b, nil); err != nil {
			t.Errorf("Write after Reset: %v", err)
		}
	}
	if has, err := db.Has([]byte("before"), nil); has || err != nil {
		t.Errorf("a part of a batch was written: %v", err)
	}
}
