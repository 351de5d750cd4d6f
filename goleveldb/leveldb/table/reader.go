package table

import (
	"encoding/binary"
	"fmt"
	"io"
	"sort"
	"strings"
	"sync"

	"github.com/golang/snappy"

	"github.com/syndtr/goleveldb/leveldb/cache"
	"github.com/syndtr/goleveldb/leveldb/comparer"
	"github.com/syndtr/goleveldb/leveldb/errors"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/iterator"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/storage"
	"github.com/syndtr/goleveldb/leveldb/util"
)

// Reader reads a table. It is safe for concurrent use.
type Reader struct{ *contents }

// contents holds the fields of a Reader.
type contents struct {
	f    io.ReaderAt
	size int64
	fd   storage.FileDesc
	cmp  comparer.Comparer
	err  error // why nothing can be read

	index   []indexEntry
	dataEnd int64

	filter     filter.Filter // nil if there is none to probe
	filterData []byte
	filterEnds []uint32 // the start of the first filter, and the end of each
	baseLg     byte

	mu       sync.RWMutex // held while the file is read
	released bool
}

// indexEntry is a data block with its separator, a key that is >= its last key.
type indexEntry struct {
	key []byte
	handle
}

// NewReader returns a Reader of the table in f, whose length is size bytes. fd names the file in
// errors. cache and bpool are not used. Of the options it uses Comparer, Filter and AltFilters.
// If the table is damaged, NewReader succeeds, and the Reader's methods return the error.
func NewReader(f io.ReaderAt, size int64, fd storage.FileDesc, cache *cache.NamespaceGetter, bpool *util.BufferPool, o *opt.Options) (*Reader, error) {
	if f == nil {
		return nil, errors.New("leveldb/table: nil file")
	}
	r := &Reader{&contents{f: f, size: size, fd: fd, cmp: o.GetComparer()}}
	if err := r.open(o); errors.IsCorrupted(err) {
		r.err = err
	} else if err != nil {
		return nil, err
	}
	return r, nil
}

// damaged returns the error for a damaged part of the file.
func (r *Reader) damaged(pos, size int64, kind, reason string) error {
	return errors.NewErrCorrupted(r.fd, &ErrCorrupted{pos, size, kind, reason})
}

// open reads the footer, the index and the filter.
func (r *Reader) open(o *opt.Options) error {
	if r.size < footerLen {
		return r.damaged(0, r.size, "table", "too small")
	}
	footer := make([]byte, footerLen)
	pos := r.size - footerLen
	if _, err := r.f.ReadAt(footer, pos); err != nil && err != io.EOF {
		return err
	}
	if string(footer[footerLen-len(magic):]) != magic {
		return r.damaged(pos, footerLen, "table-footer", "bad magic number")
	}
	metaindex, rest, ok := cutHandle(footer)
	if !ok {
		return r.damaged(pos, footerLen, "table-footer", "bad metaindex block handle")
	}
	index, _, ok := cutHandle(rest)
	if !ok {
		return r.damaged(pos, footerLen, "table-footer", "bad index block handle")
	}
	r.dataEnd = int64(metaindex.offset)
	entries, err := r.readEntries(index, "index-block")
	if err != nil {
		return err
	}
	for _, e := range entries {
		h, _, ok := cutHandle(e.value)
		if !ok {
			return r.damaged(int64(index.offset), int64(index.length), "index-block", "bad data block handle")
		}
		r.index = append(r.index, indexEntry{e.key, h})
	}
	return r.openFilter(metaindex, o)
}

// openFilter reads the filter block of one of the filters in the options. A damaged one is
// ignored.
func (r *Reader) openFilter(metaindex handle, o *opt.Options) error {
	meta, err := r.readEntries(metaindex, "meta-block")
	if err != nil {
		return err
	}
	for _, e := range meta {
		name, ok := strings.CutPrefix(string(e.key), filterPrefix)
		h, _, isHandle := cutHandle(e.value)
		if !ok || !isHandle {
			continue
		}
		for _, f := range append([]filter.Filter{o.GetFilter()}, o.GetAltFilters()...) {
			if f == nil || f.Name() != name {
				continue
			}
			data, err := r.readBlock(h, "filter-block")
			if errors.IsCorrupted(err) {
				continue
			} else if err != nil {
				return err
			}
			r.takeFilter(f, data)
			if int64(h.offset) < r.dataEnd {
				r.dataEnd = int64(h.offset)
			}
			return nil
		}
	}
	return nil
}

// takeFilter decodes a filter block: the filters, the offset of each in 4 bytes, the offset of
// these offsets in 4 bytes, and the binary logarithm of the number of bytes of the file that a
// filter covers, in 1 byte.
func (r *Reader) takeFilter(f filter.Filter, data []byte) {
	n := len(data) - 5
	if n < 0 {
		return
	}
	starts, baseLg := uint64(binary.LittleEndian.Uint32(data[n:])), data[n+4]
	if starts > uint64(n) || (uint64(n)-starts)%4 != 0 || baseLg > 32 {
		return
	}
	for i := starts; i < uint64(n)+4; i += 4 { // the last is where the starts begin
		end := binary.LittleEndian.Uint32(data[i:])
		if uint64(end) > starts || len(r.filterEnds) > 0 && end < r.filterEnds[len(r.filterEnds)-1] {
			r.filterEnds = nil
			return
		}
		r.filterEnds = append(r.filterEnds, end)
	}
	r.filter, r.filterData, r.baseLg = f, data[:starts], baseLg
}

// mayContain probes the filter of a data block.
func (r *Reader) mayContain(h handle, key []byte) bool {
	i := h.offset >> r.baseLg
	if r.filter == nil || i+1 >= uint64(len(r.filterEnds)) {
		return true
	}
	return r.filter.Contains(r.filterData[r.filterEnds[i]:r.filterEnds[i+1]], key)
}

// readBlock reads a block and verifies its checksum.
func (r *Reader) readBlock(h handle, kind string) ([]byte, error) {
	pos, size := int64(h.offset), int64(h.length)
	if h.offset > uint64(r.size) || h.length > uint64(r.size)-h.offset || uint64(r.size)-h.offset-h.length < trailerLen {
		return nil, r.damaged(pos, size, kind, "block handle out of the file")
	}
	data := make([]byte, h.length+trailerLen)
	if _, err := r.f.ReadAt(data, pos); err != nil && err != io.EOF {
		return nil, err
	}
	body := data[:h.length+1]
	if have, want := util.NewCRC(body).Value(), binary.LittleEndian.Uint32(data[h.length+1:]); have != want {
		return nil, r.damaged(pos, size, kind, fmt.Sprintf("checksum mismatch, want=%#x got=%#x", want, have))
	}
	data = data[:h.length]
	switch compression := body[h.length]; compression {
	case rawBlock:
		return data, nil
	case snappyBlock:
		n, err := snappy.DecodedLen(data)
		if err == nil && uint64(n) > 64*uint64(len(data))+64 { // snappy does not compress that well
			err = snappy.ErrTooLarge
		}
		if err == nil {
			data, err = snappy.Decode(nil, data)
		}
		if err != nil {
			return nil, r.damaged(pos, size, kind, err.Error())
		}
		return data, nil
	default:
		return nil, r.damaged(pos, size, kind, fmt.Sprintf("unknown compression type %#x", compression))
	}
}

func (r *Reader) readEntries(h handle, kind string) ([]entry, error) {
	data, err := r.readBlock(h, kind)
	if err != nil {
		return nil, err
	}
	entries, err := decodeBlock(data)
	if err != nil {
		return nil, r.damaged(int64(h.offset), int64(h.length), kind, err.Error())
	}
	return entries, nil
}

// use takes mu, so that the Reader stays usable until mu is released, or returns why nothing can
// be read.
func (r *Reader) use() error {
	r.mu.RLock()
	err := r.err
	if r.released {
		err = ErrReaderReleased
	}
	if err != nil {
		r.mu.RUnlock()
	}
	return err
}

// findBlock returns the first data block that may hold a key >= key.
func (r *Reader) findBlock(key []byte) int {
	return sort.Search(len(r.index), func(i int) bool { return r.cmp.Compare(r.index[i].key, key) >= 0 })
}

// searchEntries returns the index of the first entry whose key is >= key.
func (r *Reader) searchEntries(entries []entry, key []byte) int {
	return sort.Search(len(entries), func(i int) bool { return r.cmp.Compare(entries[i].key, key) >= 0 })
}

// Find returns the first entry whose key is >= key, or ErrNotFound. If filtered is set, it also
// returns ErrNotFound if the filter excludes key. The slices belong to the caller.
func (r *Reader) Find(key []byte, filtered bool, ro *opt.ReadOptions) (rkey, value []byte, err error) {
	if err := r.use(); err != nil {
		return nil, nil, err
	}
	defer r.mu.RUnlock()
	for i := r.findBlock(key); i < len(r.index); i++ {
		if filtered && !r.mayContain(r.index[i].handle, key) {
			return nil, nil, ErrNotFound
		}
		filtered = false
		entries, err := r.readEntries(r.index[i].handle, "data-block")
		if err != nil {
			return nil, nil, err
		}
		if j := r.searchEntries(entries, key); j < len(entries) {
			return entries[j].key, append([]byte{}, entries[j].value...), nil
		}
	}
	return nil, nil, ErrNotFound
}

// FindKey is Find without the value.
func (r *Reader) FindKey(key []byte, filtered bool, ro *opt.ReadOptions) (rkey []byte, err error) {
	rkey, _, err = r.Find(key, filtered, ro)
	return rkey, err
}

// Get returns the value of key, or ErrNotFound. The value belongs to the caller.
func (r *Reader) Get(key []byte, ro *opt.ReadOptions) (value []byte, err error) {
	rkey, value, err := r.Find(key, false, ro)
	if err == nil && r.cmp.Compare(rkey, key) != 0 {
		err = ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return value, nil
}

// OffsetOf returns the approximate offset in the file at which the key is, or would be.
func (r *Reader) OffsetOf(key []byte) (offset int64, err error) {
	if err := r.use(); err != nil {
		return 0, err
	}
	defer r.mu.RUnlock()
	if i := r.findBlock(key); i < len(r.index) {
		return int64(r.index[i].offset), nil
	}
	return r.dataEnd, nil
}

// NewIterator returns an iterator over the keys of a range; nil means all keys. It must be
// released before the Reader is.
func (r *Reader) NewIterator(slice *util.Range, ro *opt.ReadOptions) iterator.Iterator {
	if err := r.use(); err != nil {
		return iterator.NewEmptyIterator(err)
	}
	defer r.mu.RUnlock()
	blocks := &blockArray{r: r, index: r.index}
	if slice != nil {
		blocks.slice = *slice
		if slice.Limit != nil {
			blocks.index = blocks.index[:min(r.findBlock(slice.Limit)+1, len(r.index))]
		}
		if slice.Start != nil {
			blocks.index = blocks.index[min(r.findBlock(slice.Start), len(blocks.index)):]
		}
	}
	return iterator.NewIndexedIterator(iterator.NewArrayIndexer(blocks), opt.GetStrict(nil, ro, opt.StrictReader))
}

// blockArray is an array of the data blocks of a range.
type blockArray struct {
	r     *Reader
	index []indexEntry
	slice util.Range
}

// Len implements iterator.BasicArray.
func (a *blockArray) Len() int { return len(a.index) }

// Search implements iterator.BasicArray.
func (a *blockArray) Search(key []byte) int {
	return sort.Search(len(a.index), func(i int) bool { return a.r.cmp.Compare(a.index[i].key, key) >= 0 })
}

// Get implements iterator.ArrayIndexer.
func (a *blockArray) Get(i int) iterator.Iterator {
	r := a.r
	if err := r.use(); err != nil {
		return iterator.NewEmptyIterator(err)
	}
	defer r.mu.RUnlock()
	entries, err := r.readEntries(a.index[i].handle, "data-block")
	if err != nil {
		return iterator.NewEmptyIterator(err)
	}
	if a.slice.Limit != nil {
		entries = entries[:r.searchEntries(entries, a.slice.Limit)]
	}
	if a.slice.Start != nil {
		entries = entries[r.searchEntries(entries, a.slice.Start):]
	}
	return iterator.NewArrayIterator(entryArray{r, entries})
}

// entryArray is an array of the entries of a data block.
type entryArray struct {
	r       *Reader
	entries []entry
}

// Len implements iterator.BasicArray.
func (a entryArray) Len() int { return len(a.entries) }

// Search implements iterator.BasicArray.
func (a entryArray) Search(key []byte) int { return a.r.searchEntries(a.entries, key) }

// Index implements iterator.Array.
func (a entryArray) Index(i int) (key, value []byte) { return a.entries[i].key, a.entries[i].value }

// Release releases the Reader, and closes the file if it is an io.Closer.
func (r *Reader) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.released {
		return
	}
	r.released = true
	if c, ok := r.f.(io.Closer); ok {
		c.Close()
	}
}
