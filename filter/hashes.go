package filter

import "sync"

// hashList collects the hashes of a writer in chunks from a pool, so that growing
// copies nothing and successive writers allocate little.
type hashList struct {
	chunks []*hashChunk
	n      int    // number of hashes
	last   uint64 // the hash added last, if n > 0
}

const hashChunkLen = 8192

type hashChunk [hashChunkLen]uint64

var hashChunks = sync.Pool{New: func() any { return new(hashChunk) }}

// add appends a hash unless it equals the last one.
func (l *hashList) add(hash uint64) {
	if hash == l.last && l.n > 0 {
		return
	}
	i := uint(l.n) % hashChunkLen
	if i == 0 {
		l.chunks = append(l.chunks, hashChunks.Get().(*hashChunk))
	}
	l.chunks[len(l.chunks)-1][i] = hash
	l.last = hash
	l.n++
}

// each calls f with the hashes in the order they were added, one chunk at a time.
func (l *hashList) each(f func(hashes []uint64)) {
	left := l.n
	for _, c := range l.chunks {
		m := min(left, hashChunkLen)
		f(c[:m])
		left -= m
	}
}

// hashSlices is a pool for builders that need all hashes in one slice.
var hashSlices = sync.Pool{New: func() any { return new([]uint64) }}

// appendTo appends all hashes to dst.
func (l *hashList) appendTo(dst []uint64) []uint64 {
	l.each(func(hashes []uint64) { dst = append(dst, hashes...) })
	return dst
}

// reset empties the list and returns the chunks to the pool.
func (l *hashList) reset() {
	for i, c := range l.chunks {
		hashChunks.Put(c)
		l.chunks[i] = nil
	}
	l.chunks, l.n = l.chunks[:0], 0
}
