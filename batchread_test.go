package sift

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func batchString(b *Batch) string {
	var s strings.Builder
	for op := range b.Ops() {
		if op.Delete {
			fmt.Fprintf(&s, "delete %q\n", op.Key)
		} else {
			fmt.Fprintf(&s, "set %q to %q\n", op.Key, op.Value)
		}
	}
	return s.String()
}

// TestBatchDump checks the format of Dump, and that Load reads it back.
func TestBatchDump(t *testing.T) {
	var b Batch
	if got := hex.EncodeToString(b.Dump()); got != strings.Repeat("00", 12) {
		t.Errorf("Dump of an empty batch: %s", got)
	}
	b.Put([]byte("a"), []byte("xy"))
	b.Delete([]byte("b"))
	b.Put(nil, nil)
	const want = "0000000000000000" + "03000000" + "0101610278790001620100" + "00"
	if got := hex.EncodeToString(b.Dump()); got != want {
		t.Errorf("Dump: %s, want %s", got, want)
	}
	var c Batch
	c.Put([]byte("old"), []byte("gone"))
	data := append([]byte{7}, b.Dump()[1:]...) // Load ignores the sequence number
	if err := c.Load(data); err != nil {
		t.Fatal(err)
	}
	clear(data)
	if got, want := batchString(&c), "set \"a\" to \"xy\"\ndelete \"b\"\nset \"\" to \"\"\n"; got != want || c.Len() != 3 {
		t.Errorf("Load: %d operations, %s", c.Len(), got)
	}
	if got := hex.EncodeToString(c.Dump()); got != want {
		t.Errorf("Dump after Load: %s", got)
	}
	c.Append(&b)
	if c.Len() != 6 || batchString(&c) != batchString(&b)+batchString(&b) {
		t.Errorf("Append: %s", batchString(&c))
	}
	db, err := OpenMemory(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Write(&c, nil); err != nil {
		t.Fatal(err)
	}
	if v, err := db.Get([]byte("a")); string(v) != "xy" || err != nil {
		t.Errorf("after Write: %q, %v", v, err)
	}
}

// TestAppendRejected checks that appending a batch that has rejected an operation appends the
// operations before it and sets Err, and that nothing is appended to a batch that has an error.
func TestAppendRejected(t *testing.T) {
	cause, other := errors.New("too large"), errors.New("also too large")
	var rejected, b Batch
	rejected.Put([]byte("a"), nil)
	rejected.err = cause
	b.Append(&rejected)
	b.Put([]byte("b"), nil)
	if got, want := batchString(&b), "set \"a\" to \"\"\n"; got != want || b.Err() != cause {
		t.Errorf("after Append of a rejected batch: %q, %v; want %q", got, b.Err(), want)
	}
	own := Batch{err: other}
	own.Append(&rejected)
	if own.Len() != 0 || own.Err() != other {
		t.Errorf("Append to a batch that has an error: %d operations, %v", own.Len(), own.Err())
	}
	if b.Reset(); b.Err() != nil || b.Len() != 0 {
		t.Errorf("after Reset: %d operations, %v", b.Len(), b.Err())
	}
}

// TestBatchLoadDamaged checks that Load rejects truncated dumps and wrong counts, kinds and
// lengths.
func TestBatchLoadDamaged(t *testing.T) {
	var b Batch
	b.Put([]byte("key"), []byte("value"))
	b.Delete([]byte("other"))
	good := b.Dump()
	for n := range good {
		var c Batch
		c.Put([]byte("old"), nil)
		if err := c.Load(good[:n]); !errors.Is(err, ErrCorruption) || c.Len() != 0 || c.Size() != 0 {
			t.Errorf("Load of the first %d bytes: %v, %d operations", n, err, c.Len())
		}
	}
	for _, damaged := range []struct {
		at   int
		b    byte
		desc string
	}{
		{8, 1, "fewer operations"},
		{8, 3, "more operations"},
		{12, 2, "unknown kind"},
		{13, 200, "key longer than the batch"},
		{17, 200, "value longer than the batch"},
	} {
		data := append([]byte(nil), good...)
		data[damaged.at] = damaged.b
		if err := new(Batch).Load(data); !errors.Is(err, ErrCorruption) {
			t.Errorf("%s: %v", damaged.desc, err)
		}
	}
}

// FuzzBatchLoad checks that every batch that Load accepts equals one built from its operations.
func FuzzBatchLoad(f *testing.F) {
	var b Batch
	b.Put([]byte("key"), []byte("value"))
	b.Delete([]byte("other"))
	f.Add(b.Dump())
	f.Fuzz(func(t *testing.T, data []byte) {
		var b, c Batch
		if b.Load(data) != nil {
			return
		}
		for op := range b.Ops() {
			if op.Delete {
				c.Delete(op.Key)
			} else {
				c.Put(op.Key, op.Value)
			}
		}
		if b.Len() != c.Len() || batchString(&b) != batchString(&c) {
			t.Fatalf("%x: %d operations, rebuilt: %d", data, b.Len(), c.Len())
		}
	})
}

// TestBatchLoadSequence checks that Load ignores the sequence number, whatever it is.
func TestBatchLoadSequence(t *testing.T) {
	var b, c Batch
	b.Put([]byte("k"), []byte("v"))
	data := bytes.Clone(b.Dump())
	for i := range 8 {
		data[i] = 0xff
	}
	if err := c.Load(data); err != nil || c.Len() != 1 || !bytes.Equal(c.Dump(), b.Dump()) {
		t.Errorf("%d operations, %v", c.Len(), err)
	}
}
