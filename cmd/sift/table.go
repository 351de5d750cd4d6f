package main

import (
	"os"

	"github.com/siftdb/sift/sstable"
)

// withTable opens the file of a table, calls fn, and closes it.
func withTable(path string, fn func(r *sstable.Reader) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	r, err := sstable.NewReader(f, info.Size(), &sstable.ReaderOptions{Path: path})
	if err != nil {
		return err
	}
	defer r.Release()
	return fn(r)
}
