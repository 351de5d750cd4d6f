package merge

import "github.com/siftdb/sift/internal/base"

// Empty is an iterator without entries.
type Empty struct{}

var _ base.Iterator = Empty{}

// First finds no entry.
func (Empty) First() bool { return false }

// Last finds no entry.
func (Empty) Last() bool { return false }

// SeekGE finds no entry.
func (Empty) SeekGE([]byte) bool { return false }

// SeekLT finds no entry.
func (Empty) SeekLT([]byte) bool { return false }

// Next must not be called.
func (Empty) Next() bool { return false }

// Prev must not be called.
func (Empty) Prev() bool { return false }

// Valid returns false.
func (Empty) Valid() bool { return false }

// Key must not be called.
func (Empty) Key() []byte { return nil }

// Value must not be called.
func (Empty) Value() []byte { return nil }

// Err returns nil.
func (Empty) Err() error { return nil }

// Close does nothing.
func (Empty) Close() error { return nil }
