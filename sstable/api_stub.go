package sstable

import (
	"context"
	"io"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
)

type Kind = base.Kind

const (
	KindDelete = base.KindDelete
	KindSet    = base.KindSet
)

type WriterOptions struct {
	BlockBytes         int
	RestartInterval    int
	DisableCompression bool
	Filter             filter.Policy
	FileNumber         uint64
}

type Properties struct {
	NumEntries, NumDeletions, NumKeys  uint64
	RawKeyBytes, RawValueBytes         uint64
	NumDataBlocks                      uint64
	DataBytes, IndexBytes, FilterBytes uint64
	Smallest, Largest                  []byte
	MinSeq, MaxSeq                     uint64
	FileNumber                         uint64
	FilterPolicy, FilterFamily         string
	FilterUnits                        int
	FilterKeys                         uint64
	FilterFPR                          float64
}

type TableInfo struct {
	Properties
	Size      int64
	FilterErr error
}

type Writer struct{}

func NewWriter(w io.Writer, o *WriterOptions) *Writer { panic("soon") }
func (w *Writer) Add(userKey []byte, seq uint64, kind Kind, value []byte) error {
	panic("soon")
}
func (w *Writer) EstimatedBytes() int64       { panic("soon") }
func (w *Writer) NumEntries() uint64          { panic("soon") }
func (w *Writer) Finish() (*TableInfo, error) { panic("soon") }

type BlockCache struct{}

func NewBlockCache(bytes int64) *BlockCache { return &BlockCache{} }
func (c *BlockCache) Bytes() int64          { return 0 }
func (c *BlockCache) Capacity() int64       { return 0 }

type BlockIO struct{}
type BlockIOCounts struct{ Reads, Bytes, Hits uint64 }

func (b *BlockIO) Load() BlockIOCounts { return BlockIOCounts{} }

type ReaderOptions struct {
	Path           string
	Cache          *BlockCache
	Policies       []filter.Policy
	IgnoreFilter   bool
	MaxFilterUnits int
	IO             *BlockIO
}

type FilterState uint8

const (
	FilterNone FilterState = iota
	FilterOK
	FilterDamaged
	FilterUnknown
	FilterIgnored
)

type Reader struct{}

func NewReader(r io.ReaderAt, size int64, o *ReaderOptions) (*Reader, error) { panic("soon") }
func (r *Reader) Filter() filter.Reader                                      { return nil }
func (r *Reader) MayContain(key filter.Key) bool                             { return true }
func (r *Reader) FilterStatus() (FilterState, error)                         { return 0, nil }
func (r *Reader) FilterFamily() string                                       { return "" }
func (r *Reader) NumFilterUnits() int                                        { return 0 }
func (r *Reader) HeldFilterUnits() int                                       { return 0 }
func (r *Reader) FilterUnitBytes(i int) int64                                { return 0 }
func (r *Reader) LoadFilterUnits(n int) error                                { return nil }
func (r *Reader) Get(userKey []byte, seq uint64) (value []byte, kind Kind, entrySeq uint64, found bool, err error) {
	panic("soon")
}
func (r *Reader) Properties() *Properties                              { return nil }
func (r *Reader) ApproximateOffset(userKey []byte) int64               { return 0 }
func (r *Reader) IndexBytes() int64                                    { return 0 }
func (r *Reader) MemoryBytes() int64                                   { return 0 }
func (r *Reader) Release()                                             {}
func (r *Reader) Verify(ctx context.Context, report func(error)) error { panic("soon") }

type IterOptions struct {
	DontFillCache bool
	Readahead     bool
	SkipDamaged   func(error)
}
type Iter struct{ base.Iterator }

func (r *Reader) NewIter(o *IterOptions) *Iter { panic("soon") }
