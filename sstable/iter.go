package sstable

import (
	"encoding/binary"
	"errors"
	"slices"
	"sort"
	"sync"
	"unsafe"

	"github.com/siftdb/sift/internal/base"
)

// IterOptions configure an Iter. A nil *IterOptions and zero fields mean the
// defaults.
type IterOptions struct {
	// DontFillCache keeps the blocks that the iterator reads out of the cache. The iterator
	// decodes them into its own memory and reuses it, so a scan makes no garbage.
	DontFillCache bool
	// Readahead makes the iterator read ahead from the first block. By default it reads ahead
	// only once it moves forward from block to block.
	Readahead bool
	// CheckOrder makes entries that are out of order or in the wrong block an error, like other
	// damage, when the iterator moves forward.
	CheckOrder bool
	// SkipDamaged, if not nil, is called with the error of each damaged block, and the iterator
	// continues after the block. It may already have returned entries of the block. I/O errors
	// still stop the iterator.
	SkipDamaged func(error)
	// IO counts the block reads. Default: the reader's counter.
	IO *BlockIO
}

// Iter iterates over the entries of a table, tombstones included. Its keys are internal keys, which
// the package comment describes. A move returns Valid; if that is false, Err tells whether an error
// or the end stopped it. Call Key and Value only while Valid is true. Their results are valid until
// the next move or Close, and must not be modified. The argument of a seek must not be the result
// of Key. An Iter is not safe for concurrent use, and must not be used after Close. A table can
// have any number of iterators.
type Iter struct {
	r    *Reader
	x    *index // nil: not loaded yet; kept even if the pool evicts it
	opts IterOptions

	blk   *block // the current block, or nil
	i     int    // its number
	at    int    // offset of the current entry in it
	e     entry
	key   []byte
	valid bool
	err   error

	// For CheckOrder.
	before      []byte // the previous key
	separator   []byte // of block separatorOf-1
	separatorOf int

	// The entries of a restart interval, for backward iteration.
	back     []backEntry
	backKeys []byte
	backPos  int // index of the current entry, or -1

	uncached     block  // the current block, if it is not in the cache
	uncachedData []byte // its data

	mem *iterMem // returns to the pool; nil once the iterator is closed

	window    *[]byte // bytes read ahead from the file
	windowOff uint64  // their offset in the file
	ahead     int     // number of bytes to read ahead
	next      int     // the block after the last one read from the file
	sought    int     // 1 + the block at which the next SeekGE begins; 0: unknown
}

// backEntry is an entry before the position of the iterator, or at it. Its key is in backKeys, from
// the end of the previous one to keyEnd.
type backEntry struct {
	at     int
	e      entry
	keyEnd int
}

var _ base.Iterator = (*Iter)(nil)

// An iterator that moves forward reads several data blocks at once: first minReadahead bytes, then
// twice as much each time, up to 1/readaheadShare of the table. So a compaction of many small
// tables needs little memory, and large tables are read in large requests.
const (
	minReadahead   = 16 << 10
	mostOfSmall    = 64 << 10  // the maximum for tables of up to 2 MiB
	maxReadahead   = 256 << 10 // the maximum for all tables
	readaheadShare = 32
)

// readahead returns the maximum number of bytes that an iterator reads ahead.
func (r *Reader) readahead() int {
	return int(min(max(r.dataEnd/readaheadShare, mostOfSmall), maxReadahead))
}

// iterMem is the memory that closed iterators pass on to new ones.
type iterMem struct {
	key, uncachedData, backKeys []byte
	back                        []backEntry
}

var iterPool = sync.Pool{New: func() any { return new(iterMem) }}

var windowPool = sync.Pool{New: func() any { return new([]byte) }}

// NewIter returns an unpositioned iterator over the table. Its first move must be First, Last or a
// seek. o may be nil. Err returns all errors, including those of reading the index.
func (r *Reader) NewIter(o *IterOptions) *Iter {
	m := iterPool.Get().(*iterMem)
	it := &Iter{
		r: r, backPos: -1, next: -1, mem: m,
		key: m.key[:0], uncachedData: m.uncachedData[:0], backKeys: m.backKeys[:0], back: m.back[:0],
	}
	if o != nil {
		it.opts = *o
	}
	if it.opts.IO == nil {
		it.opts.IO = r.io
	}
	return it
}

// Valid reports whether the iterator is at an entry.
func (it *Iter) Valid() bool { return it.valid }

// Key returns the encoded internal key. REQUIRES: Valid().
func (it *Iter) Key() []byte { return it.key }

// Value returns the value, empty for a tombstone. REQUIRES: Valid().
func (it *Iter) Value() []byte { return it.blk.data[it.e.value:it.e.end:it.e.end] }

// Err returns the error that stopped the last move, or nil.
func (it *Iter) Err() error { return it.err }

// Close releases the iterator's memory, and returns nil. It may be called more than once.
func (it *Iter) Close() error {
	it.valid, it.blk, it.uncached, it.x = false, nil, block{}, nil
	it.dropWindow()
	if m := it.mem; m != nil {
		poison(it.key)
		poison(it.uncachedData)
		if cap(it.key)+cap(it.uncachedData)+cap(it.backKeys)+cap(it.back)*int(unsafe.Sizeof(backEntry{})) <= maxPooledBuffer {
			*m = iterMem{it.key, it.uncachedData, it.backKeys, it.back}
			iterPool.Put(m)
		}
		it.mem, it.key, it.uncachedData, it.backKeys, it.back = nil, nil, nil, nil, nil
	}
	return nil
}

func (it *Iter) dropWindow() {
	if it.window != nil {
		if cap(*it.window) <= maxReadahead {
			windowPool.Put(it.window)
		}
		it.window = nil
	}
}

// First moves to the first entry.
func (it *Iter) First() bool {
	return it.begin() && it.firstFrom(0)
}

// Last moves to the last entry.
func (it *Iter) Last() bool {
	return it.begin() && it.lastFrom(it.x.numBlocks()-1)
}

// SeekGE moves to the first entry at or after the encoded internal key.
func (it *Iter) SeekGE(ikey []byte) bool {
	i := it.sought - 1
	if !it.begin() {
		return false
	}
	userKey, trailer := base.UserKey(ikey), base.KeyTrailer(ikey)
	if i < 0 {
		i = it.x.find(userKey, trailer)
	}
	if i == it.x.numBlocks() {
		return false
	}
	if !it.load(i) {
		return it.err == nil && it.firstFrom(i+1)
	}
	at, err := it.blk.searchRestarts(userKey, trailer)
	if err != nil {
		return it.damaged(err) && it.firstFrom(i+1)
	}
	it.key = it.key[:0]
	for at < it.blk.entries {
		if err := it.decode(at); err != nil {
			return it.damaged(err) && it.firstFrom(i+1)
		}
		if compareTo(it.key, userKey, trailer) >= 0 {
			it.valid = true
			return true
		}
		at = it.e.end
	}
	return it.firstFrom(i + 1)
}

// SeekLT moves to the last entry before the encoded internal key.
func (it *Iter) SeekLT(ikey []byte) bool {
	if !it.begin() {
		return false
	}
	userKey, trailer := base.UserKey(ikey), base.KeyTrailer(ikey)
	i := it.x.find(userKey, trailer)
	if i == it.x.numBlocks() {
		return it.lastFrom(i - 1)
	}
	if !it.load(i) {
		return it.err == nil && it.lastFrom(i-1)
	}
	at, err := it.blk.searchRestarts(userKey, trailer)
	if err == nil {
		err = it.collect(at, func() bool { return compareTo(it.key, userKey, trailer) >= 0 })
	}
	if err != nil {
		return it.damaged(err) && it.lastFrom(i-1)
	}
	return it.backTo(len(it.back)-1) || it.lastFrom(i-1)
}

// Next moves to the next entry. It does nothing if the iterator is not Valid.
func (it *Iter) Next() bool {
	if !it.valid {
		return false
	}
	it.backPos = -1
	if it.e.end == it.blk.entries {
		it.valid = false
		return it.firstFrom(it.i + 1)
	}
	if it.opts.CheckOrder {
		it.before = append(it.before[:0], it.key...)
	}
	err := it.decode(it.e.end)
	if err == nil && it.opts.CheckOrder {
		err = it.checkOrder()
	}
	if err != nil {
		return it.damaged(err) && it.firstFrom(it.i+1)
	}
	return true
}

// checkOrder returns an error unless the current key comes after the one before it, and belongs to
// the block. initDataBlock has checked the first key of the block.
func (it *Iter) checkOrder() error {
	if it.separatorOf != it.i+1 {
		var buf separatorBuf
		it.separator = append(it.separator[:0], it.x.separator(&buf, it.i)...)
		it.separatorOf = it.i + 1
	}
	switch {
	case base.CompareInternal(it.before, it.key) >= 0:
		return errKeyOrder
	case base.CompareInternal(it.key, it.separator) > 0:
		return errBlockMissing
	}
	return nil
}

// Prev moves to the previous entry. It does nothing if the iterator is not Valid.
func (it *Iter) Prev() bool {
	if !it.valid {
		return false
	}
	if it.backPos > 0 {
		return it.backTo(it.backPos - 1)
	}
	it.valid = false
	if it.at == 0 {
		return it.lastFrom(it.i - 1)
	}
	stop := it.at
	restart := sort.Search(it.blk.restarts, func(i int) bool { return it.blk.restart(i) >= stop }) - 1
	err := it.collect(it.blk.restart(restart), func() bool { return it.at >= stop })
	if err == nil && it.at != stop {
		err = errRestarts
	}
	if err != nil {
		return it.damaged(err) && it.lastFrom(it.i-1)
	}
	return it.backTo(len(it.back) - 1)
}

// begin resets the position, and loads the index if the iterator has none yet.
func (it *Iter) begin() bool {
	it.valid, it.err, it.backPos, it.sought = false, nil, -1, 0
	if it.x == nil {
		it.x, it.err = it.r.loadIndex()
	}
	return it.err == nil
}

// firstFrom moves to the first entry of block i, or of a later block if damaged ones are skipped.
func (it *Iter) firstFrom(i int) bool {
	for it.err == nil && i < it.x.numBlocks() {
		if it.load(i) {
			it.key = it.key[:0]
			err := it.decode(0)
			if err == nil {
				it.valid = true
				return true
			}
			it.damaged(err)
		}
		i++
	}
	return false
}

// lastFrom moves to the last entry of block i, or of an earlier block if damaged ones are skipped.
func (it *Iter) lastFrom(i int) bool {
	for it.err == nil && i >= 0 {
		if it.load(i) {
			err := it.collect(it.blk.restart(it.blk.restarts-1), func() bool { return false })
			if err == nil {
				return it.backTo(len(it.back) - 1)
			}
			it.damaged(err)
		}
		i--
	}
	return false
}

// decode makes the entry at an offset the current one. REQUIRES: it.key is the previous
// entry's key, or empty at a restart.
func (it *Iter) decode(at int) error {
	b := it.blk
	e, ok := b.decode(at)
	if !ok || e.shared > len(it.key) {
		return errEntry
	}
	it.key = append(it.key[:e.shared], b.data[e.key:e.value]...)
	n := len(it.key) - base.TrailerLen
	if n < 0 {
		return errEntryKey
	}
	if Kind(it.key[n]) > base.KindSet {
		return unknownKind(binary.LittleEndian.Uint64(it.key[n:]))
	}
	it.at, it.e = at, e
	return nil
}

// maxBackBytes is the maximum total length of the keys in backKeys. They are not
// prefix-compressed, so without a bound they could take quadratic memory.
const maxBackBytes = 1 << 20

// collect sets back to the entries from a restart on, up to the first one for which stop returns
// true. If their keys exceed maxBackBytes, it leaves out the first ones.
func (it *Iter) collect(at int, stop func() bool) error {
	total := int64(0) // length of the keys
	if err := it.collectLast(at, stop, &total); err != nil || total <= maxBackBytes {
		return err
	}
	return it.collectLast(at, stop, &total)
}

// collectLast is collect, given the total length of the keys in left. If that is 0, unknown, it
// sets left, and collects only up to maxBackBytes: in the block keys share prefixes, so copying all
// of them could take time out of proportion to the block.
func (it *Iter) collectLast(at int, stop func() bool, left *int64) error {
	it.back, it.backKeys, it.key = it.back[:0], it.backKeys[:0], it.key[:0]
	known, total := *left > 0, int64(0)
	for at < it.blk.entries {
		if err := it.decode(at); err != nil {
			return err
		}
		if stop() {
			break
		}
		n := int64(len(it.key))
		total += n
		if known && (*left <= maxBackBytes || *left == n) || !known && total <= maxBackBytes {
			it.backKeys = append(it.backKeys, it.key...)
			it.back = append(it.back, backEntry{at, it.e, len(it.backKeys)})
		}
		if known {
			*left -= n
		}
		at = it.e.end
	}
	if !known {
		*left = total
	}
	return nil
}

// backTo moves to entry i of back. If i is negative, it makes the iterator invalid.
func (it *Iter) backTo(i int) bool {
	it.valid = i >= 0
	it.backPos = i
	if i < 0 {
		return false
	}
	start := 0
	if i > 0 {
		start = it.back[i-1].keyEnd
	}
	b := it.back[i]
	it.at, it.e = b.at, b.e
	it.key = append(it.key[:0], it.backKeys[start:b.keyEnd]...)
	return true
}

// damaged handles an error in the current block. It reports whether the iterator may continue with
// another block.
func (it *Iter) damaged(err error) bool {
	return it.failed(it.r.corrupt(it.x.handle(it.i), "data block", err))
}

// failed reports an error to SkipDamaged and returns true, or records it and returns false.
func (it *Iter) failed(err error) bool {
	it.valid = false
	if it.opts.SkipDamaged != nil && errors.Is(err, base.ErrCorruption) {
		it.opts.SkipDamaged(err)
		return true
	}
	it.err = err
	return false
}

// load makes data block i the current one.
func (it *Iter) load(i int) bool {
	if it.blk != nil && it.i == i {
		return true
	}
	it.blk = it.x.cachedBlock(i, it.opts.IO)
	if it.blk == nil {
		if err := it.read(i); err != nil {
			it.blk = nil
			it.failed(err)
			return false
		}
	}
	it.i = i
	return true
}

// read reads data block i from the file.
func (it *Iter) read(i int) error {
	payload, t, err := it.fetch(i)
	if err != nil {
		return err
	}
	r := it.r
	if it.uncachedData, err = decompress(it.uncachedData[:0], payload, t); err != nil {
		return r.corrupt(it.x.handle(i), "data block", err)
	}
	it.uncached = block{}
	it.blk = &it.uncached
	if err := r.initDataBlock(&it.x.packedIndex, &it.uncached, it.uncachedData, i); err != nil {
		return err
	}
	if it.x.cached != nil && !it.opts.DontFillCache && r.cache.admit(it.x, i) {
		it.blk, _ = r.keepBlock(it.x, i, &it.uncached)
	}
	return nil
}

// fetch returns data block i as stored, from the read-ahead window if it is there, else from the
// file. The payload is valid until the next fetch.
func (it *Iter) fetch(i int) (payload []byte, blockType byte, err error) {
	r := it.r
	h := it.x.handle(i)
	n := int(h.Length) + blockTrailerLen
	if it.window != nil && h.Offset >= it.windowOff && h.end() <= it.windowOff+uint64(len(*it.window)) {
		it.next = i + 1
		start := int(h.Offset - it.windowOff)
		return r.checkRaw((*it.window)[start:start+n:start+n], h, "data block")
	}
	switch {
	case it.opts.Readahead:
		it.ahead = r.readahead()
	case i != it.next:
		it.ahead = 0
	case it.ahead == 0:
		it.ahead = minReadahead
	default:
		it.ahead = min(2*it.ahead, r.readahead())
	}
	it.next = i + 1
	if it.window == nil {
		it.window = windowPool.Get().(*[]byte)
	}
	it.windowOff = h.Offset
	size := n
	for j := i + 1; j < it.x.numBlocks(); j++ {
		s := it.x.handle(j).end() - h.Offset
		if s > uint64(it.ahead) {
			break
		}
		size = int(s)
	}
	err = it.fill(size)
	if err != nil && size > n {
		// Perhaps the block is readable and only the bytes after it are not.
		it.ahead = 0
		err = it.fill(n)
	}
	if err != nil {
		*it.window = (*it.window)[:0]
		return nil, 0, err
	}
	return r.checkRaw((*it.window)[:n:n], h, "data block")
}

// fill reads size bytes of the file into the window.
func (it *Iter) fill(size int) error {
	*it.window = slices.Grow((*it.window)[:0], size)[:size]
	it.opts.IO.read(size)
	return it.r.readAt(*it.window, it.windowOff, "data block")
}
