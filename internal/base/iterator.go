package base

// Iterator moves over entries in internal-key order. A new iterator is at no
// entry. Every move reports whether the iterator is at an entry afterwards; when
// it is not, Err tells the end from a failure. After a failure every move
// returns false until the next absolute move (First, Last, SeekGE, SeekLT).
//
// Key and Value are valid only at an entry and until the next move or Close.
// An Iterator is used by one goroutine at a time.
type Iterator interface {
	// First moves to the first entry, Last to the last.
	First() bool
	Last() bool
	// SeekGE moves to the first entry at or after the encoded internal key.
	SeekGE(ikey []byte) bool
	// SeekLT moves to the last entry before the encoded internal key.
	SeekLT(ikey []byte) bool
	// Next and Prev move by one. REQUIRES: Valid().
	Next() bool
	Prev() bool
	// Valid reports whether the iterator is at an entry.
	Valid() bool
	// Key returns the encoded internal key.
	Key() []byte
	// Value returns the value.
	Value() []byte
	// Err returns the error that stopped the last move, or nil.
	Err() error
	// Close releases what the iterator holds. It may be called twice.
	Close() error
}
