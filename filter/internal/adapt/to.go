// Package adapt turns policies of package filter into those of an engine with
// pebble's interface, and back. It knows the interface's methods, not the
// engine, whose versions differ in the types alone.
package adapt

import "github.com/siftdb/sift/filter"

// Block probes filters of a policy that lie in one block of raw bytes.
type Block struct {
	// MayContain probes a block for a key. For malformed blocks it returns true. It is a function
	// because calling a policy's method copies the policy.
	MayContain func(block, key []byte) bool

	policy filter.Policy
	name   string
	joined bool
}

// To returns the block form of p. For a policy that is not a BlockPolicy, every probe opens the
// filter, which verifies all of it.
func To(p filter.Policy) Block {
	bp, ok := p.(filter.BlockPolicy)
	if !ok {
		ask := func(block, key []byte) bool { return openAndAsk(p, block, key) }
		return Block{MayContain: ask, policy: p, name: joinedPrefix + p.Family(), joined: true}
	}
	b := Block{MayContain: filter.BlockDecoder(bp.BlockFamily()), policy: p, name: bp.BlockFamily()}
	if b.joined = b.name != p.Family(); b.MayContain == nil {
		b.MayContain = func(block, key []byte) bool { return bp.MayContainBlock(block, filter.NewKey(key)) }
	}
	return b
}

func openAndAsk(p filter.Policy, block, key []byte) bool {
	units, err := filter.SplitUnits(block)
	if err != nil {
		return true
	}
	r, err := p.Open(units)
	return err != nil || r.MayContain(filter.NewKey(key))
}

// joinedPrefix is prepended to the family for joined units of a policy that is not a
// BlockPolicy. On disk; do not change.
const joinedPrefix = "joined."

// Name is the name on disk.
func (b *Block) Name() string { return b.name }

// Policy returns the policy that the block form was made from.
func (b *Block) Policy() filter.Policy { return b.policy }

// NewWriter returns a writer for one block.
func (b *Block) NewWriter() *Writer { return &Writer{w: b.policy.NewWriter(), joined: b.joined} }

// Writer builds the block of one table. It has pebble's methods.
type Writer struct {
	w      filter.Writer
	joined bool
}

// AddKey adds a key.
func (w *Writer) AddKey(key []byte) { w.w.Add(filter.NewKey(key)) }

// noBlock is what is written when there is no filter: it is no block of any
// family, so that every probe of it returns true.
const noBlock = 0

// Finish appends the block to buf. An error of the writer, which the engine
// does not ask for, leaves the table with a filter that excludes nothing.
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
