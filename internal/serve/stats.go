package serve

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"runtime/metrics"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// stats are the server's counters.
type stats struct {
	connections, rejected, evicted, protocolErrors, authFailures atomic.Uint64
	errors, hits, misses, expired, checkpoints, syncs            atomic.Uint64
	lastSave                                                     atomic.Int64 // s since 1970
	latency                                                      latency
	errorCounts
}

// filterState describes a filter for the status page.
type filterState struct {
	Key           string
	DB            int
	Kind          string
	Layout        string
	Items         uint64
	Capacity      uint64
	Links         int
	Bytes         uint64
	Promised      float64 // NaN for a cuckoo filter, which promises none
	Expected      float64
	Observed      float64 // share of false positives among absent items
	Probes        uint64
	PositiveShare float64 // share of positives among Probes; NaN if that is 0
	RedoBytes     int
	BytesAnItem   float64
}

// filterStates describes the first n filters by key, and returns how many there are.
func (s *Server) filterStates(n int) (out []filterState, all int) {
	s.eachPart(func(p *Server) error {
		states, more := p.ownFilterStates(n - len(out))
		out, all = append(out, states...), all+more
		return nil
	})
	return out, all
}

// ownFilterStates is filterStates for a server that has a database.
func (s *Server) ownFilterStates(n int) ([]filterState, int) {
	type named struct {
		name string
		db   int
		f    *filter
	}
	var all []named
	gens := s.generations() // one for each database, even if SWAPDB runs meanwhile
	for i := range s.stripes {
		st := &s.stripes[i]
		st.names.RLock()
		for name, f := range st.filters {
			db := slices.Index(gens, binary.BigEndian.Uint32([]byte(name[1:genLen])))
			// A filter of no database is about to be removed.
			if db >= 0 && !s.expired(f.expiry.Load()) && f.damage == nil {
				all = append(all, named{name, db, f})
			}
		}
		st.names.RUnlock()
	}
	sort.Slice(all, func(i, j int) bool { return all[i].name < all[j].name })
	var out []filterState
	for _, v := range all[:min(n, len(all))] {
		state := v.f.state(v.name[genLen:])
		state.DB = v.db
		state.Observed = s.observed(v.f, state.Items)
		out = append(out, state)
	}
	return out, len(all)
}

const (
	// fprProbes is how many absent items are looked up in a filter to observe its rate: enough to
	// distinguish 0.1% from 0.2%, in about a millisecond.
	fprProbes = 10_000
	// fprStep is how many are looked up while the filter's lock is held.
	fprStep = 500
	// observeEvery is how often the rate of a filter that changes is observed.
	observeEvery = 30 * time.Second
)

// observed returns the share of absent items that are false positives: the last observation, or a
// new one if the filter has changed since then and that was a while ago.
func (s *Server) observed(f *filter, items uint64) float64 {
	f.seen.Lock()
	defer f.seen.Unlock()
	switch since := time.Since(f.seen.at); {
	case f.seen.at.IsZero(),
		items != f.seen.items && since > observeEvery,
		items > 2*f.seen.items && since > observeEvery/30: // the filter fills quickly
		f.seen.rate = s.observe(f)
		f.seen.items, f.seen.at = items, time.Now()
	}
	return f.seen.rate
}

// observe looks up items that no client can have added, since they begin with a secret of this
// process. They are the same each time, so that the rate of an unchanged filter does not vary.
func (s *Server) observe(f *filter) float64 {
	item := binary.LittleEndian.AppendUint64(s.secret[:len(s.secret):len(s.secret)], 0)
	hits := 0
	for from := 0; from < fprProbes; from += fprStep {
		f.mu.RLock()
		for i := from; i < from+fprStep; i++ {
			binary.LittleEndian.PutUint64(item[len(s.secret):], uint64(i))
			if f.parts().Contains(item) {
				hits++
			}
		}
		f.mu.RUnlock()
	}
	return float64(hits) / fprProbes
}

// shortKey returns a key for the status page and for labels: in ASCII, with escapes, and of bounded
// length, but still unique: nobody can find two keys with the same 16 bytes of a hash.
func shortKey(key string) string {
	const most = 80
	short := key[:min(len(key), most)]
	q := strconv.QuoteToASCII(short)
	q = q[1 : len(q)-1]
	if len(key) > most {
		sum := sha256.Sum256([]byte(key))
		q += fmt.Sprintf("… (%d bytes, %x)", len(key), sum[:16])
	}
	return q
}

func (f *filter) state(key string) filterState {
	f.mu.RLock()
	defer f.mu.RUnlock()
	v := filterState{Key: shortKey(key), Kind: "cuckoo", Layout: "redis", Bytes: f.parts().Bytes(), Expected: f.parts().ExpectedFPR(),
		Promised: math.NaN(), Probes: f.probes.Load(), PositiveShare: math.NaN(), RedoBytes: f.logged}
	if f.kind == kindBloom {
		v.Kind, v.Items, v.Capacity, v.Links = "bloom", f.bloom.Size(), f.bloom.Capacity(), f.bloom.Links()
		v.Promised = f.bloom.PromisedFPR()
		if f.bloom.Layout() != 0 {
			v.Layout = "tight"
		}
		if v.Probes > 0 {
			v.PositiveShare = float64(f.positives.Load()) / float64(v.Probes)
		}
	} else {
		v.Items, v.Capacity, v.Links = f.cuckoo.Items(), f.cuckoo.Bytes(), f.cuckoo.Links()
	}
	if v.Items > 0 {
		v.BytesAnItem = float64(v.Bytes) / float64(v.Items)
	}
	return v
}

// figures are shared by INFO, /metrics and the status page.
type figures struct {
	Uptime                         time.Duration
	Clients                        int
	Commands                       uint64
	Connections, Rejected, Evicted uint64
	Hits, Misses, Expired          uint64
	Errors, ProtocolErrors         uint64
	AuthFailures                   uint64
	FilterBytes, RequestBytes      int64
	Filters                        int
	HeapBytes, SystemBytes         uint64
	Fsync                          string
	Syncs, Checkpoints             uint64
	Failed                         bool
	StoreGets, StoreBlockReads     uint64
	StoreCacheHits, FilterSaved    uint64
	StoreEntries, StoreTables      uint64
	StoreTableBytes, StoreMemory   uint64
	FilterProbes, FilterFalse      uint64
	Followers                      int
	Group                          GroupState
}

// figures returns the figures of the server, and the sums of those of its parts.
func (s *Server) figures() figures {
	v := s.ownFigures()
	s.eachPart(func(p *Server) error {
		p.addTo(&v)
		return nil
	})
	return v
}

// ownFigures returns the figures of the server itself.
func (s *Server) ownFigures() figures {
	v := figures{
		Uptime: time.Since(s.started), Connections: s.stats.connections.Load(), Rejected: s.stats.rejected.Load(), Evicted: s.stats.evicted.Load(),
		Hits: s.stats.hits.Load(), Misses: s.stats.misses.Load(), Expired: s.stats.expired.Load(),
		Errors: s.stats.errors.Load(), ProtocolErrors: s.stats.protocolErrors.Load(),
		AuthFailures: s.stats.authFailures.Load(),
		FilterBytes:  s.filterBytes.Load(), RequestBytes: s.requestBytes.Load(),
		Fsync: Fsync(s.fsync.Load()).String(), Syncs: s.stats.syncs.Load(), Checkpoints: s.stats.checkpoints.Load(),
	}
	s.clientsMu.Lock()
	v.Clients = len(s.clients)
	s.clientsMu.Unlock()
	for _, c := range commands {
		v.Commands += c.calls.Load()
	}
	v.HeapBytes, v.SystemBytes = goMemory()
	if s.cfg.Group != nil {
		v.Group = s.cfg.Group.State()
		v.Followers = max(0, len(v.Group.Members)-1) * int(count(s.cfg.Leads))
	}
	return v
}

// goMemory returns the size of the objects in Go's heap, and what Go's runtime has taken from the
// system. Unlike runtime.ReadMemStats, it does not stop the other goroutines, which takes
// milliseconds while some are busy.
func goMemory() (heap, taken uint64) {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64() - samples[2].Value.Uint64()
}

// addTo adds the figures of a server's store.
func (s *Server) addTo(v *figures) {
	v.Failed = v.Failed || s.failed.Load()
	for i := range s.stripes {
		s.stripes[i].names.RLock()
		v.Filters += len(s.stripes[i].filters)
		s.stripes[i].names.RUnlock()
	}
	m := s.db.Metrics()
	v.StoreGets += m.Gets
	v.StoreBlockReads += m.BlockReads
	v.StoreCacheHits += m.CacheHits
	v.StoreMemory += m.Memory.Total() - m.Memory.Garbage
	for _, l := range m.Levels {
		v.StoreTables += uint64(l.Tables)
		v.StoreTableBytes += l.Bytes
		v.FilterProbes += l.Filter.Probes
		v.FilterSaved += l.Filter.Useful
		v.FilterFalse += l.Filter.FalsePositive
	}
	for _, t := range s.db.Tables() {
		v.StoreEntries += t.Entries
	}
}

func portOf(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

// resetStats resets the counters, for CONFIG RESETSTAT.
func (s *Server) resetStats() {
	t := &s.stats
	for _, n := range []*atomic.Uint64{&t.connections, &t.rejected, &t.evicted, &t.protocolErrors, &t.authFailures, &t.errors, &t.hits, &t.misses, &t.expired, &t.checkpoints, &t.syncs} {
		n.Store(0)
	}
	for i := range t.latency.counts {
		t.latency.counts[i].Store(0)
	}
	t.errorCounts.mu.Lock()
	t.errorCounts.byWord = nil
	t.errorCounts.mu.Unlock()
	for _, cmd := range commands {
		cmd.calls.Store(0)
		cmd.rejected.Store(0)
		cmd.failed.Store(0)
		cmd.nanos.Store(0)
	}
}
