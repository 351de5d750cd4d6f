package sstable

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
)

// heldFilter is the part of a filter that is in memory. It is immutable.
type heldFilter struct {
	reader filter.Reader
	units  []filterPiece // of which the last one may be trimmed
	steps  int
}

// A filter is held in memory step by step: unit by unit, and each unit in so many
// parts as filter.Parts says of its family.

// FilterSteps returns, for each step in which the filter can be held, how many bytes
// of memory it takes at most, in addition to the steps before it. They become fewer
// when a unit is found to be damaged.
func (r *Reader) FilterSteps() []int64 {
	r.filterMu.Lock()
	defer r.filterMu.Unlock()
	var steps []int64
	for i, u := range r.filterUnits {
		before := 0
		for part := range filter.Parts(r.filterFamily) {
			size := filter.TrimmedSize(r.filterFamily, i, len(r.filterUnits), int(u.Length), part+1)
			steps = append(steps, int64(size-before))
			before = size
		}
	}
	return steps
}

// HeldFilterSteps returns the number of steps that are in memory.
func (r *Reader) HeldFilterSteps() int {
	if h := r.filter.Load(); h != nil {
		return h.steps
	}
	return 0
}

// LoadFilterSteps holds the first n steps of the filter in memory, n from 0 to
// the number of FilterSteps, reading what is missing and dropping the others. A unit that is
// held in part is read as a whole when that part changes. Lookups go on meanwhile.
// After an error the filter is held as it was before; the units from a damaged one
// on are given up.
func (r *Reader) LoadFilterSteps(n int) error {
	r.filterMu.Lock()
	defer r.filterMu.Unlock()
	return r.loadFilterSteps(n)
}

// loadFilterSteps is LoadFilterSteps under the lock.
func (r *Reader) loadFilterSteps(n int) error {
	parts := filter.Parts(r.filterFamily)
	if n < 0 || n > len(r.filterUnits)*parts {
		return fmt.Errorf("sstable: %d steps of a filter were asked for, and there are %d", n, len(r.filterUnits)*parts)
	}
	held := r.filter.Load()
	switch {
	case n == 0:
		r.filter.Store(nil)
		if held != nil {
			r.giveBack(held.units)
		}
		return nil
	case held != nil && held.steps == n:
		return nil
	}
	whole := n / parts
	units := make([]filterPiece, 0, whole+1)
	if held != nil {
		units = append(units, held.units[:min(whole, held.steps/parts)]...)
	}
	kept := len(units)
	for i := kept; i < whole; i++ {
		u := r.getMemory(r.unitBufLen(i))
		units = append(units, u)
		var err error
		if units[i].bytes, err = r.readFilterUnit(i, u.bytes); err != nil {
			r.giveBack(units[kept:])
			return r.lostUnit(i, err)
		}
	}
	if n%parts != 0 {
		trimmed, err := r.trimmedUnit(units, n%parts)
		if err != nil {
			r.giveBack(units[kept:])
			return r.lostUnit(whole, err)
		}
		// What is held in part leaves before its successor comes, so that both
		// together take no more than was planned.
		if held != nil && len(held.units) > kept {
			if err := r.loadFilterSteps(kept * parts); err != nil {
				r.giveBack(units[kept:])
				return err
			}
			held = r.filter.Load()
		}
		u := r.getMemory(len(trimmed))
		copy(u.bytes, trimmed)
		units = append(units, u)
	}
	f, err := r.resized(held, units)
	if err != nil {
		r.giveBack(units[kept:])
	}
	if errors.Is(err, filter.ErrUnknownFamily) {
		err = r.unknownFilter(r.filterFamily, err)
		r.giveUpUnits(0, err)
		r.filterState = FilterUnknown
		return err
	}
	if err != nil {
		err = r.corrupt(r.filterUnits[0], "filter block", err)
		r.giveUpUnits(0, err)
		return err
	}
	r.filter.Store(&heldFilter{reader: f, units: units, steps: n})
	if held != nil {
		r.giveBack(held.units[kept:])
	}
	return nil
}

// trimmedUnit reads the unit that follows others and trims it.
func (r *Reader) trimmedUnit(before []filterPiece, parts int) ([]byte, error) {
	i := len(before)
	unit, err := r.readFilterUnit(i, make([]byte, r.unitBufLen(i)))
	if err != nil {
		return nil, err
	}
	trimmed, err := filter.Trim(nil, r.filterFamily, append(piecesBytes(before), unit), parts)
	if err != nil {
		return nil, r.corrupt(r.filterUnits[i], "filter block", err)
	}
	return trimmed, nil
}

// lostUnit gives up the units from i on if err says that they are damaged.
func (r *Reader) lostUnit(i int, err error) error {
	if errors.Is(err, base.ErrCorruption) {
		r.giveUpUnits(i, err)
	}
	return err
}

// resized opens the filter over other units, of which those that it has already are
// known to be good.
func (r *Reader) resized(held *heldFilter, units []filterPiece) (filter.Reader, error) {
	if held != nil {
		if f, ok := held.reader.(filter.Resizer); ok {
			return f.Resize(piecesBytes(units))
		}
	}
	return r.openUnits(units)
}

func piecesBytes(units []filterPiece) [][]byte {
	bytes := make([][]byte, len(units))
	for i := range units {
		bytes[i] = units[i].bytes
	}
	return bytes
}

// openUnits opens the filter over its first units.
func (r *Reader) openUnits(units []filterPiece) (filter.Reader, error) {
	return r.filterOpen(piecesBytes(units))
}

// getMemory returns memory for a unit. Like giveBack, it is called under the lock.
func (r *Reader) getMemory(n int) filterPiece {
	if r.pool == nil {
		return filterPiece{bytes: filter.AlignedBytes(n), size: n}
	}
	return r.pool.get(n)
}

// giveBack gives units back to the pool.
func (r *Reader) giveBack(units []filterPiece) {
	if r.pool == nil {
		return
	}
	for _, u := range units {
		r.pool.put(u)
	}
}

// MoveFilter moves the filter, if it lies where the pool is sparse, to other memory
// of the pool. Lookups go on meanwhile. A filter that has changed in memory is an
// error, and is given up: it could deny keys.
func (r *Reader) MoveFilter() error {
	r.filterMu.Lock()
	defer r.filterMu.Unlock()
	held := r.filter.Load()
	if held == nil || r.pool == nil {
		return nil
	}
	units := slices.Clone(held.units)
	var moved, left []filterPiece
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
	r.filter.Store(&heldFilter{reader: f, units: units, steps: held.steps})
	r.giveBack(left)
	return nil
}

// giveUpUnits notes that the units from i on are not to be used.
func (r *Reader) giveUpUnits(i int, err error) {
	r.filterState, r.filterErr = FilterDamaged, err
	r.filterUnits = r.filterUnits[:i]
	if held := r.filter.Load(); held != nil && len(held.units) > i {
		r.filter.Store(nil)
		r.giveBack(held.units)
	}
}

// readFilterUnit reads and checks the block of a unit into buf, of unitBufLen bytes.
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
			return nil, r.corrupt(h, "filter block", errors.New("not the filter that the properties name"))
		}
	}
	return payload, nil
}

func (r *Reader) unitBufLen(i int) int { return int(r.filterUnits[i].Length) + blockTrailerLen }
