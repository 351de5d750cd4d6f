package engine

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/bench/data"
	"github.com/siftdb/sift/bench/measure"
	"github.com/siftdb/sift/filter"
)

func init() {
	version := measure.Commit()
	if version == "" {
		version = measure.ModuleVersion("github.com/siftdb/sift")
	}
	register(&Engine{
		Name:          "sift",
		Version:       version,
		Modes:         []Mode{{"", "View, which does not copy"}},
		Terms:         "If no filter is named, its default filters: ribbon at --bloom_bits, with two more bits in level 0. Block checksums are verified on every read. Filters and indexes are in memory. Tables are memory-mapped while their total size is at most 1.25 times the memory, and pages that were read stay resident.",
		Filters:       "a filter policy of sift: bloom(BITS), ribbon(BITS), none, ...; a suffix @BITS, or @BITS alone, limits the filters in memory to BITS bits per key (Options.FilterMemory)",
		CheckFilter:   func(f string) error { _, err := parseSiftFilter(f); return err },
		DeletesRanges: true,
		RangeFilters:  true,
		RangeWays:     []string{newIter, "Reset", "HasRange", "HasRanges by 256"},
		Open:          openSift,
	})
}

// siftFilter is Spec.Filter, parsed.
type siftFilter struct {
	policy   filter.Policy // nil: the default
	heldBits float64       // bits per key in memory; 0: all
}

func parseSiftFilter(s string) (siftFilter, error) {
	var f siftFilter
	name, held, limited := strings.Cut(s, "@")
	var err error
	if limited {
		if f.heldBits, err = strconv.ParseFloat(held, 64); err != nil || !(f.heldBits > 0 && f.heldBits <= 100) {
			return f, fmt.Errorf("%q: the bits per key after the @ must be above 0 and at most 100", s)
		}
	}
	if name != "" {
		f.policy, err = filter.Parse(name)
	}
	return f, err
}

type siftDB struct {
	db    *sift.DB
	write *sift.WriteOptions
}

func openSift(c Config) (DB, error) {
	policy := filter.Ribbon(float64(c.BloomBits))
	levels := []filter.Policy{filter.Ribbon(float64(c.BloomBits) + 2)}
	requested, err := parseSiftFilter(c.Filter)
	if err != nil {
		return nil, err
	}
	if requested.policy != nil {
		policy, levels = requested.policy, nil
	}
	cache := c.CacheBytes
	if cache == 0 && c.Memory == 0 {
		cache = -1
	}
	var memory int64
	if c.UseMemory {
		memory = c.Memory / 2
	}
	var ranges filter.RangePolicy
	if c.RangeBits > 0 {
		ranges = filter.Range(c.RangeBits, 0)
	}
	db, err := sift.Open(c.Dir, &sift.Options{
		Filter:             policy,
		RangeFilter:        ranges,
		LevelFilters:       levels,
		FilterMemory:       int64(requested.heldBits * float64(c.Keys) / 8),
		Memory:             memory,
		MapBytes:           c.MapBytes,
		CacheBytes:         cache,
		MemtableBytes:      c.WriteBufferBytes,
		BlockBytes:         c.BlockBytes,
		DisableCompression: c.NoCompression,
	})
	if err != nil {
		return nil, err
	}
	return &siftDB{db, &sift.WriteOptions{NoSync: !c.Sync}}, nil
}

func (d *siftDB) NewReader(string) (Reader, error) { return newSiftReader(d.db), nil }

func (d *siftDB) NewWriter() (Writer, error) { return siftWriter{d}, nil }

func (d *siftDB) NewIter() (Iter, error) {
	it, err := d.db.NewIter(nil)
	if err != nil {
		return nil, err
	}
	return it, nil
}

func (d *siftDB) Load(entries iter.Seq2[[]byte, []byte]) error {
	return d.db.Ingest(background, func(yield func(sift.Op, error) bool) {
		for key, value := range entries {
			if !yield(sift.Op{Key: key, Value: value}, nil) {
				return
			}
		}
	})
}

func (d *siftDB) Quiesce() error {
	if err := d.db.Flush(); err != nil {
		return err
	}
	return waitQuiesced(func() (int64, bool) {
		m := d.db.Metrics()
		return int64(m.Flushes + m.Compactions + m.Moves), false
	})
}

func (d *siftDB) Flush() error { return d.db.Flush() }

func (d *siftDB) Compact() error { return d.db.Compact(background, nil, nil) }

func (d *siftDB) DeleteRange(from, to []byte) error { return d.db.DeleteRange(background, from, to) }

func (d *siftDB) CountRanges(way string, from, to *data.Keys) (found int, err error) {
	switch way {
	case "HasRange":
		return countRanges(from, to, d.db.HasRange)
	case "HasRanges by 256":
		return d.countTogether(from, to)
	case "Reset":
		it, err := d.db.NewIter(nil)
		if err != nil {
			return 0, err
		}
		found, err := countRanges(from, to, func(from, to []byte) (bool, error) {
			err := it.Reset(&sift.IterOptions{LowerBound: from, UpperBound: to})
			return err == nil && it.First(), err
		})
		return found, errors.Join(err, it.Close())
	}
	return countRanges(from, to, func(from, to []byte) (bool, error) {
		it, err := d.db.NewIter(&sift.IterOptions{LowerBound: from, UpperBound: to})
		if err != nil {
			return false, err
		}
		has := it.First()
		return has, it.Close()
	})
}

func (d *siftDB) countTogether(from, to *data.Keys) (found int, err error) {
	var ranges []sift.KeyRange
	for i := range from.Len() {
		ranges = append(ranges, sift.KeyRange{From: from.At(i), To: to.At(i)})
	}
	for some := range slices.Chunk(ranges, 256) {
		has, err := d.db.HasRanges(some)
		if err != nil {
			return found, err
		}
		for _, h := range has {
			if h {
				found++
			}
		}
	}
	return found, nil
}

func (d *siftDB) Counters() Counters {
	m := d.db.Metrics()
	c := Counters{BlockReads: int64(m.BlockReads), ReadBytes: int64(m.BlockReadBytes)}
	for _, l := range m.Levels {
		c.FilterProbes += int64(l.Filter.Probes)
		c.FilterUseful += int64(l.Filter.Useful)
		c.FilterTrue += int64(l.Filter.TruePositive)
		c.FilterFalse += int64(l.Filter.FalsePositive)
	}
	return c
}

// MappedBytes returns the bytes of the log. The log is written through a memory map
// on Linux, the only system where the bytes of write calls are known.
func (d *siftDB) MappedBytes() int64 { return int64(d.db.Metrics().LogBytes) }

func (d *siftDB) Levels() []LevelFilter {
	var levels []LevelFilter
	for i, l := range d.db.Metrics().Levels {
		if l.Tables == 0 {
			continue
		}
		f := LevelFilter{
			Level: i, Tables: l.Tables, Bytes: l.Bytes, FilterBytes: l.Filter.Bytes,
			Probes: l.Filter.Probes, Useful: l.Filter.Useful,
			TruePositive: l.Filter.TruePositive, FalsePositive: l.Filter.FalsePositive,
		}
		if l.Filter.Tables > 0 {
			f.ExpectedFPR = l.Filter.ExpectedFPR
		}
		levels = append(levels, f)
	}
	return levels
}

func (d *siftDB) FilterBytes() int64 { return int64(d.db.Metrics().Memory.Filters) }

func (d *siftDB) Close() error { return d.db.Close() }

// siftReader keeps the functions that it passes to View, so that a lookup does not
// allocate.
type siftReader struct {
	db    *sift.DB
	n     int
	value []byte
	size  func(value []byte) error
	copy  func(value []byte) error
}

func newSiftReader(db *sift.DB) *siftReader {
	r := &siftReader{db: db}
	r.size = func(v []byte) error {
		r.n = len(v)
		return nil
	}
	r.copy = func(v []byte) error {
		r.value = append(r.value, v...)
		return nil
	}
	return r
}

func (r *siftReader) Get(key []byte) (int, bool, error) {
	switch err := r.db.View(key, r.size); err {
	case nil:
		return r.n, true, nil
	case sift.ErrNotFound:
		return 0, false, nil
	default:
		return 0, false, err
	}
}

func (r *siftReader) Value(dst, key []byte) ([]byte, bool, error) {
	r.value = dst
	switch err := r.db.View(key, r.copy); err {
	case nil:
		return r.value, true, nil
	case sift.ErrNotFound:
		return dst, false, nil
	default:
		return dst, false, err
	}
}

func (r *siftReader) GetMany(keys [][]byte) (int, error) {
	values, err := r.db.GetMany(keys)
	found := 0
	for _, v := range values {
		if v != nil {
			found++
		}
	}
	return found, err
}

func (r *siftReader) Close() error { return nil }

type siftWriter struct{ d *siftDB }

func (w siftWriter) Put(key, value []byte) error { return w.d.db.Put(key, value, w.d.write) }

func (w siftWriter) Delete(key []byte) error { return w.d.db.Delete(key, w.d.write) }

func (w siftWriter) Close() error { return nil }
