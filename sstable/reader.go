package sstable

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
)

// ReaderOptions configure a Reader. A nil *ReaderOptions and zero fields mean
// the defaults.
type ReaderOptions struct {
	// Path names the file in errors. It is not opened. Default: errors name no file.
	Path string
	// Cache is the cache for data blocks. Default: none.
	Cache *BlockCache
	// Policies open the filters of their families; filter.Open opens the others. They are
	// necessary for families that package filter does not know.
	Policies []filter.Policy
	// Secret is the secret of the hashes that the caller passes to MayContainHash of a keyed
	// Filter. A Filter keyed with another secret then lacks that method. Default: any.
	Secret *filter.Secret
	// RangePolicies open range filters. Default: filter.Range.
	RangePolicies []filter.RangePolicy
	// IgnoreFilter treats the table as if it had no filter. It does not affect the range filter.
	IgnoreFilter bool
	// MaxFilterUnits is the maximum number of filter units that NewReader loads. Default: all.
	// Negative: none, and only LoadRangeBits loads the range filter. LevelDB's own filters are
	// used only with the default.
	MaxFilterUnits int
	// FilterLater leaves loading the filter to LoadFilterSteps, so that the table can be read
	// sooner. It has no effect on LevelDB's own filters, nor on a table with several filters.
	FilterLater bool
	// Prefix is the prefix extractor of the table's filters. Verify and the range filter need
	// it, unless it is a Prefixer of this package: the reader knows these by name.
	Prefix Prefixer
	// FilterPool allocates the filter's memory. Default: the heap.
	FilterPool *FilterPool
	// IndexPool bounds the memory of indexes. Default: indexes stay in memory.
	IndexPool *IndexPool
	// IO counts the block reads. Default: the reader's own counter.
	IO *BlockIO
}

// Reader reads a table. It is safe for concurrent use.
//
// NewReader reads and verifies the index and the filter, which stay in memory if they fit.
// The reader reads data blocks, and an index that was evicted, on demand. It verifies all
// checksums. There is no Close: call Release if the reader has a Cache or a pool.
type Reader struct {
	r     io.ReaderAt
	ahead prefetcher // r, if it is one
	size  int64
	path  string
	index atomic.Pointer[index] // nil: not in memory; see loadIndex and IndexPool
	io    *BlockIO

	cache     *BlockCache
	indexes   *IndexPool
	indexMu   sync.Mutex // held while the index is loaded
	pinned    bool       // the index is never evicted; set before the reader is shared
	released  atomic.Bool
	numBlocks int
	dataEnd   int64 // offset after the last data block

	filter     atomic.Pointer[heldFilter]
	ranges     atomic.Pointer[heldRange] // nil: not loaded
	rangeMu    sync.Mutex                // guards loading and dropping ranges
	rangeSteps bool                      // only LoadRangeBits loads the range filter

	rangePolicies []filter.RangePolicy

	footer  footer
	meta    []MetaBlock
	props   *Properties
	metaErr error
	prefix  Prefixer

	filterFamily string
	secret       *filter.Secret
	filterOpen   func([][]byte) (filter.Reader, error)
	filterMu     sync.Mutex  // guards the fields below, and loading and dropping
	pool         *FilterPool // nil: none, or the filter has been freed
	claimed      int64       // bytes claimed from the pool and not allocated yet
	filterUnits  []Handle
	filterState  FilterState
	filterErr    error
	proven       bool // ProveFilter has read the filter
}

// MetaBlock is an entry of the metaindex.
type MetaBlock struct {
	Name string
	Handle
}

// NewReader returns a reader of the table in the first size bytes of r. The caller keeps r open as
// long as the reader is used, and closes it. A table with a damaged metaindex, properties block or
// filter can still be read: MetaErr and FilterStatus return the damage. For other damage NewReader
// returns an error that matches sift.ErrCorruption; for tables that sift does not support, one that
// matches sift.ErrUnsupported. o may be nil.
func NewReader(r io.ReaderAt, size int64, o *ReaderOptions) (*Reader, error) {
	if o == nil {
		o = &ReaderOptions{}
	}
	t := &Reader{r: r, size: size, path: o.Path, cache: o.Cache, io: o.IO, prefix: o.Prefix, pool: o.FilterPool, secret: o.Secret, indexes: o.IndexPool, rangePolicies: o.RangePolicies, rangeSteps: o.MaxFilterUnits < 0}
	t.ahead, _ = r.(prefetcher)
	if len(t.rangePolicies) == 0 {
		t.rangePolicies = []filter.RangePolicy{filter.Range(0, 0)}
	}
	if t.io == nil {
		t.io = new(BlockIO)
	}
	if size < footerLen {
		return nil, &base.CorruptionError{Path: t.path, Offset: -1, What: "table", Err: fmt.Errorf("%w: %d bytes", errTruncated, size)}
	}
	metaErr, err := t.readFooter()
	if err != nil {
		return nil, err
	}
	x, err := t.readIndex()
	if err != nil {
		return nil, err
	}
	t.numBlocks = x.numBlocks()
	if t.numBlocks > 0 {
		t.dataEnd = int64(x.handle(t.numBlocks - 1).end())
	}
	t.index.Store(x)
	if metaErr == nil {
		metaErr, err = t.readMeta()
		if err != nil {
			return nil, err
		}
	}
	t.metaErr = metaErr
	switch {
	case o.IgnoreFilter:
		t.filterState = FilterIgnored
	case metaErr != nil:
		t.filterState, t.filterErr = FilterDamaged, metaErr
	default:
		if err := t.openFilter(t.meta, o); err != nil {
			return nil, err
		}
	}
	if t.indexes != nil && !t.indexes.offer(t, x) {
		t.index.Store(nil)
	}
	return t, nil
}

// readFooter reads the footer. metaErr reports damage to the metaindex handle.
func (r *Reader) readFooter() (metaErr, err error) {
	var buf [footerLen]byte
	h := Handle{Offset: uint64(r.size) - footerLen}
	if err := r.readAt(buf[:], h.Offset, "footer"); err != nil {
		return nil, err
	}
	r.footer, metaErr, err = decodeFooter(buf[:], r.size)
	if errors.Is(err, base.ErrUnsupported) {
		return nil, base.InFile(r.path, err)
	}
	if err != nil {
		return nil, r.corrupt(h, "footer", err)
	}
	if metaErr != nil {
		metaErr = r.corrupt(h, "footer", metaErr)
	}
	return metaErr, nil
}

// loadIndex returns the index. It reads the index if it is not in memory. The caller may retain it.
func (r *Reader) loadIndex() (*index, error) {
	if x := r.index.Load(); x != nil {
		x.touch()
		return x, nil
	}
	return r.reloadIndex()
}

// reloadIndex is loadIndex for an index that is not in memory.
func (r *Reader) reloadIndex() (*index, error) {
	r.indexMu.Lock()
	defer r.indexMu.Unlock()
	if x := r.index.Load(); x != nil {
		return x, nil
	}
	x, err := r.readIndex()
	if err != nil {
		return nil, err
	}
	r.indexes.hold(r, x)
	return x, nil
}

// readIndex reads and decodes the index.
func (r *Reader) readIndex() (*index, error) {
	h := r.footer.index
	data, err := r.readBlock(h, "index block")
	if err != nil {
		return nil, err
	}
	packed, err := decodeIndex(data, uint64(r.size)-footerLen)
	if err != nil {
		return nil, r.corrupt(h, "index block", err)
	}
	x := &index{packedIndex: *packed, id: lastIndexID.Add(1)}
	if r.cache != nil && r.cache.Capacity() > 0 {
		x.cached = make([]atomic.Pointer[slots], len(x.groups))
	}
	return x, nil
}

// readMeta reads the metaindex and the properties. metaErr reports damage to them; err is an error
// that makes the table unreadable.
func (r *Reader) readMeta() (metaErr, err error) {
	h := r.footer.metaindex
	what := "metaindex block"
	data, err := r.readBlock(h, what)
	if err == nil {
		if r.meta, err = decodeMetaindex(data, uint64(r.size)-footerLen); err != nil {
			err = r.corrupt(h, what, err)
		}
	}
	for _, m := range r.meta {
		switch m.Name {
		case rangeDelName, rangeDelName2:
			return nil, base.InFile(r.path, fmt.Errorf("%w: table with range deletions", base.ErrUnsupported))
		case propertiesName:
			what = "properties block"
			if data, err = r.readBlock(m.Handle, what); err == nil {
				if r.props, err = decodeProperties(data); err != nil && !errors.Is(err, base.ErrUnsupported) {
					err = r.corrupt(m.Handle, what, err)
				} else if err != nil {
					return nil, base.InFile(r.path, err)
				}
			}
		}
	}
	if errors.Is(err, base.ErrCorruption) {
		return err, nil
	}
	return nil, err
}

// decodeMetaindex decodes the metaindex, whose blocks must end at or before limit.
func decodeMetaindex(data []byte, limit uint64) ([]MetaBlock, error) {
	var b block
	if err := b.init(data); err != nil {
		return nil, err
	}
	var list []MetaBlock
	err := b.each(boundedNames(len(data), func(key, value []byte) error {
		c := base.NewCursor(value)
		h, err := readHandle(&c, limit)
		if n := len(list); err == nil && n > 0 && list[n-1].Name >= string(key) {
			err = errKeyOrder
		}
		list = append(list, MetaBlock{string(key), h})
		return err
	}))
	if err != nil {
		return nil, err
	}
	return list, nil
}

var errNamesTooLong = errors.New("names too long")

// boundedNames wraps fn to fail if the names in a block are, in total, much longer than the
// block. Prefix compression would allow a small block names of quadratic length.
func boundedNames(blockLen int, fn func(key, value []byte) error) func(key, value []byte) error {
	left := blockLen + 64<<10
	return func(key, value []byte) error {
		if left -= len(key); left < 0 {
			return errNamesTooLong
		}
		return fn(key, value)
	}
}

// Get returns the newest entry of the user key with a sequence number of at most seq, which may be
// math.MaxUint64. A tombstone counts as found: its kind is KindDelete and its value empty. Get
// does not probe the filter. The value remains valid and must not be modified. A lookup in a
// cached block does not allocate unless keys are long.
func (r *Reader) Get(userKey []byte, seq uint64) (value []byte, kind Kind, entrySeq uint64, found bool, err error) {
	var buf Buffer
	value, kind, entrySeq, found, err = r.GetIn(&buf, userKey, seq)
	if len(value) > 0 && buf.m != nil && buf.m.r != nil {
		value = slices.Clone(value) // the value is in the buffer
	}
	buf.Release()
	return value, kind, entrySeq, found, err
}

// GetIn is Get with a buffer for a block that the cache does not admit: the value is valid only
// until buf is used again or released. Successive lookups in the same block with the same buffer
// read the block once. GetIn allocates memory only for the cache, and for the buffer.
func (r *Reader) GetIn(buf *Buffer, userKey []byte, seq uint64) (value []byte, kind Kind, entrySeq uint64, found bool, err error) {
	trailer := targetTrailer(seq)
	x := r.index.Load()
	if x == nil {
		if x, err = r.reloadIndex(); err != nil {
			return nil, 0, 0, false, err
		}
	}
	x.touch()
	for i := x.find(userKey, trailer); i < x.numBlocks(); i++ {
		b, err := r.dataBlock(x, i, buf)
		if err != nil {
			return nil, 0, 0, false, err
		}
		f, ranOff, err := b.lookup(userKey, trailer)
		if err != nil {
			return nil, 0, 0, false, r.corrupt(x.handle(i), "data block", err)
		}
		if f.ok {
			return b.data[f.value:f.end:f.end], Kind(f.trailer), f.trailer >> 8, true, nil
		}
		// The entry can be in the next block only if the separator has the same user key.
		if !ranOff || !x.endsAt(i, userKey) {
			return nil, 0, 0, false, nil
		}
	}
	return nil, 0, 0, false, nil
}

// targetTrailer returns the trailer to search for: it sorts before those of all entries with a
// sequence number of at most seq, including those of unknown kinds, so that lookup reports these.
func targetTrailer(seq uint64) uint64 {
	if seq >= base.MaxSequence {
		return firstTrailer // as in separators: a larger one would make lookups read the block before
	}
	return base.Trailer(seq, base.KindAny)
}

// lookup is get with an error for entries of unknown kinds.
func (b *block) lookup(userKey []byte, trailer uint64) (f found, ranOff bool, err error) {
	f, ranOff, err = b.get(userKey, trailer)
	if Kind(f.trailer) > base.KindSet { // the trailer is 0 if there is no entry
		err = unknownKind(f.trailer)
	}
	return f, ranOff, err
}

func unknownKind(trailer uint64) error {
	return fmt.Errorf("%w: entry of kind %d", base.ErrUnsupported, uint8(trailer))
}

// Properties returns the table's properties, or nil if it has none or they are
// damaged. They must not be modified.
func (r *Reader) Properties() *Properties { return r.props }

// MetaErr returns the damage that NewReader found in the metaindex handle, the metaindex or the
// properties, or nil.
func (r *Reader) MetaErr() error { return r.metaErr }

// ApproximateOffset returns the approximate file offset at which the key is or would be. It returns
// -1 if the index is not in memory and cannot be read.
func (r *Reader) ApproximateOffset(userKey []byte) int64 {
	x, err := r.loadIndex()
	if err != nil {
		return -1
	}
	i := x.find(userKey, base.Trailer(base.MaxSequence, base.KindSeek))
	if i < x.numBlocks() {
		return int64(x.handle(i).Offset)
	}
	return r.dataEnd
}

// IndexBytes returns the memory that the reader takes without its filters, in bytes: the index, if
// it is in memory, and the properties.
func (r *Reader) IndexBytes() int64 {
	n := int64(unsafe.Sizeof(*r))
	if x := r.index.Load(); x != nil {
		n += x.bytesHeld()
	}
	if p := r.props; p != nil {
		n += int64(unsafe.Sizeof(*p)) + int64(len(p.Smallest)+len(p.Largest)+4*len(p.unitCRCs))
	}
	return n
}

// Release evicts the table's blocks from the cache, keeps new ones out, and makes the pools stop
// counting the table's filter and index. The reader can still be used. Call Release when the table
// is dropped.
func (r *Reader) Release() {
	r.filterMu.Lock()
	if held := r.filter.Load(); held != nil {
		r.giveBack(held.units)
	}
	r.pool = nil
	r.filterMu.Unlock()
	r.indexMu.Lock()
	defer r.indexMu.Unlock()
	r.released.Store(true)
	if x := r.index.Load(); x != nil {
		r.indexes.drop(x)
		r.releaseBlocks(x)
	}
}

// releaseBlocks evicts the cached blocks of an index and keeps new ones out.
func (r *Reader) releaseBlocks(x *index) {
	if x.cached != nil {
		r.cache.release(x)
	}
}
