//go:build race

package sstable

// poison overwrites memory that returns to a pool, in builds with the race detector, so that
// a use after release shows.
func poison(b []byte) {
	b = b[:cap(b)]
	for i := range b {
		b[i] = 0xdb
	}
}
