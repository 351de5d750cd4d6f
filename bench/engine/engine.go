// Package engine puts the compared key-value stores behind one interface. Each adapter uses its
// store as the store's documentation advises for the workload, and Engine.Terms says where its
// terms differ from those of the others.
package engine

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/siftdb/sift/bench/data"
)

// ErrUnsupported is returned for an operation that the store does not have.
var ErrUnsupported = errors.New("not supported")

// Config holds the settings that a store is opened with; a store ignores those that it does
// not have.
type Config struct {
	Dir string
	// Filter is Spec.Filter; "" is the store's usual filter at BloomBits bits per key.
	Filter    string
	BloomBits int
	// RangeBits is the bits per key of range filters; 0: none.
	RangeBits int
	// PrefixBytes is the length of the key prefixes that filters also hold, in stores that
	// have prefix filters but no range filters; 0: none.
	PrefixBytes int
	// Keys is the number of keys that the store will hold.
	Keys int
	// CacheBytes is the size of the cache of uncompressed blocks.
	CacheBytes int64
	// WriteBufferBytes is the size of a memtable.
	WriteBufferBytes int
	// Memory, if not 0, is the memory that the whole process may use. Each store then
	// divides it as its documentation advises, unless CacheBytes or WriteBufferBytes is set.
	Memory int64
	// UseMemory sets sift.Options.Memory to half of Memory; otherwise sift finds out how much
	// memory it may use.
	UseMemory bool
	// FiltersInMemory keeps RocksDB's indexes and filters in memory, beside its cache, even if
	// Memory is set.
	FiltersInMemory bool
	// PartitionFilters: RocksDB writes indexes and filters in partitions, which its block cache
	// holds one by one.
	PartitionFilters bool
	// MapBytes is sift.Options.MapBytes.
	MapBytes int64
	// BlockBytes is the size of a data block before compression.
	BlockBytes int
	// NoCompression stores blocks as they are; the default is snappy.
	NoCompression bool
	// Sync makes each commit wait for the disk.
	Sync bool
	// TxnBatch is the number of writes per transaction in stores that write only in
	// transactions.
	TxnBatch int
}

// share returns set if it is not 0, otherwise 1/parts of the memory, but at least least and
// at most most bytes.
func (c *Config) share(set, parts, least, most int64) int64 {
	if set != 0 || c.Memory == 0 {
		return set
	}
	return min(max(c.Memory/parts, least), most)
}

// Engine is a kind of store.
type Engine struct {
	// Name is the store's name in a Spec.
	Name string
	// Version is the version of the linked library.
	Version string
	// Modes are the ways to look up a key, the default first.
	Modes []Mode
	// Terms says how the terms on which the store is measured differ from those of the
	// others.
	Terms string
	// PageWrites: it writes through memory maps, or writes the same pages repeatedly, so what
	// reaches the disk is measured by the pages that it dirties, not by its write calls.
	PageWrites bool
	// Filters describes the filters that a Spec may name, for the help text.
	Filters string
	// CheckFilter returns an error if the store does not have the filter; nil: a Spec may
	// not name one.
	CheckFilter func(filter string) error
	// RangeFilters: it has range filters.
	RangeFilters bool
	// RangeWays are the ways in which its DB, a RangeReader, can look for a key in a range; nil:
	// its DB is not a RangeReader.
	RangeWays []string
	// DeletesRanges: its DB is a RangeDeleter.
	DeletesRanges bool
	// Variant: the library of another engine with other settings, so Version is empty. It takes
	// part only where it is named.
	Variant bool
	// Open opens or creates a database.
	Open func(Config) (DB, error)
}

// Mode is a way to look up keys.
type Mode struct {
	Name  string // "" for the usual one
	Title string // describes it
}

// DB is an open database. NewReader, NewWriter and NewIter may be called from
// several goroutines.
type DB interface {
	// NewReader returns a reader for one goroutine. It sees at least what was
	// written before the call.
	NewReader(mode string) (Reader, error)
	// NewWriter returns a writer for one goroutine.
	NewWriter() (Writer, error)
	// NewIter returns an iterator for one goroutine.
	NewIter() (Iter, error)
	// Quiesce flushes the memtable, where the store has a call for it, and returns when
	// background work has quiesced.
	Quiesce() error
	// Flush writes the memtable to a table. It may return ErrUnsupported.
	Flush() error
	// Compact compacts everything, or returns ErrUnsupported.
	Compact() error
	// Counters returns the counts since Open.
	Counters() Counters
	// FilterBytes returns the size of all filters, -1 if unknown.
	FilterBytes() int64
	Close() error
}

// Loader is a DB that can load many keys in bulk.
type Loader interface {
	// Load stores entries, which must come in ascending key order.
	Load(entries iter.Seq2[[]byte, []byte]) error
}

// Reader looks up keys.
type Reader interface {
	// Get reads the value of key and returns its length.
	Get(key []byte) (n int, found bool, err error)
	// Value appends the value of key to dst, for checks.
	Value(dst, key []byte) (value []byte, found bool, err error)
	Close() error
}

// ManyReader is a Reader that can look up many keys in one call.
type ManyReader interface {
	GetMany(keys [][]byte) (found int, err error)
}

// Writer writes keys.
type Writer interface {
	Put(key, value []byte) error
	Delete(key []byte) error
	// Close commits pending writes.
	Close() error
}

// Iter moves over keys in order.
type Iter interface {
	SeekGE(key []byte) bool
	First() bool
	Last() bool
	Next() bool
	Prev() bool
	Key() []byte
	Value() []byte
	// Close returns the error that stopped the iterator, if any.
	Close() error
}

// NativeReader is a Reader of a store in C++ that loops over many keys there, so that the
// cost of cgo calls is not measured.
type NativeReader interface {
	// GetEach looks up keys[from:to] one by one. If every > 0, it times each every-th
	// lookup and appends the nanoseconds to lat.
	GetEach(keys *data.Keys, from, to, every int, lat []int64) (found int, timed []int64, err error)
}

// NativeWriter is the same for writes; values[i] belongs to keys[i].
type NativeWriter interface {
	PutEach(keys, values *data.Keys, from, to, every int, lat []int64) (timed []int64, err error)
}

// NativeIter is the same for iterators.
type NativeIter interface {
	// SeekEach seeks each key, reads the entry there and nexts more, and returns the number
	// of entries read.
	SeekEach(keys *data.Keys, from, to, nexts, every int, lat []int64) (entries int, timed []int64, err error)
	// ScanAll reads all entries, forward or backward, up to limit.
	ScanAll(backward bool, limit int) (entries int, err error)
}

// RangeDeleter is a DB that can delete a range in one call.
type RangeDeleter interface {
	// DeleteRange deletes the keys in [from, to).
	DeleteRange(from, to []byte) error
}

// RangeReader is a DB that can find out whether a key range holds a key.
type RangeReader interface {
	// CountRanges returns how many of the ranges [from[i], to[i]) hold a key.
	CountRanges(way string, from, to *data.Keys) (found int, err error)
}

// LevelCounter is a DB that counts filter probes by level.
type LevelCounter interface {
	Levels() []LevelFilter
}

// LevelFilter describes the filters of one level, with the counts since Open.
type LevelFilter struct {
	Level         int     `json:"level"`
	Tables        int     `json:"tables"`
	Bytes         uint64  `json:"bytes"`
	FilterBytes   uint64  `json:"filter_bytes"`
	Probes        uint64  `json:"asked"`
	Useful        uint64  `json:"useful"`
	TruePositive  uint64  `json:"true_positive"`
	FalsePositive uint64  `json:"false_positive"`
	ExpectedFPR   float64 `json:"expected_fpr"`
}

// Counters are counts that the store itself keeps; -1: unknown.
type Counters struct {
	// BlockReads counts the block reads that missed the cache, ReadBytes their bytes.
	BlockReads, ReadBytes int64
	// FilterProbes counts filter probes, FilterUseful the negatives, FilterTrue and FilterFalse the
	// true and the false positives.
	FilterProbes, FilterUseful, FilterTrue, FilterFalse int64
}

// MapWriter is a DB that writes some bytes through memory maps, which the operating system's
// count of bytes written by write calls does not include.
type MapWriter interface {
	// MappedBytes returns the number of those bytes since Open.
	MappedBytes() int64
}

// Unknown is Counters with nothing known.
var Unknown = Counters{-1, -1, -1, -1, -1, -1}

// Sub returns the counts since old.
func (c Counters) Sub(old Counters) Counters {
	sub := func(a, b int64) int64 {
		if a < 0 || b < 0 {
			return -1
		}
		return a - b
	}
	return Counters{
		sub(c.BlockReads, old.BlockReads), sub(c.ReadBytes, old.ReadBytes),
		sub(c.FilterProbes, old.FilterProbes), sub(c.FilterUseful, old.FilterUseful),
		sub(c.FilterTrue, old.FilterTrue), sub(c.FilterFalse, old.FilterFalse),
	}
}

var engines []*Engine

// absent lists the engines that this program was built without, and how to build them in.
var absent = map[string]string{}

func register(e *Engine) { engines = append(engines, e) }

// All returns the engines that this program was built with, variants last.
func All() []*Engine {
	return slices.SortedStableFunc(slices.Values(engines), func(a, b *Engine) int { return order(a) - order(b) })
}

func order(e *Engine) int {
	if e.Variant {
		return 1
	}
	return 0
}

// Usual returns All without the variants.
func Usual() []*Engine {
	return slices.DeleteFunc(All(), func(e *Engine) bool { return e.Variant })
}

// Missing returns the engines that it was built without, and how to build them in.
func Missing() map[string]string { return absent }

// Spec is an engine with a filter: "pebble", "pebble:none", "sift:ribbon(8)".
type Spec struct {
	*Engine
	Filter string
}

// String returns the spec as ParseSpecs reads it.
func (s Spec) String() string {
	if s.Filter == "" {
		return s.Name
	}
	return s.Name + ":" + s.Filter
}

// ParseSpecs parses a comma-separated list of specs; commas inside parentheses do not
// separate. skipped lists the specs whose engine is not built in, with the reason.
func ParseSpecs(list string) (specs []Spec, skipped []string, err error) {
	for _, word := range splitOutside(list, ',') {
		name, filter, _ := strings.Cut(strings.TrimSpace(word), ":")
		if how, ok := absent[name]; ok {
			skipped = append(skipped, fmt.Sprintf("%s: %s", word, how))
			continue
		}
		i := slices.IndexFunc(engines, func(e *Engine) bool { return e.Name == name })
		if i < 0 {
			return nil, nil, fmt.Errorf("engine %q is unknown", name)
		}
		e := engines[i]
		if filter != "" {
			if e.CheckFilter == nil {
				return nil, nil, fmt.Errorf("engine %s takes no filter", name)
			}
			if err := e.CheckFilter(filter); err != nil {
				return nil, nil, fmt.Errorf("engine %s: %w", name, err)
			}
		}
		specs = append(specs, Spec{e, filter})
	}
	return specs, skipped, nil
}

// splitOutside splits s at each sep outside parentheses.
func splitOutside(s string, sep byte) []string {
	var parts []string
	depth, from := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			depth--
		case sep:
			if depth == 0 {
				parts = append(parts, s[from:i])
				from = i + 1
			}
		}
	}
	if from < len(s) {
		parts = append(parts, s[from:])
	}
	return parts
}

// bitsOf parses filter as word(BITS), such as "bloom(10)".
func bitsOf(filter, word string) (bits int, ok bool) {
	var rest string
	n, err := fmt.Sscanf(filter, word+"(%d%s", &bits, &rest)
	return bits, err == nil && n == 2 && rest == ")" && bits > 0
}
