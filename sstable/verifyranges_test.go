package sstable

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
)

// lyingRange builds range filters over other keys than those that are added.
type lyingRange struct{ filter.RangePolicy }

func (p lyingRange) NewWriter() filter.RangeWriter {
	return lyingRangeWriter{p.RangePolicy.NewWriter()}
}

type lyingRangeWriter struct{ filter.RangeWriter }

func (w lyingRangeWriter) Add(prefix []byte, x uint64) { w.RangeWriter.Add(prefix, ^x) }

// TestVerifyFindsDamagedRanges checks that Verify reports the offset of a range filter that is
// damaged, belongs to another table, or holds other keys.
func TestVerifyFindsDamagedRanges(t *testing.T) {
	for _, c := range []struct {
		desc   string
		lie    bool
		change func(data []byte, r *Reader, at Handle)
		ok     bool
	}{
		{desc: "intact", ok: true},
		{desc: "over other keys", lie: true},
		{desc: "a wrong checksum", change: func(data []byte, _ *Reader, at Handle) { data[at.Offset] ^= 1 }},
		{desc: "another table's", change: func(data []byte, _ *Reader, at Handle) {
			alter(data, at, func(b []byte) { b[0] ^= 1 })
		}},
		{desc: "malformed", change: func(data []byte, r *Reader, at Handle) {
			alter(data, at, func(b []byte) {
				b[0] ^= 1
				r.props.rangeCRC = base.Checksum(b, []byte{typePlain})
			})
		}},
		{desc: "of an unknown family", ok: true, change: func(_ []byte, r *Reader, _ Handle) { r.rangePolicies = nil }},
	} {
		policy := filter.Range(14, 0)
		if c.lie {
			policy = lyingRange{policy}
		}
		data, _ := buildTable(t, numbered(100), &WriterOptions{Range: policy, DisableCompression: true})
		r := openTable(t, data, &ReaderOptions{MaxFilterUnits: -1})
		m, ok := r.rangeMeta()
		if !ok {
			t.Fatal("no range filter")
		}
		if c.change != nil {
			c.change(data, r, m.Handle)
		}
		var found error
		if err := r.Verify(t.Context(), func(err error) { found = errors.Join(found, err) }); err != nil {
			t.Fatal(err)
		}
		var ce *base.CorruptionError
		if c.ok != (found == nil) || found != nil && (!errors.As(found, &ce) || ce.Offset != int64(m.Handle.Offset)) {
			t.Errorf("%s, at %d: %v", c.desc, m.Handle.Offset, found)
		}
	}
}

// TestShortKeys checks that Verify and scans report a key without a trailer as damage, although its
// block has a valid checksum, and that no lookup returns a wrong answer.
func TestShortKeys(t *testing.T) {
	for short := range 6 {
		for interval := 1; interval <= 3; interval++ {
			w := blockWriter{interval: interval}
			for i := range 6 {
				k := base.AppendInternalKey(nil, fmt.Appendf(nil, "k%d", i), 1, KindSet)
				if i == short {
					k = k[:5]
				}
				w.add(k, w.shared(k), fmt.Appendf(nil, "v%d", i))
			}
			end := base.AppendInternalKey(nil, []byte("l"), 1, KindSet)
			data := handmadeTable(bytes.Clone(w.finish()), end)
			damaged := func(what string, err error) {
				t.Helper()
				if ce := (*base.CorruptionError)(nil); !errors.As(err, &ce) || ce.Offset != 0 {
					t.Errorf("key %d short, interval %d: %s: %v", short, interval, what, err)
				}
			}
			var found error
			if err := openTable(t, data, nil).Verify(t.Context(), func(err error) { found = err }); err != nil {
				t.Fatal(err)
			}
			damaged("Verify", found)
			it := openTable(t, data, nil).NewIter(nil)
			for ok := it.First(); ok; ok = it.Next() {
			}
			damaged("forwards", it.Err())
			for ok := it.Last(); ok; ok = it.Prev() {
			}
			damaged("backwards", it.Err())
			if err := it.Close(); err != nil && !errors.Is(err, base.ErrCorruption) {
				t.Error(err)
			}
			for i := range 6 {
				v, _, _, ok, err := openTable(t, data, nil).Get(fmt.Appendf(nil, "k%d", i), 1)
				if err == nil && (!ok || string(v) != fmt.Sprintf("v%d", i)) {
					t.Errorf("key %d short, interval %d: Get of key %d: %q, %t", short, interval, i, v, ok)
				}
			}
		}
	}
}

// TestVerifyHashesPrefixesOnce checks that Verify probes a prefix that neighboring keys share only
// once: with an EachPrefix, keys of many delimiters would otherwise take time in proportion to the
// square of their length.
func TestVerifyHashesPrefixesOnce(t *testing.T) {
	const keys, depth = 50, 60
	var list []kv
	for i := range keys {
		list = append(list, kv{strings.Repeat("/", (i+1)*depth), 1, KindSet, ""})
	}
	policy := &countedPolicy{Policy: filter.Bloom(10)}
	data, _ := buildTable(t, list, &WriterOptions{Filter: policy, Prefix: EachPrefix('/')})
	r := openTable(t, data, &ReaderOptions{Policies: []filter.Policy{policy}})
	if r.PrefixFilter() == "" {
		t.Fatal("the filter contains no prefixes")
	}
	if err := r.Verify(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	if want := keys + keys*depth; policy.probes != want {
		t.Errorf("%d probes for %d keys and %d prefixes", policy.probes, keys, keys*depth)
	}
}

// countedPolicy counts the probes of its filters.
type countedPolicy struct {
	filter.Policy
	probes int
}

func (p *countedPolicy) Open(units [][]byte) (filter.Reader, error) {
	r, err := p.Policy.Open(units)
	return &countedReader{r, p}, err
}

type countedReader struct {
	filter.Reader
	policy *countedPolicy
}

func (r *countedReader) MayContain(k filter.Key) bool {
	r.policy.probes++
	return r.Reader.MayContain(k)
}

// unboundedEach claims in the properties to be EachPrefix('/'), without its bound.
type unboundedEach struct{}

func (unboundedEach) Name() string         { return EachPrefix('/').Name() }
func (unboundedEach) PrefixLen([]byte) int { return 1 }

// TestVerifyBoundsPrefixes checks that Verify does not probe all prefixes of a key of delimiters.
func TestVerifyBoundsPrefixes(t *testing.T) {
	policy := &countedPolicy{Policy: filter.Bloom(10)}
	data, _ := buildTable(t, []kv{{strings.Repeat("/", 5000), 1, KindSet, ""}}, &WriterOptions{Filter: policy, Prefix: unboundedEach{}})
	r := openTable(t, data, &ReaderOptions{Policies: []filter.Policy{policy}})
	policy.probes = 0
	if err := r.Verify(t.Context(), func(error) {}); err != nil { // the filter lacks most prefixes
		t.Fatal(err)
	}
	if n := policy.probes; n < 2 || n > 1+maxNewPrefixes {
		t.Errorf("%d probes for one key", n)
	}
}
