package sift

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/merge"
	"github.com/siftdb/sift/sstable"
)

// TableOps returns the contents of table files as operations in ascending key order, for Ingest:
// files written by an sstable.Writer, sift, LevelDB or goleveldb. If a key has several entries, the
// one with the highest sequence number wins; on a tie, a value wins over a tombstone, and otherwise
// the entry of the earlier path. A tombstone becomes a deletion. The sequence numbers are not kept,
// since Ingest assigns a new one; a Writer may use 0 for all entries.
//
// paths are on the host's file system. The files are opened when the iteration begins, all at the
// same time, and closed when it ends. The slices of an Op are valid until the next one. An error of
// the file system, or one that matches ErrCorruption or ErrUnsupported, ends the iteration.
func TableOps(paths ...string) iter.Seq2[Op, error] {
	return func(yield func(Op, error) bool) {
		more := true
		err := eachTableOp(paths, func(op Op) bool {
			more = yield(op, nil)
			return more
		})
		if err != nil && more {
			yield(Op{}, err)
		}
	}
}

func eachTableOp(paths []string, yield func(Op) bool) (err error) {
	var closers []io.Closer
	defer func() {
		for _, c := range closers {
			err = errors.Join(err, c.Close())
		}
	}()
	var tables []base.Iterator
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		closers = append(closers, f)
		info, err := f.Stat()
		if err != nil {
			return err
		}
		r, err := sstable.NewReader(f, info.Size(), &sstable.ReaderOptions{Path: path, IgnoreFilter: true})
		if err != nil {
			return err
		}
		tables = append(tables, r.NewIter(&sstable.IterOptions{DontFillCache: true, Readahead: true, CheckOrder: true}))
	}
	it := merge.New(tables...)
	defer func() { err = errors.Join(err, it.Close()) }()
	var last []byte
	first := true
	for ok := it.First(); ok; ok = it.Next() {
		key, _, kind, ok := base.SplitInternalKey(it.Key())
		if !ok {
			return fmt.Errorf("%w: a malformed key in one of %q", ErrCorruption, paths)
		}
		if !first && bytes.Equal(key, last) {
			continue
		}
		last, first = append(last[:0], key...), false
		op := Op{Key: last, Delete: kind == base.KindDelete}
		if !op.Delete {
			op.Value = it.Value()
		}
		if !yield(op) {
			return nil
		}
	}
	return it.Err()
}
