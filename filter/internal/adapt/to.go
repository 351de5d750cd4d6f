// Package adapt converts policies of package filter to those of an engine with pebble's filter
// interface, and back. It depends only on the methods of that interface, not on pebble, whose
// versions differ only in types.
package adapt

import "github.com/siftdb/sift/filter"

// Block is a policy whose filters are one block of bytes each. To returns it.
type Block struct {
	// MayContain probes a block for a key. It returns true for malformed blocks. It may be called
	// concurrently. It is a function value because calling a policy's method copies the policy.
	MayContain func(block, key []byte) bool

	policy filter.Policy
	name   string
	joined bool
}

// To returns the block form of p. If p is not a BlockPolicy, each probe opens the filter, which
// verifies its checksums.
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

// openAndAsk probes a block of joined units.
func openAndAsk(p filter.Policy, block, key []byte) bool {
	units, err := filter.SplitUnits(block)
	if err != nil {
		return true
	}
	r, err := p.Open(units)
	return err != nil || r.MayContain(filter.NewKey(key))
}

// joinedPrefix and the family are the name of the joined units of a policy that is not a
// BlockPolicy. On disk; do not change.
const joinedPrefix = "joined."

// Name returns the name that identifies the blocks on disk.
func (b *Block) Name() string { return b.name }

// Policy returns the policy that the block form was made from.
func (b *Block) Policy() filter.Policy { return b.policy }

// NewWriter returns a writer for one block.
func (b *Block) NewWriter() *Writer { return &Writer{w: b.policy.NewWriter(), joined: b.joined} }

// Writer builds the block of one table. Its methods are those of pebble's FilterWriter.
type Writer struct {
	w      filter.Writer
	joined bool
}

// AddKey adds a key.
func (w *Writer) AddKey(key []byte) { w.w.Add(filter.NewKey(key)) }

// noBlock is written in place of a filter. As a block it is malformed in every family, so each
// probe of it returns true.
const noBlock = 0

// Finish appends the block to buf and returns the result. If the filter cannot be built, which
// pebble's interface cannot report, the block excludes no key.
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
