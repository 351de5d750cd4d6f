// Package adapt turns policies of package filter into those of an engine with
// pebble's interface, and back. It knows the interface's methods, not the
// engine, whose versions differ in the types alone.
package adapt

import "github.com/siftdb/sift/filter"

// Block asks filters that lie in one block of raw bytes.
type Block interface {
	// Name is the name on disk.
	Name() string
	// MayContain asks the bytes of a block for a key. It is true for bytes that
	// are no block.
	MayContain(block, key []byte) bool
	// NewWriter returns a writer for one block.
	NewWriter() *Writer
	// Policy is what the block was made of.
	Policy() filter.Policy
}

// To returns the block form of p.
func To(p filter.Policy) Block {
	if bp, ok := p.(filter.BlockPolicy); ok {
		return &direct{policy: bp, joined: bp.BlockFamily() != bp.Family()}
	}
	return &opened{policy: p}
}

// direct is for policies that can ask a block.
type direct struct {
	policy filter.BlockPolicy
	joined bool
}

func (d *direct) Name() string          { return d.policy.BlockFamily() }
func (d *direct) Policy() filter.Policy { return d.policy }
func (d *direct) NewWriter() *Writer    { return &Writer{w: d.policy.NewWriter(), joined: d.joined} }
func (d *direct) MayContain(block, key []byte) bool {
	return d.policy.MayContainBlock(block, filter.NewKey(key))
}

// opened is for all other policies: each question opens the filter, which checks
// it as a whole.
type opened struct{ policy filter.Policy }

// joinedPrefix goes before the family of joined units. On disk; do not change.
const joinedPrefix = "joined."

func (o *opened) Name() string          { return joinedPrefix + o.policy.Family() }
func (o *opened) Policy() filter.Policy { return o.policy }
func (o *opened) NewWriter() *Writer    { return &Writer{w: o.policy.NewWriter(), joined: true} }
func (o *opened) MayContain(block, key []byte) bool {
	units, err := filter.SplitUnits(block)
	if err != nil {
		return true
	}
	r, err := o.policy.Open(units)
	return err != nil || r.MayContain(filter.NewKey(key))
}

// Writer builds the block of one table. It has pebble's methods.
type Writer struct {
	w      filter.Writer
	joined bool
}

// AddKey adds a key.
func (w *Writer) AddKey(key []byte) { w.w.Add(filter.NewKey(key)) }

// noBlock is what is written when there is no filter: it is no block of any
// family, so that it says yes to every key.
const noBlock = 0

// Finish appends the block to buf. An error of the writer, which the engine
// does not ask for, leaves the table with a filter that says yes.
func (w *Writer) Finish(buf []byte) []byte {
	units, err := w.w.Finish()
	if err != nil {
		return append(buf, noBlock)
	}
	block := []byte(nil)
	if !w.joined && len(units) == 1 {
		block = units[0]
	} else if w.joined {
		block, _ = filter.JoinUnits(units)
	}
	if len(block) == 0 {
		return append(buf, noBlock)
	}
	if buf == nil {
		return block // which begins on a cache line
	}
	return append(buf, block...)
}
