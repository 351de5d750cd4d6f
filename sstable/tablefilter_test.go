package sstable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
)

// excludesNothing is a policy whose filters exclude nothing.
type excludesNothing struct{ hashList }

func (p excludesNothing) Open(units [][]byte) (filter.Reader, error) {
	return &hashListReader{p: p.hashList, partial: true}, nil
}

// lookup does what the store does: it probes the filter first, then reads blocks.
func lookup(r *Reader, key string) (string, bool, error) {
	if !r.MayContain(filter.NewKey([]byte(key))) {
		return "", false, nil
	}
	v, _, _, found, err := r.Get([]byte(key), base.MaxSequence)
	return string(v), found, err
}

// TestFilterNeverMatters checks that lookups return the same with the filter, without it, and with
// one that excludes nothing. With the filter, absent keys cost no read.
func TestFilterNeverMatters(t *testing.T) {
	list := numbered(500)
	var probes, excluded atomic.Int64
	policy := hashList{probes: &probes, excluded: &excluded}
	data, _ := buildTable(t, list, &WriterOptions{Filter: policy})
	file := &countingReader{ReaderAt: bytes.NewReader(data)}
	open := func(o *ReaderOptions) *Reader {
		r, err := NewReader(file, int64(len(data)), o)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	with := open(&ReaderOptions{Policies: []filter.Policy{policy}})
	without := open(&ReaderOptions{IgnoreFilter: true})
	always := open(&ReaderOptions{Policies: []filter.Policy{excludesNothing{}}})
	if s, _ := without.FilterStatus(); s != FilterIgnored || without.Filter() != nil {
		t.Errorf("ignored filter: %v", s)
	}
	for i := range 1000 {
		key := fmt.Sprintf("key%08d", i)
		before := file.n.Load()
		v, found, err := lookup(with, key)
		reads := file.n.Load() - before
		if want := int64(1 - i%2); err != nil || reads != want {
			t.Fatalf("%s: %d reads, want %d; %v", key, reads, want, err)
		}
		for _, r := range []*Reader{without, always} {
			if v2, found2, err := lookup(r, key); v2 != v || found2 != found || err != nil {
				t.Fatalf("%s: %q, %v with the filter; %q, %v, %v otherwise", key, v, found, v2, found2, err)
			}
		}
	}
	if probes.Load() != 1000 || excluded.Load() != 500 {
		t.Errorf("%d probes, %d keys excluded", probes.Load(), excluded.Load())
	}
}

// probeMeanwhile probes the reader's filter for the keys of the list, none of which it may exclude,
// on two goroutines until stop is called.
func probeMeanwhile(t *testing.T, r *Reader, list []kv) (stop func()) {
	t.Helper()
	var wg sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				if e := list[i%len(list)]; !r.MayContain(filter.NewKey([]byte(e.key))) {
					t.Errorf("%q is excluded", e.key)
					return
				}
			}
		})
	}
	return func() {
		close(done)
		wg.Wait()
	}
}

// TestFilterUnits loads and drops units during concurrent lookups, none of which may miss a key.
func TestFilterUnits(t *testing.T) {
	list := numbered(30)
	data, info := buildTable(t, list, &WriterOptions{Filter: hashList{unitKeys: 1}})
	if info.FilterUnits != 31 || info.FilterBytes != 30*8+1 {
		t.Fatalf("%d units, %d bytes", info.FilterUnits, info.FilterBytes)
	}
	r := openTable(t, data, &ReaderOptions{Policies: []filter.Policy{hashList{}}, MaxFilterUnits: 5})
	if r.HeldFilterSteps() != 5 || r.NumFilterUnits() != 31 || r.FilterSteps()[3] != 8+blockTrailerLen || r.FilterSteps()[30] != 1+blockTrailerLen || r.FilterFamily() != "test.hashes" {
		t.Fatalf("%d of %d units", r.HeldFilterSteps(), r.NumFilterUnits())
	}
	if none := openTable(t, data, &ReaderOptions{Policies: []filter.Policy{hashList{}}, MaxFilterUnits: -1}); none.Filter() != nil || none.NumFilterUnits() != 31 {
		t.Errorf("%d units are held, %d can be loaded", none.HeldFilterSteps(), none.NumFilterUnits())
	}
	stop := probeMeanwhile(t, r, list)
	absent := filter.NewKey([]byte("absent"))
	for _, n := range []int{0, 31, 30, 1, 31, 31, 0, 0, 7, 31} {
		if err := r.LoadFilterSteps(n); err != nil {
			t.Fatalf("%d units: %v", n, err)
		}
		size := 0
		if f := r.Filter(); f != nil {
			size = f.SizeBytes()
		} else if n > 0 {
			t.Fatalf("no filter with %d units", n)
		}
		if r.HeldFilterSteps() != n || size != min(8*n, 241) {
			t.Fatalf("%d units: %d held, %d bytes", n, r.HeldFilterSteps(), size)
		}
		if r.MayContain(absent) != (n < 31) {
			t.Errorf("%d units: MayContain(absent) is %v", n, r.MayContain(absent))
		}
	}
	stop()
	for _, n := range []int{-1, 32} {
		if err := r.LoadFilterSteps(n); err == nil {
			t.Errorf("LoadFilterSteps(%d) succeeds", n)
		}
	}
	if s, err := r.FilterStatus(); s != FilterOK || err != nil {
		t.Errorf("%v, %v", s, err)
	}
}

// TestDamagedUnit checks that the units before a damaged one can still be used, and that the damage
// is reported, whether it exists at open or occurs later.
func TestDamagedUnit(t *testing.T) {
	data, _ := buildTable(t, numbered(30), &WriterOptions{Filter: hashList{unitKeys: 1}})
	o := &ReaderOptions{Policies: []filter.Policy{hashList{}}, Path: "test.ldb"}
	h := openTable(t, data, o).filterUnits[4]
	damaged := bytes.Clone(data)
	damaged[h.Offset] ^= 1

	r := openTable(t, damaged, o)
	var ce *base.CorruptionError
	if s, err := r.FilterStatus(); s != FilterDamaged || !errors.As(err, &ce) || ce.Offset != int64(h.Offset) {
		t.Errorf("%v, %v", s, err)
	}
	if r.NumFilterUnits() != 4 || r.HeldFilterSteps() != 4 {
		t.Errorf("%d of %d units", r.HeldFilterSteps(), r.NumFilterUnits())
	}

	r = openTable(t, data, o)
	if err := r.LoadFilterSteps(2); err != nil {
		t.Fatal(err)
	}
	r.r = bytes.NewReader(damaged)
	if err := r.LoadFilterSteps(31); !errors.As(err, &ce) {
		t.Errorf("loading a damaged unit: %v", err)
	}
	if s, _ := r.FilterStatus(); s != FilterDamaged || r.HeldFilterSteps() != 2 || r.NumFilterUnits() != 4 {
		t.Errorf("%v, %d of %d units", s, r.HeldFilterSteps(), r.NumFilterUnits())
	}
	// If the first unit is damaged, nothing is left.
	damaged = bytes.Clone(data)
	damaged[r.filterUnits[0].Offset] ^= 1
	r = openTable(t, damaged, o)
	if s, _ := r.FilterStatus(); s != FilterDamaged || r.Filter() != nil || r.NumFilterUnits() != 0 {
		t.Errorf("%v, %v, %d units", s, r.Filter(), r.NumFilterUnits())
	}
	faults := 0
	if err := r.Verify(t.Context(), func(error) { faults++ }); err != nil || faults != 1 {
		t.Errorf("Verify finds %d faults, %v", faults, err)
	}
}

// refusing is a policy whose filters cannot be opened.
type refusing struct{ hashList }

var errRefused = errors.New("refused")

func (refusing) Open([][]byte) (filter.Reader, error) { return nil, errRefused }

var errUnfinished = errors.New("unfinished")

// unfinished is a policy whose writers finish with the given units and error.
type unfinished struct {
	refusing
	units [][]byte
	err   error
}

func (p unfinished) NewWriter() filter.Writer { return unfinishedWriter{p.hashList.NewWriter(), p} }

type unfinishedWriter struct {
	filter.Writer
	p unfinished
}

func (w unfinishedWriter) Finish() ([][]byte, error) { return w.p.units, w.p.err }

// TestFilterStates checks FilterStatus for each reason why a table may have no filter.
func TestFilterStates(t *testing.T) {
	list := numbered(20)
	data, _ := buildTable(t, list, &WriterOptions{Filter: hashList{}})
	for _, c := range []struct {
		desc     string
		policies []filter.Policy
		state    FilterState
		err      error
	}{
		{"no policy for the family", nil, FilterUnknown, filter.ErrUnknownFamily},
		{"policies of other families", []filter.Policy{nil, filter.None(), filter.Bloom(10)}, FilterUnknown, filter.ErrUnknownFamily},
		{"a policy that rejects the bytes", []filter.Policy{refusing{}}, FilterDamaged, errRefused},
		{"the policy", []filter.Policy{hashList{}}, FilterOK, nil},
	} {
		r := openTable(t, data, &ReaderOptions{Policies: c.policies})
		s, err := r.FilterStatus()
		if s != c.state || !errors.Is(err, c.err) || (r.Filter() != nil) != (s == FilterOK) {
			t.Errorf("%s: %v, %v", c.desc, s, err)
		}
		for _, e := range list {
			if err := checkGet(r, list, e.key, e.seq); err != nil || !r.MayContain(filter.NewKey([]byte(e.key))) {
				t.Errorf("%s: %v", c.desc, err)
			}
		}
	}
	// If a filter cannot be built, the table is written without it.
	data, info := buildTable(t, list, &WriterOptions{Filter: refusing{}})
	if !errors.Is(info.FilterErr, errRefused) || info.FilterUnits != 0 {
		t.Errorf("FilterErr is %v", info.FilterErr)
	}
	if s, err := openTable(t, data, nil).FilterStatus(); s != FilterNone || err != nil {
		t.Errorf("%v, %v", s, err)
	}
	openTable(t, data, nil).PrefetchFilter(1) // does nothing
	for _, p := range []unfinished{{units: [][]byte{{1}}, err: errUnfinished}, {}} {
		data, info := buildTable(t, list, &WriterOptions{Filter: p})
		if !errors.Is(info.FilterErr, p.err) || info.FilterUnits != 0 {
			t.Errorf("%v: FilterErr is %v, %d units", p, info.FilterErr, info.FilterUnits)
		}
		if s, err := openTable(t, data, nil).FilterStatus(); s != FilterNone || err != nil {
			t.Errorf("%v: %v, %v", p, s, err)
		}
	}
	for s := FilterNone; s <= FilterIgnored+1; s++ {
		if w := s.String(); w == "" || strings.HasPrefix(w, "FilterState") != (s > FilterIgnored) {
			t.Errorf("state %d is %q", s, w)
		}
	}
}

// TestFilterNames checks that names of units and of families are not confused.
func TestFilterNames(t *testing.T) {
	meta := func(names ...string) (list []MetaBlock) {
		for i, n := range names {
			list = append(list, MetaBlock{n, Handle{Offset: uint64(10 * i)}})
		}
		return list
	}
	m := meta("filter.leveldb.Builtin", "fullfilter.a", "fullfilter.a.1", "fullfilter.a.10", "fullfilter.a.2", "fullfilter.a.4", "fullfilter.b.1", "fullfilter.c.v1", "rocksdb.properties")
	if u := filterHandles(m, "a"); len(u) != 3 || u[1].Offset != 20 || u[2].Offset != 40 {
		t.Errorf("units of a: %v", u)
	}
	m[2].Offset = 12 // within unit 0 and its trailer
	if u := filterHandles(m, "a"); len(u) != 1 {
		t.Errorf("units of a that overlap: %v", u)
	}
	for name, further := range map[string]bool{"a": false, "a.1": true, "a.10": true, "a.0": false, "a.01": false, "a.-1": false, "b.1": false, "c.v1": false} {
		if isFurtherUnit(m, name) != further {
			t.Errorf("isFurtherUnit(%q) is %v", name, !further)
		}
	}
}

// TestEachUserKeyOnce checks that versions of a key are added to the filter once.
func TestEachUserKeyOnce(t *testing.T) {
	var list []kv
	for i := range 10 {
		for seq := range 5 {
			list = append(list, kv{fmt.Sprint(i), uint64(seq), KindSet, ""})
		}
	}
	_, info := buildTable(t, sortEntries(list), &WriterOptions{Filter: hashList{}})
	if info.FilterKeys != 10 || info.NumKeys != 10 || info.NumEntries != 50 {
		t.Errorf("%+v", info)
	}
}

// TestFilterSteps loads and drops columns of a Ribbon filter during concurrent lookups: no key is
// excluded, fewer columns have more false positives, and the memory is at most what FilterSteps
// returned.
func TestFilterSteps(t *testing.T) {
	list := numbered(40_000)
	data, info := buildTable(t, list, &WriterOptions{Filter: filter.Ribbon(10)})
	if info.FilterUnits != 3 {
		t.Fatalf("%d units", info.FilterUnits)
	}
	var pool FilterPool
	r := openTable(t, data, &ReaderOptions{MaxFilterUnits: -1, FilterPool: &pool})
	if len(r.FilterSteps()) != 12 || r.HeldFilterSteps() != 0 || pool.HeldBytes() != 0 {
		t.Fatalf("%d steps, %d held, %d bytes", len(r.FilterSteps()), r.HeldFilterSteps(), pool.HeldBytes())
	}
	var sums [13]int64
	for i := range 12 {
		sums[i+1] = sums[i] + r.FilterSteps()[i]
	}
	if trailers := int64(info.FilterUnits * blockTrailerLen); sums[12] != int64(info.FilterBytes)+trailers {
		t.Errorf("all steps take %d bytes, the filter %d, its trailers %d", sums[12], info.FilterBytes, trailers)
	}
	stop := probeMeanwhile(t, r, list)
	falsePositives := func() (n int) {
		for i := range 20_000 {
			if r.MayContain(filter.NewKey(fmt.Appendf(nil, "absent%d", i))) {
				n++
			}
		}
		return n
	}
	var positives [13]int
	steps := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 10, 7, 6, 3, 2, 0, 9, 12, 1, 12, 5, 0, 12}
	for _, n := range steps {
		if err := r.LoadFilterSteps(n); err != nil {
			t.Fatalf("%d steps: %v", n, err)
		}
		held := pool.HeldBytes()
		if r.HeldFilterSteps() != n || held > sums[n]+blockTrailerLen*int64(n/4) || held < sums[n]*95/100 {
			t.Errorf("%d steps: %d are held, %d bytes of %d", n, r.HeldFilterSteps(), held, sums[n])
		}
		got := falsePositives()
		if positives[n] == 0 {
			positives[n] = got
		} else if positives[n] != got {
			t.Errorf("%d steps: %d false positives among 20,000 absent keys, %d before", n, got, positives[n])
		}
	}
	for n := range 12 {
		if positives[n+1]*10 > positives[n]*9 {
			t.Errorf("%d false positives with %d steps, %d with one more", positives[n], n, positives[n+1])
		}
	}
	stop()
	// A unit that is damaged on disk is not trimmed: the steps held before remain.
	if err := r.LoadFilterSteps(4); err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Clone(data)
	damaged[r.filterUnits[1].Offset+100] ^= 1
	r.r = bytes.NewReader(damaged)
	var ce *base.CorruptionError
	if err := r.LoadFilterSteps(6); !errors.As(err, &ce) || r.HeldFilterSteps() != 4 || len(r.FilterSteps()) != 4 {
		t.Errorf("%v; %d of %d steps are held", err, r.HeldFilterSteps(), len(r.FilterSteps()))
	}
}

// TestFilterStepsBounds checks that no more steps than FilterSteps returns can be loaded, that a
// filter without a pool is not moved, and that a partial unit that cannot be read is not counted.
func TestFilterStepsBounds(t *testing.T) {
	data, _ := buildTable(t, numbered(40_000), &WriterOptions{Filter: filter.Ribbon(10)})
	r := openTable(t, data, &ReaderOptions{MaxFilterUnits: -1})
	n := len(r.FilterSteps())
	for _, steps := range []int{-1, n + 1} {
		if err := r.LoadFilterSteps(steps); err == nil || r.HeldFilterSteps() != 0 {
			t.Errorf("%d steps of %d: %v, %d are held", steps, n, err, r.HeldFilterSteps())
		}
	}
	if err := r.MoveFilter(); err != nil {
		t.Errorf("no filter: %v", err)
	}
	if err := r.LoadFilterSteps(n); err != nil || r.HeldFilterSteps() != n {
		t.Errorf("all steps: %v, %d are held", err, r.HeldFilterSteps())
	}
	if err := r.MoveFilter(); err != nil {
		t.Errorf("no pool: %v", err)
	}
	var pool FilterPool
	r = openTable(t, data, &ReaderOptions{MaxFilterUnits: -1, FilterPool: &pool})
	if err := r.MoveFilter(); err != nil {
		t.Errorf("no filter in a pool: %v", err)
	}
	if err := r.LoadFilterSteps(6); err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Clone(data)
	damaged[r.filterUnits[1].Offset+100] ^= 1
	r.r = bytes.NewReader(damaged)
	if err := r.LoadFilterSteps(5); !errors.Is(err, base.ErrCorruption) || r.HeldFilterSteps() != 0 || pool.HeldBytes() != 0 {
		t.Errorf("a damaged unit: %v; %d steps, %d bytes are held", err, r.HeldFilterSteps(), pool.HeldBytes())
	}
	if left := len(r.FilterSteps()); left != 4 {
		t.Errorf("a damaged unit: %d steps can be loaded, want the 4 of the unit before", left)
	}
}

// TestUnitChecksums checks that the properties must have the right checksum of each unit, or no
// checksums.
func TestUnitChecksums(t *testing.T) {
	data, _ := buildTable(t, numbered(40_000), &WriterOptions{Filter: filter.Ribbon(10)})
	for _, tt := range []struct {
		desc   string
		change func(r *Reader)
		ok     bool
	}{
		{"no properties", func(r *Reader) { r.props = nil }, true},
		{"no checksums", func(r *Reader) { r.props.unitCRCs = nil }, true},
		{"all checksums", func(*Reader) {}, true},
		{"one checksum too few", func(r *Reader) { r.props.unitCRCs = r.props.unitCRCs[:2] }, false},
		{"another unit's checksum", func(r *Reader) { r.props.unitCRCs[2] = r.props.unitCRCs[1] }, false},
	} {
		r := openTable(t, data, &ReaderOptions{MaxFilterUnits: -1})
		tt.change(r)
		err := r.LoadFilterSteps(len(r.FilterSteps()))
		if tt.ok && err != nil || !tt.ok && !errors.Is(err, base.ErrCorruption) {
			t.Errorf("%s: %v", tt.desc, err)
		}
	}
}

// TestPrefixesOnly checks that a filter of another engine that holds only prefixes is not used,
// since it would exclude keys.
func TestPrefixesOnly(t *testing.T) {
	data, _ := buildTable(t, numbered(50), &WriterOptions{Filter: filter.RocksDBBloom(10)})
	for value, want := range map[string]FilterState{"1": FilterOK, "0": FilterUnknown, "": FilterUnknown} {
		r := openTable(t, data, &ReaderOptions{IgnoreFilter: true})
		block := blockWriter{interval: 1}
		if value != "" {
			block.add([]byte(propWholeKeys), 0, []byte(value))
		} else { // as pebble v2
			block.add([]byte(propCompressionOptions), 0, []byte("window_bits=-14"))
		}
		props, err := decodeProperties(block.finish())
		if err != nil {
			t.Fatal(err)
		}
		r.props, r.filterState = props, FilterNone
		if err := r.openFilter(r.meta, &ReaderOptions{}); err != nil {
			t.Fatal(err)
		}
		state, err := r.FilterStatus()
		if state != want || (err == nil) != (want == FilterOK) || (r.Filter() == nil) != (want != FilterOK) {
			t.Errorf("%s = %s: the filter is %v, %v", propWholeKeys, value, state, err)
		}
		excluded := 0
		for i := range 100 {
			if !r.MayContain(filter.NewKey(fmt.Appendf(nil, "absent%d", i))) {
				excluded++
			}
		}
		if (excluded > 80) != (want == FilterOK) || want != FilterOK && excluded > 0 {
			t.Errorf("%s = %s: %d of 100 absent keys are excluded", propWholeKeys, value, excluded)
		}
	}
}

// TestNumFilters checks that each filter counts once, whatever the number of its units.
func TestNumFilters(t *testing.T) {
	for _, c := range []struct {
		names []string
		want  int
	}{
		{[]string{"fullfilter.sift.A", "fullfilter.sift.A.1", "fullfilter.sift.A.2", "sift.properties", "sift.range.B"}, 1},
		{[]string{"filter.leveldb.BuiltinBloomFilter2", "fullfilter.sift.A", "fullfilter.sift.A.1"}, 2},
		{[]string{"fullfilter.sift.A", "fullfilter.sift.B"}, 2},
		{[]string{"sift.properties"}, 0},
	} {
		var meta []MetaBlock
		for _, name := range c.names {
			meta = append(meta, MetaBlock{Name: name})
		}
		if n := numFilters(meta); n != c.want {
			t.Errorf("%q: %d filters, want %d", c.names, n, c.want)
		}
	}
}

// TestFilterStepsAreEnough checks that a filter fits in the sum of its steps.
func TestFilterStepsAreEnough(t *testing.T) {
	for _, p := range []filter.Policy{filter.Bloom(10), filter.Fuse(8), filter.Ribbon(16)} {
		data, _ := buildTable(t, numbered(30_000), &WriterOptions{Filter: p})
		var pool FilterPool
		r := openTable(t, data, &ReaderOptions{FilterPool: &pool, MaxFilterUnits: -1})
		var sum int64
		for n, bytes := range r.FilterSteps() {
			sum += bytes
			pool.SetLimit(max(sum, 1))
			if err := r.LoadFilterSteps(n + 1); err != nil || pool.HeldBytes() > sum {
				t.Fatalf("%s: %d steps in %d bytes: %v, %d held", p.Name(), n+1, sum, err, pool.HeldBytes())
			}
			if err := r.LoadFilterSteps(0); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestVerifyReportsWithoutLocks checks that report may call methods of the reader.
func TestVerifyReportsWithoutLocks(t *testing.T) {
	data, _ := buildTable(t, numbered(1000), &WriterOptions{Filter: filter.Bloom(10)})
	r := openTable(t, data, nil)
	data[r.filterUnits[0].Offset] ^= 1
	faults, done := 0, make(chan error, 1)
	go func() {
		done <- r.Verify(context.Background(), func(error) { faults++; r.FilterStatus(); r.FilterUnits() })
	}()
	select {
	case err := <-done:
		if faults != 1 || err != nil {
			t.Errorf("%d faults, %v", faults, err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Verify waits for a lock that it holds")
	}
}
