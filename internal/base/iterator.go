package base

// Iterator iterates over entries in internal-key order. A new iterator is unpositioned. Each
// move reports whether the iterator is then at an entry; if not, Err returns nil at the end of the
// entries. After an error all moves return false until the next absolute one (First, Last, SeekGE,
// SeekLT).
//
// Key and Value are valid only at an entry, until the next move or Close. An Iterator must
// not be used concurrently.
type Iterator interface {
	// First moves to the first entry, Last to the last.
	First() bool
	Last() bool
	// SeekGE moves to the first entry at or after the encoded internal key.
	SeekGE(ikey []byte) bool
	// SeekLT moves to the last entry before the encoded internal key.
	SeekLT(ikey []byte) bool
	// Next and Prev move by one. REQUIRES: Valid(); of a merging iterator also that the last
	// absolute move was First or SeekGE for Next, Last or SeekLT for Prev.
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
	// Close releases the iterator's resources. It may be called twice.
	Close() error
}
