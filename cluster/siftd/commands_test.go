package siftd

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/cluster"
)

// TestDeposedWrites: writes of a deposed leader that follow its successor's first entry
// in the log have no effect.
func TestDeposedWrites(t *testing.T) {
	f, err := cluster.OpenFSM(t.TempDir(), apply, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	index := uint64(0)
	do := func(command []byte) {
		index++
		f.Apply(&raft.Log{Index: index, Type: raft.LogCommand, Data: command})
	}
	want := func(want string) {
		t.Helper()
		got := ""
		err := f.View(func(v *cluster.View) error {
			value, err := v.Get([]byte("k"))
			if errors.Is(err, sift.ErrNotFound) {
				err = nil
			}
			got = string(value)
			return err
		})
		if err != nil || got != want {
			t.Errorf("k is %q, %v; want %q", got, err, want)
		}
	}
	write := func(epoch byte, value string) []byte {
		var b sift.Batch
		b.Put([]byte("k"), []byte(value))
		return writeEntry([epochLen]byte{epoch}, &b)
	}
	begin := func(epoch byte) []byte {
		e := [epochLen]byte{epoch}
		return append([]byte{beginCommand}, e[:]...)
	}
	do(write(1, "of nobody"))
	want("")
	do(begin(1))
	do(write(1, "first"))
	want("first")
	do(begin(2))
	do(write(1, "deposed"))
	want("first")
	do(write(2, "second"))
	want("second")
}
