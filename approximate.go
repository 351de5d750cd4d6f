package sift

import (
	"bytes"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
)

// approximateSize implements ApproximateSize.
func (d *DB) approximateSize(from, to []byte) (uint64, error) {
	g := d.epoch.Enter()
	defer g.Exit()
	s := d.state.Load()
	if s == nil {
		return 0, ErrClosed
	}
	var size uint64
	if from != nil && to != nil && bytes.Compare(from, to) >= 0 {
		return 0, nil
	}
	for level := range s.version.Levels {
		for _, meta := range s.version.Overlapping(nil, level, from, to) {
			size += approximateSize(meta, from, to)
		}
	}
	return size, nil
}

// approximateSize returns the approximate size in bytes of the part of a table within a range.
// REQUIRES: they overlap.
func approximateSize(meta *manifest.TableMeta, from, to []byte) uint64 {
	t := meta.Handle.(*table)
	fromStart := from == nil || bytes.Compare(from, base.UserKey(meta.Smallest)) <= 0
	toEnd := to == nil || bytes.Compare(to, base.UserKey(meta.Largest)) > 0
	if fromStart && toEnd {
		return meta.Size
	}
	r, err := t.load()
	if err != nil {
		return meta.Size
	}
	start, end := int64(0), int64(meta.Size)
	if !fromStart {
		start = max(r.ApproximateOffset(from), 0)
	}
	if !toEnd {
		if at := r.ApproximateOffset(to); at >= 0 {
			end = at
		}
	}
	return uint64(max(end-start, 0))
}
