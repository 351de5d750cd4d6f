//go:build race

package sstable

// poison overwrites memory that goes back to a pool, in programs that are built
// to find races, so that whoever still reads it is seen by what it reads, too.
func poison(b []byte) {
	b = b[:cap(b)]
	for i := range b {
		b[i] = 0xdb
	}
}
