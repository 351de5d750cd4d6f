package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"github.com/siftdb/sift"
)

// Reserved is the prefix of the keys that belong to this package. Commands cannot write them, and
// reads do not see them.
const Reserved = "\xff\xff"

// ErrReserved: a command writes a key that begins with Reserved.
var ErrReserved = errors.New("cluster: the key is reserved")

// appliedKey holds the index of the last applied command, 8 bytes, little-endian. It is written in
// the command's batch. On disk; do not change.
const appliedKey = Reserved + "sift.applied"

func isReserved(key []byte) bool { return bytes.HasPrefix(key, []byte(Reserved)) }

// readApplied returns the index of the last command that a database holds.
func readApplied(db *sift.DB) (uint64, error) {
	value, err := db.Get([]byte(appliedKey))
	switch {
	case errors.Is(err, sift.ErrNotFound):
		return 0, nil
	case err != nil:
		return 0, err
	case len(value) != 8:
		return 0, fmt.Errorf("cluster: the applied index has %d bytes", len(value))
	}
	return binary.LittleEndian.Uint64(value), nil
}

func appliedValue(index uint64) []byte { return binary.LittleEndian.AppendUint64(nil, index) }

// reader is what sift.Tx and sift.Snapshot have in common.
type reader interface {
	Get(key []byte) ([]byte, error)
	Has(key []byte) (bool, error)
	NewIter(o *sift.IterOptions) (*sift.Iter, error)
}

// View is the database at one moment. It is valid until the function that it was passed to
// returns, for one goroutine at a time.
type View struct {
	r   reader
	err error // of the first read that failed
}

// Get returns a copy of the value of key, or sift.ErrNotFound.
func (v *View) Get(key []byte) ([]byte, error) {
	if isReserved(key) {
		return nil, sift.ErrNotFound
	}
	value, err := v.r.Get(key)
	return value, v.note(err)
}

// Has reports whether there is a value for key.
func (v *View) Has(key []byte) (bool, error) {
	if isReserved(key) {
		return false, nil
	}
	has, err := v.r.Has(key)
	return has, v.note(err)
}

// Scan is sift.DB.Scan on the view. An error is the second value of the last pair. An entry is
// valid until the next one.
func (v *View) Scan(o *sift.IterOptions) iter.Seq2[sift.Entry, error] {
	var bounded sift.IterOptions
	if o != nil {
		bounded = *o
	}
	if bounded.UpperBound == nil || bytes.Compare(bounded.UpperBound, []byte(Reserved)) > 0 {
		bounded.UpperBound = []byte(Reserved)
	}
	return func(yield func(sift.Entry, error) bool) {
		it, err := v.r.NewIter(&bounded)
		if err != nil {
			yield(sift.Entry{}, v.note(err))
			return
		}
		defer it.Close() // also when the loop panics or ends the goroutine
		for ok := it.First(); ok; ok = it.Next() {
			if !yield(sift.Entry{Key: it.Key(), Value: it.Value()}, nil) {
				v.note(it.Close())
				return
			}
		}
		if err := it.Close(); err != nil {
			yield(sift.Entry{}, v.note(err))
		}
	}
}

// note records a failure, so that it takes effect even if the caller ignores it.
func (v *View) note(err error) error {
	if v.err == nil && err != nil && !errors.Is(err, sift.ErrNotFound) {
		v.err = err
	}
	return err
}

// Tx is the database as a command sees it: all commands before it, and its own writes. It is valid
// until the Apply function returns.
type Tx struct {
	View
	tx *sift.Tx
}

// Put sets key to value. Both are copied.
func (t *Tx) Put(key, value []byte) error {
	if isReserved(key) {
		return fmt.Errorf("%w: %q", ErrReserved, key)
	}
	return t.note(t.tx.Put(key, value))
}

// Delete removes key. It is not an error if the key does not exist.
func (t *Tx) Delete(key []byte) error {
	if isReserved(key) {
		return fmt.Errorf("%w: %q", ErrReserved, key)
	}
	return t.note(t.tx.Delete(key))
}
