package torture

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Edit is one operation of a write.
type Edit struct {
	Key    string
	Value  string
	Delete bool
}

// outcome is the result of a write.
type outcome uint8

const (
	pending outcome = iota // the call has not returned
	acked                  // it returned nil
	failed                 // it returned an error: the write may or may not be there
	absent                 // it failed, and a later open did not find it
)

// write is one call of Write, Put, Delete or DeleteRange.
type write struct {
	edits   []Edit
	sync    bool
	ranged  bool // a DeleteRange: until it succeeds, any subset of the edits may be applied
	outcome outcome
	// started and ended are the numbers of operations on the file system before and after
	// the call. After a power cut at operation n the write may be there if started < n, and
	// must be there if sync and ended <= n.
	started, ended int
}

// never is later than any operation.
const never = math.MaxInt

// barrier is a call that made all earlier writes durable.
type barrier struct{ writes, ended int }

// History is the oracle of one writer: its writes, in order, and their outcomes. The
// contents after a power cut must be those after the first p writes, for a p that includes
// all synced writes.
type History struct {
	base     map[string]string // the contents before the first write
	writes   []write
	barriers []barrier
	session  int // the first write since the last open

	now  map[string]string // what a reader should see: base with the acknowledged writes
	sums []uint64          // after Finish: the checksum of the contents after each number of writes
}

// NewHistory returns an oracle for a database that holds base.
func NewHistory(base map[string]string) *History {
	return &History{base: base, now: maps.Clone(orEmpty(base))}
}

func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	return m
}

// Begin records that a write is about to start.
func (h *History) Begin(edits []Edit, sync bool, ops int) {
	h.writes = append(h.writes, write{edits: edits, sync: sync, started: ops, ended: never})
}

// End records the outcome of the write that began last.
func (h *History) End(err error, ops int) {
	w := &h.writes[len(h.writes)-1]
	w.ended = ops
	if err != nil {
		w.outcome = failed
		return
	}
	w.outcome = acked
	apply(h.now, w.edits)
}

// Durable records that all writes so far are durable.
func (h *History) Durable(ops int) {
	h.barriers = append(h.barriers, barrier{len(h.writes), ops})
}

func apply(m map[string]string, edits []Edit) {
	for _, e := range edits {
		if e.Delete {
			delete(m, e.Key)
		} else {
			m[e.Key] = e.Value
		}
	}
}

// Keys returns all keys that were ever written, sorted.
func (h *History) Keys() []string {
	set := map[string]bool{}
	for k := range h.base {
		set[k] = true
	}
	for _, w := range h.writes {
		for _, e := range w.edits {
			set[e.Key] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// bounds returns how many writes must and how many may be found after a power cut at
// operation ops.
func (h *History) bounds(ops int) (must, may int) {
	for i, w := range h.writes {
		if w.started < ops {
			may = i + 1
		}
		if w.sync && w.outcome == acked && w.ended <= ops {
			must = i + 1
		}
	}
	for _, b := range h.barriers {
		if b.ended <= ops {
			must = max(must, b.writes)
		}
	}
	// A write that was refused before it reached the disk may have begun at ops.
	return must, max(may, must)
}

// Began returns how many writes had begun within the first ops operations.
func (h *History) Began(ops int) int {
	_, may := h.bounds(ops)
	return may
}

// Found compares the contents of a database after a power cut at operation ops with the
// history, and returns the number of writes that it holds. It may hold at most one failed
// write per session: after a failure nothing is written.
func (h *History) Found(contents map[string]string, ops int) (p int, err error) {
	must, may := h.bounds(ops)
	sum := sumOf(contents)
	if p, ok := h.match(sum, must, may, -1); ok {
		return p, nil
	}
	for i := must; i < may; i++ {
		if h.writes[i].outcome != failed {
			continue
		}
		if p, ok := h.match(sum, i+1, may, i); ok {
			return p, nil
		}
	}
	for i := max(must-1, 0); i < may; i++ {
		if w := &h.writes[i]; w.ranged && (w.outcome == failed || w.ended > ops) {
			if _, ok := w.partly(h.after(i), contents); ok {
				return i + 1, nil
			}
		}
	}
	if p, ok := h.match(sum, 0, must-1, -1); ok {
		return p, fmt.Errorf("durable writes are lost: %d of %d are there, and %d were durable", p, len(h.writes), must)
	}
	if p, ok := h.match(sum, may+1, len(h.writes), -1); ok {
		return p, fmt.Errorf("writes that had not begun: %d are there, and %d had begun", p, may)
	}
	return 0, fmt.Errorf("the contents match no number of writes from %d to %d; compared with %d: %s",
		must, may, may, difference(contents, h.after(may)))
}

// partly reports whether some of the edits, all of which are deletes, turn before into
// contents, and returns these edits.
func (w *write) partly(before, contents map[string]string) (done []Edit, ok bool) {
	left := maps.Clone(before)
	for _, e := range w.edits {
		if _, there := contents[e.Key]; !there {
			delete(left, e.Key)
			done = append(done, e)
		}
	}
	return done, maps.Equal(left, contents)
}

// match looks for the largest number of writes in from..to after which the contents have
// the given sum. Failed writes do not count, except number extra.
func (h *History) match(sum uint64, from, to, extra int) (p int, ok bool) {
	if extra < 0 && len(h.sums) > 0 {
		for p := min(to, len(h.writes)); p >= from; p-- {
			if h.sums[p] == sum {
				return p, true
			}
		}
		return 0, false
	}
	state := maps.Clone(orEmpty(h.base))
	at := sumOf(state)
	p = -1
	for i := 0; ; i++ {
		if i >= from && i <= to && at == sum {
			p = i
		}
		if i == len(h.writes) || i >= to {
			return p, p >= 0
		}
		if w := &h.writes[i]; w.outcome < failed || i == extra {
			at = applySum(state, w.edits, at)
		}
	}
}

// Finish ends the history, which makes Found fast.
func (h *History) Finish() {
	state := maps.Clone(orEmpty(h.base))
	h.sums = append(h.sums[:0], sumOf(state))
	for _, w := range h.writes {
		at := h.sums[len(h.sums)-1]
		if w.outcome < failed {
			at = applySum(state, w.edits, at)
		}
		h.sums = append(h.sums, at)
	}
}

// after returns the contents after the first p writes.
func (h *History) after(p int) map[string]string {
	state := maps.Clone(orEmpty(h.base))
	for _, w := range h.writes[:p] {
		if w.outcome < failed {
			apply(state, w.edits)
		}
	}
	return state
}

// Adopt checks and adopts the contents after an open without a power cut: all acknowledged
// writes must be there, and at most one of the session's failed writes, in full.
func (h *History) Adopt(contents map[string]string) error {
	sum := sumOf(contents)
	extra := -1
	if sum != sumOf(h.now) {
		for i := h.session; i < len(h.writes); i++ {
			w := &h.writes[i]
			if w.outcome != failed {
				continue
			}
			if _, ok := h.match(sum, len(h.writes), len(h.writes), i); ok {
				extra = i
				break
			}
			if done, ok := w.partly(orEmpty(h.now), contents); w.ranged && ok {
				extra, w.edits = i, done
				break
			}
		}
		if extra < 0 {
			return fmt.Errorf("the contents differ from what was acknowledged: %s", difference(contents, h.now))
		}
	}
	for i := h.session; i < len(h.writes); i++ {
		if w := &h.writes[i]; w.outcome == failed {
			w.outcome = absent
			if i == extra {
				w.outcome = acked
				w.sync = w.sync && !w.ranged // its deletes may not have been durable
			}
		}
	}
	h.now = maps.Clone(orEmpty(contents))
	h.session = len(h.writes)
	return nil
}

// sumOf returns a checksum of contents, independent of order.
func sumOf(contents map[string]string) (sum uint64) {
	for k, v := range contents {
		sum += entrySum(k, v)
	}
	return sum
}

func entrySum(key, value string) uint64 {
	return (xxhash.Sum64String(key)*0x9e3779b97f4a7c15 + 1) * (xxhash.Sum64String(value) | 1)
}

// applySum is apply, and returns the new sum.
func applySum(m map[string]string, edits []Edit, sum uint64) uint64 {
	for _, e := range edits {
		if old, ok := m[e.Key]; ok {
			sum -= entrySum(e.Key, old)
		}
		if e.Delete {
			delete(m, e.Key)
			continue
		}
		m[e.Key] = e.Value
		sum += entrySum(e.Key, e.Value)
	}
	return sum
}

// difference describes how two contents differ.
func difference(got, want map[string]string) string {
	var lines []string
	for _, k := range slices.Sorted(maps.Keys(got)) {
		if w, ok := want[k]; !ok {
			lines = append(lines, fmt.Sprintf("%.40q should not be there", k))
		} else if w != got[k] {
			lines = append(lines, fmt.Sprintf("%.40q is %.20q, want %.20q", k, got[k], w))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if _, ok := got[k]; !ok {
			lines = append(lines, fmt.Sprintf("%.40q is missing", k))
		}
	}
	n := len(lines)
	if n > 6 {
		lines = append(lines[:6], "...")
	}
	return fmt.Sprintf("%d differences: %s", n, strings.Join(lines, "; "))
}
