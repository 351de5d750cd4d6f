package sstable

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
)

// heldFilter is the loaded part of a filter. It is immutable.
//
// Its units may lie outside Go's heap, where they are freed once their slabs are unreachable.
// reader does not keep slabs reachable, but units does. So the methods of heldFilter keep the
// heldFilter reachable until they return; other users of the units must keep the filterMems
// reachable.
type heldFilter struct {
	reader filter.Reader
	ahead  filter.Prefetcher // reader, if it is one
	public filter.Reader     // what Reader.Filter returns
	units  []filterMem       // the last one may be trimmed
	steps  int               // number of steps in memory
}

func newHeldFilter(f filter.Reader, units []filterMem, steps int, secret *filter.Secret) *heldFilter {
	units = slices.Clone(units) // the array of units may also refer to dropped ones
	h := &heldFilter{reader: f, units: units, steps: steps}
	h.ahead, _ = f.(filter.Prefetcher)
	h.public = h
	if keyed, ok := f.(*filter.KeyedReader); ok && (secret == nil || keyed.HasSecret(*secret)) {
		h.public = &heldKeyed{h, keyed}
	}
	return h
}

// MayContain implements filter.Reader.
func (h *heldFilter) MayContain(key filter.Key) bool {
	may := h.reader.MayContain(key)
	runtime.KeepAlive(h)
	return may
}

// MayContainMany implements filter.Reader.
func (h *heldFilter) MayContainMany(keys []filter.Key, positive []bool) {
	h.reader.MayContainMany(keys, positive)
	runtime.KeepAlive(h)
}

// FPR implements filter.Reader.
func (h *heldFilter) FPR() float64 {
	rate := h.reader.FPR()
	runtime.KeepAlive(h)
	return rate
}

// SizeBytes implements filter.Reader.
func (h *heldFilter) SizeBytes() int {
	n := h.reader.SizeBytes()
	runtime.KeepAlive(h)
	return n
}

// prefetch is Reader.PrefetchFilter.
func (h *heldFilter) prefetch(hash uint64) {
	if h.ahead != nil {
		h.ahead.Prefetch(hash)
		runtime.KeepAlive(h)
	}
}

// heldKeyed is a loaded keyed filter.
type heldKeyed struct {
	*heldFilter
	keyed *filter.KeyedReader
}

// MayContainHash is that of filter.KeyedReader.
func (h *heldKeyed) MayContainHash(hash uint64) bool {
	may := h.keyed.MayContainHash(hash)
	runtime.KeepAlive(h)
	return may
}

// A filter is loaded and dropped in steps: unit by unit, and each unit in
// filter.StepsPerUnit steps.

// FilterSteps returns, for each step, the maximum number of bytes of memory that it adds to the
// steps before it. It omits the steps of damaged units, and of those after them.
func (r *Reader) FilterSteps() []int64 {
	r.filterMu.Lock()
	defer r.filterMu.Unlock()
	var steps []int64
	for i, u := range r.filterUnits {
		before, last := 0, filter.StepsPerUnit(r.filterFamily)-1
		for step := range last + 1 {
			size := filter.TrimmedSize(r.filterFamily, i, len(r.filterUnits), int(u.Length), step+1)
			if step == last {
				size = r.unitBufLen(i) // a whole unit is read in place, with its trailer
			}
			size = max(size, before)
			steps = append(steps, int64(size-before))
			before = size
		}
	}
	return steps
}

// HeldFilterSteps returns the number of steps in memory.
func (r *Reader) HeldFilterSteps() int {
	return r.held().steps
}

// ErrNoRoom is returned by LoadFilterSteps if the steps exceed the FilterPool's limit.
var ErrNoRoom = errors.New("sstable: the filter exceeds the filter memory limit")

// LoadFilterSteps loads the first n steps of the filter, at most len(FilterSteps()), and drops the
// others. It reads a unit again as a whole if it is, or will be, only partly in memory. Lookups
// continue meanwhile.
//
// If the steps exceed the pool's limit, it returns ErrNoRoom and changes nothing. After any other
// error the filter has at most the steps that it had before; a damaged unit and those after it
// can no longer be loaded.
func (r *Reader) LoadFilterSteps(n int) error {
	r.filterMu.Lock()
	defer r.filterMu.Unlock()
	return r.loadFilterSteps(n)
}

// ProveFilter reads and opens a filter that is not wholly in memory, and does not keep it:
// FilterStatus then reports damage, an unknown family or another secret, as after LoadFilterSteps.
// It does so once. It returns only I/O errors.
func (r *Reader) ProveFilter() error {
	r.filterMu.Lock()
	defer r.filterMu.Unlock()
	if n := len(r.filterUnits); r.proven || n == 0 || r.held().steps == n*filter.StepsPerUnit(r.filterFamily) {
		return nil
	}
	var units [][]byte
	for i := range r.filterUnits {
		u, err := r.readFilterUnit(i, filter.AlignedBytes(r.unitBufLen(i)))
		if errors.Is(err, base.ErrCorruption) {
			r.giveUpUnits(i, err)
			return nil
		}
		if err != nil {
			return err
		}
		units = append(units, u)
	}
	if _, err := r.filterOpen(units); err != nil {
		_ = r.lostFilter(err) // FilterStatus has it
	}
	r.proven = true
	return nil
}

// loadFilterSteps is LoadFilterSteps. REQUIRES: filterMu is held.
func (r *Reader) loadFilterSteps(n int) error {
	perUnit := filter.StepsPerUnit(r.filterFamily)
	if n < 0 || n > len(r.filterUnits)*perUnit {
		return fmt.Errorf("sstable: cannot load %d steps of a filter that has %d", n, len(r.filterUnits)*perUnit)
	}
	held := r.held()
	if held.steps == n {
		return nil
	}
	if n == 0 {
		r.filter.Store(nil)
		r.giveBack(held.units)
		return nil
	}
	kept := min(n, held.steps) / perUnit
	if room := r.room(n, held); room > 0 {
		if !r.pool.claim(room) {
			return ErrNoRoom
		}
		r.claimed = room
		defer func() {
			r.pool.unclaim(r.claimed)
			r.claimed = 0
		}()
	}
	units, err := r.addUnits(held.units[:kept:kept], n/perUnit)
	if err != nil {
		return err
	}
	if rest := n % perUnit; rest != 0 {
		partial, err := r.loadPartialUnit(units, kept, rest)
		if err != nil {
			r.giveBack(units[kept:])
			return err
		}
		units, held = append(units, partial), r.held()
	}
	f, err := r.resized(held, units)
	if err != nil {
		r.giveBack(units[kept:])
		return r.lostFilter(err)
	}
	r.filter.Store(newHeldFilter(f, units, n, r.secret))
	r.giveBack(held.units[kept:])
	return nil
}

// loadPartialUnit loads the first steps of the unit after units; the first kept units are in use
// already. It drops an old partial unit first: together they could exceed the memory budget.
func (r *Reader) loadPartialUnit(units []filterMem, kept, steps int) (partial filterMem, err error) {
	trimmed, err := r.trimmedUnit(units, steps)
	if err == nil && len(r.held().units) > kept {
		err = r.loadFilterSteps(kept * filter.StepsPerUnit(r.filterFamily))
	}
	if err != nil {
		return partial, err
	}
	partial = r.getMemory(len(trimmed))
	copy(partial.bytes, trimmed)
	return partial, nil
}

// room returns how many more bytes n steps take than held does.
func (r *Reader) room(n int, held *heldFilter) int64 {
	var bytes int64
	perUnit := filter.StepsPerUnit(r.filterFamily)
	for i := range n / perUnit {
		bytes += int64(r.unitBufLen(i))
	}
	if i := n / perUnit; n%perUnit != 0 {
		bytes += int64(filter.TrimmedSize(r.filterFamily, i, len(r.filterUnits), int(r.filterUnits[i].Length), n%perUnit))
	}
	for _, u := range held.units {
		bytes -= int64(u.size)
	}
	return bytes
}

// held returns the loaded part of the filter, which may be empty.
func (r *Reader) held() *heldFilter {
	if h := r.filter.Load(); h != nil {
		return h
	}
	return &heldFilter{}
}

// addUnits reads further units until there are n of them. On an error it frees those that it read.
func (r *Reader) addUnits(units []filterMem, n int) ([]filterMem, error) {
	kept := len(units)
	for i := kept; i < n; i++ {
		u := r.getMemory(r.unitBufLen(i))
		units = append(units, u)
		var err error
		if units[i].bytes, err = r.readFilterUnit(i, u.bytes); err != nil {
			r.giveBack(units[kept:])
			return nil, r.lostUnit(i, err)
		}
	}
	return units, nil
}

// trimmedUnit reads the unit that follows the units in before, and trims it to its first steps.
func (r *Reader) trimmedUnit(before []filterMem, steps int) ([]byte, error) {
	i := len(before)
	unit, err := r.readFilterUnit(i, make([]byte, r.unitBufLen(i)))
	if err != nil {
		return nil, r.lostUnit(i, err)
	}
	trimmed, err := filter.Trim(nil, r.filterFamily, append(unitBytes(before), unit), steps)
	if err != nil {
		return nil, r.lostUnit(i, r.corrupt(r.filterUnits[i], "filter block", err))
	}
	return trimmed, nil
}

// lostFilter marks the whole filter as unloadable, because its units could not be opened.
func (r *Reader) lostFilter(cause error) error {
	if errors.Is(cause, filter.ErrUnknownFamily) {
		err := r.unknownFilter(r.filterFamily, cause)
		r.giveUpUnits(0, err)
		r.filterState = FilterUnknown
		return err
	}
	err := r.corrupt(r.filterUnits[0], "filter block", cause)
	r.giveUpUnits(0, err)
	return err
}

// lostUnit marks the units from i on as unloadable if err is damage, and otherwise lets the owner
// of the pool know that they are missing. It returns err.
func (r *Reader) lostUnit(i int, err error) error {
	if errors.Is(err, base.ErrCorruption) {
		r.giveUpUnits(i, err)
	} else {
		r.pool.failed()
	}
	return err
}

// resized opens the filter over other units. If the reader is a Resizer, resized does not verify
// again the units that held has.
func (r *Reader) resized(held *heldFilter, units []filterMem) (filter.Reader, error) {
	if f, ok := held.reader.(filter.Resizer); ok {
		return f.Resize(unitBytes(units))
	}
	return r.openUnits(units)
}

func unitBytes(units []filterMem) [][]byte {
	bytes := make([][]byte, len(units))
	for i := range units {
		bytes[i] = units[i].bytes
	}
	return bytes
}

// openUnits opens the filter over its first units.
func (r *Reader) openUnits(units []filterMem) (filter.Reader, error) {
	return r.filterOpen(unitBytes(units))
}

// getMemory allocates memory for a unit. REQUIRES: filterMu is held, or the reader is not shared
// yet.
func (r *Reader) getMemory(n int) filterMem {
	if r.pool == nil {
		return filterMem{bytes: filter.AlignedBytes(n), size: n}
	}
	m := r.pool.get(n)
	claimed := min(int64(n), r.claimed) // the pool must not count it twice while further units are read
	r.pool.unclaim(claimed)
	r.claimed -= claimed
	return m
}

// giveBack frees units. REQUIRES: as for getMemory.
func (r *Reader) giveBack(units []filterMem) {
	if r.pool == nil {
		return
	}
	for _, u := range units {
		r.pool.put(u)
	}
}

// MoveFilter moves the filter, if it lies in a sparse slab, to other memory of the pool.
// Concurrent lookups continue. If the filter has been corrupted in memory, MoveFilter drops it,
// since it could exclude keys, and returns an error.
func (r *Reader) MoveFilter() error {
	r.filterMu.Lock()
	defer r.filterMu.Unlock()
	held := r.filter.Load()
	if held == nil || r.pool == nil || len(r.filterUnits) == 0 { // a LevelDB filter has no units
		return nil
	}
	units := slices.Clone(held.units)
	var moved, left []filterMem
	for i, u := range units {
		if r.pool.sparse(u) {
			units[i] = r.pool.get(u.size)
			units[i].bytes = units[i].bytes[:len(u.bytes)]
			copy(units[i].bytes, u.bytes)
			moved, left = append(moved, units[i]), append(left, u)
		}
	}
	if len(moved) == 0 {
		return nil
	}
	f, err := r.openUnits(units)
	if err != nil {
		r.giveBack(moved)
		err = r.corrupt(r.filterUnits[0], "filter in memory", err)
		r.giveUpUnits(0, err)
		return err
	}
	r.filter.Store(newHeldFilter(f, units, held.steps, r.secret))
	r.giveBack(left)
	return nil
}

// giveUpUnits marks the units from i on as unloadable. It drops the filter if it has one of them.
func (r *Reader) giveUpUnits(i int, err error) {
	r.filterState, r.filterErr = FilterDamaged, err
	r.filterUnits = r.filterUnits[:i]
	if held := r.filter.Load(); held != nil && len(held.units) > i {
		r.filter.Store(nil)
		r.giveBack(held.units)
	}
}

// readFilterUnit reads unit i into buf, of length unitBufLen(i), and verifies its checksums. It
// returns the unit, a part of buf.
func (r *Reader) readFilterUnit(i int, buf []byte) ([]byte, error) {
	h := r.filterUnits[i]
	payload, t, err := r.readRaw(buf, h, "filter block")
	if err != nil {
		return nil, err
	}
	if t != typePlain {
		return nil, r.corrupt(h, "filter block", unknownType(t))
	}
	if p := r.props; p != nil && len(p.unitCRCs) > 0 {
		crc := binary.LittleEndian.Uint32(buf[len(buf)-4:])
		if i >= len(p.unitCRCs) || crc != p.unitCRCs[i] {
			return nil, r.corrupt(h, "filter block", errors.New("not this table's filter: the properties have another checksum"))
		}
	}
	return payload, nil
}

// unitBufLen returns the length of unit i with its block trailer.
func (r *Reader) unitBufLen(i int) int { return int(r.filterUnits[i].Length) + blockTrailerLen }
