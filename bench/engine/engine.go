// Package engine puts the key-value stores that are compared behind one
// interface. Each adapter uses the store as its documentation advises for the
// work at hand, and says where it differs from the others.
package engine

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/siftdb/sift/bench/data"
)

// ErrUnsupported is returned for what a store cannot do.
var ErrUnsupported = errors.New("not supported")

// Config is what every store is opened with, as far as it knows the setting.
type Config struct {
	Dir string
	// Filter is what stands behind the colon of a Spec; "" stands for the
	// store's usual filter at BloomBits bits per key.
	Filter    string
	BloomBits int
	// RangeBits is the bits per key of range filters; 0: none.
	RangeBits int
	// PrefixBytes is the length of the prefixes that filters hold as well in stores
	// without range filters, as far as they can; 0: none.
	PrefixBytes int
	// Keys is how many keys the store is to hold.
	Keys int
	// CacheBytes is the size of the cache of uncompressed blocks.
	CacheBytes int64
	// WriteBufferBytes is the size of a memtable.
	WriteBufferBytes int
	// Memory is what the process may use in all, if not 0. Each store then divides it as its
	// documentation advises, and CacheBytes and WriteBufferBytes only count if they are set.
	Memory int64
	// UseMemory tells sift the half of Memory (sift.Options.Memory); otherwise it finds out.
	UseMemory bool
	// MapBytes is sift.Options.MapBytes.
	MapBytes int64
	// BlockBytes is the size of a data block before compression.
	BlockBytes int
	// NoCompression stores blocks as they are; the default is snappy.
	NoCompression bool
	// Sync makes each commit wait for the disk.
	Sync bool
	// TxnBatch is how many writes share a transaction where every write needs one.
	TxnBatch int
}

// share returns what is set, or a share of the memory from least to most bytes.
func (c *Config) share(set, parts, least, most int64) int64 {
	if set != 0 || c.Memory == 0 {
		return set
	}
	return min(max(c.Memory/parts, least), most)
}

// Engine is a kind of store.
type Engine struct {
	// Name is the word that stands for it in a Spec.
	Name string
	// Version is that of the linked library.
	Version string
	// Modes are the ways to look up a key, the usual one first.
	Modes []Mode
	// Terms say where it differs from the terms that are equal for all.
	Terms string
	// PageWrites: it writes through memory maps, or the same pages again and
	// again, so that the pages that it made dirty show what reaches the disk, and
	// write calls do not.
	PageWrites bool
	// FilterResident: its filters are in memory once a table is open, and not in the
	// block cache, from which blocks push them out.
	FilterResident bool
	// Filters says which filters a Spec may ask for.
	Filters string
	// CheckFilter reports whether it knows a filter; nil: it takes none.
	CheckFilter func(filter string) error
	// RangeFilters: it has range filters.
	RangeFilters bool
	// RangeWays are the ways in which its DB, a RangeReader, finds out whether a range has
	// a key; nil: it is none.
	RangeWays []string
	// DeletesRanges: its DB is a RangeDeleter.
	DeletesRanges bool
	// Open opens or creates a database.
	Open func(Config) (DB, error)
}

// Mode is a way to look up keys.
type Mode struct {
	Name  string // "" for the usual one
	Title string // says how
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
	// Settle writes what is in memory to tables, where the store can be told
	// so, and returns when background work has quiesced.
	Settle() error
	// Flush writes what is in memory to tables. It may return ErrUnsupported.
	Flush() error
	// Compact compacts everything, or returns ErrUnsupported.
	Compact() error
	// Counters returns what was counted since Open.
	Counters() Counters
	// FilterBytes returns the bytes of all filters, -1 if unknown.
	FilterBytes() int64
	Close() error
}

// Loader is a DB that can load many keys in bulk.
type Loader interface {
	// Load stores entries that come in ascending order of their keys.
	Load(entries iter.Seq2[[]byte, []byte]) error
}

// Reader looks up keys.
type Reader interface {
	// Get returns the length of the value of key, which it has read.
	Get(key []byte) (n int, found bool, err error)
	// Value appends the value, for checks.
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
	// Close commits what was written.
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
	// Close returns the error that a move met.
	Close() error
}

// NativeReader is a Reader of a store in another language, which goes through
// many keys there, so that the crossing of languages does not count.
type NativeReader interface {
	// GetEach looks up keys from to to-1 one by one. If every > 0, it times
	// every so many-th and appends the nanoseconds to lat.
	GetEach(keys *data.Keys, from, to, every int, lat []int64) (found int, timed []int64, err error)
}

// NativeWriter is the same for writes; values[i] belongs to keys[i].
type NativeWriter interface {
	PutEach(keys, values *data.Keys, from, to, every int, lat []int64) (timed []int64, err error)
}

// NativeIter is the same for iterators.
type NativeIter interface {
	// SeekEach seeks each key and reads it and nexts more, and returns the
	// number of entries read.
	SeekEach(keys *data.Keys, from, to, nexts, every int, lat []int64) (entries int, timed []int64, err error)
	// ScanAll reads all entries, forward or backward, up to limit.
	ScanAll(backward bool, limit int) (entries int, err error)
}

// RangeDeleter is a DB that can delete a range in one call.
type RangeDeleter interface {
	// DeleteRange deletes the keys from from, included, to to, excluded.
	DeleteRange(from, to []byte) error
}

// RangeReader is a DB that can find out whether ranges have a key.
type RangeReader interface {
	// CountRanges returns how many of the ranges from from[i] to to[i] have a key.
	CountRanges(way string, from, to *data.Keys) (found int, err error)
}

// LevelCounter is a DB that counts what its filters did level by level.
type LevelCounter interface {
	Levels() []LevelFilter
}

// LevelFilter is what the filters of a level hold and did since Open.
type LevelFilter struct {
	Level         int     `json:"level"`
	Tables        int     `json:"tables"`
	Bytes         uint64  `json:"bytes"`
	FilterBytes   uint64  `json:"filter_bytes"`
	Asked         uint64  `json:"asked"`
	Useful        uint64  `json:"useful"`
	TruePositive  uint64  `json:"true_positive"`
	FalsePositive uint64  `json:"false_positive"`
	ExpectedFPR   float64 `json:"expected_fpr"`
}

// Counters are what a store counts itself; -1 stands for unknown.
type Counters struct {
	// BlockReads are reads of blocks that its cache did not answer, and
	// ReadBytes their bytes.
	BlockReads, ReadBytes int64
	// FilterAsked counts questions to filters, FilterUseful those answered no,
	// FilterTrue and FilterFalse those answered maybe, rightly and wrongly.
	FilterAsked, FilterUseful, FilterTrue, FilterFalse int64
}

// MapWriter is a DB that writes some of its bytes through memory maps, which the
// system's count of bytes in write calls lacks.
type MapWriter interface {
	// MappedBytes returns those written since Open.
	MappedBytes() int64
}

// Unknown is Counters with nothing known.
var Unknown = Counters{-1, -1, -1, -1, -1, -1}

// Sub returns what was counted since old.
func (c Counters) Sub(old Counters) Counters {
	sub := func(a, b int64) int64 {
		if a < 0 || b < 0 {
			return -1
		}
		return a - b
	}
	return Counters{
		sub(c.BlockReads, old.BlockReads), sub(c.ReadBytes, old.ReadBytes),
		sub(c.FilterAsked, old.FilterAsked), sub(c.FilterUseful, old.FilterUseful),
		sub(c.FilterTrue, old.FilterTrue), sub(c.FilterFalse, old.FilterFalse),
	}
}

var engines []*Engine

// absent are the engines that this program was built without, and how to get them.
var absent = map[string]string{}

func register(e *Engine) { engines = append(engines, e) }

// All returns the engines that this program was built with.
func All() []*Engine { return engines }

// Missing returns the engines that it was built without, and how to get them.
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

// ParseSpecs reads a list of specs, separated by commas that stand outside of
// parentheses. skipped lists those whose engine is missing, with the reason.
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

// splitOutside splits s at sep where no parenthesis is open.
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

// bitsOf reads the number in "bloom(10)" and the like.
func bitsOf(filter, word string) (bits int, ok bool) {
	var rest string
	n, err := fmt.Sscanf(filter, word+"(%d%s", &bits, &rest)
	return bits, err == nil && n == 2 && rest == ")" && bits > 0
}
