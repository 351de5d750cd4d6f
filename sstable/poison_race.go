//go:build race

package sstable

// poison overwrites memory that returns to a pool, so that tests with the race detector notice
// uses after release.
func poison(b []byte) {
	b = b[:cap(b)]
	for i := range b {
		b[i] = 0xdb
	}
}
