// Package pebblefilterv1 is package pebblefilter for version 1 of pebble. See
// there for what users of pebble must know. Options.Levels is a slice in this
// version, whose last entry stands for all levels after it, and the type of
// filter has to be given:
//
//	opts.Levels = []pebble.LevelOptions{{
//		FilterPolicy: pebblefilterv1.New(filter.Bloom(10)),
//		FilterType:   pebble.TableFilter,
//	}}
package pebblefilterv1

import (
	"github.com/cockroachdb/pebble"
	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/filter/internal/adapt"
)

// New returns p as a policy of pebble. Its name, on disk, is p's family, with
// another ending for families of several units, which share one block. The
// policy allocates nothing when it is asked, keeps no state, and returns true for
// bytes that are no block of its family; pebble's block checksum guards the rest.
//
// All policies of package filter implement filter.BlockPolicy, which this takes.
// Any other policy works too but is opened for each question, which is slow.
// New(filter.None()) and New(nil) are nil, with which pebble writes no filters.
func New(p filter.Policy) pebble.FilterPolicy {
	if filter.IsNone(p) {
		return nil
	}
	return &policy{adapt.To(p)}
}

type policy struct{ block adapt.Block }

func (p *policy) Name() string { return p.block.Name() }

func (p *policy) MayContain(_ pebble.FilterType, block, key []byte) bool {
	return p.block.MayContain(block, key)
}

func (p *policy) NewWriter(pebble.FilterType) pebble.FilterWriter { return p.block.NewWriter() }

// From returns pebble's policy p as a policy for the store. Its readers ask for
// Key.Bytes. What bloom.FilterPolicy writes is kept as it is, in the family of
// filter.RocksDBBloom. The blocks of other policies are sealed with a checksum,
// since they may exclude keys or panic when a block is damaged; their family is
// "sealed." and p's name. From(New(p)) is p, and From(nil) is filter.None().
func From(p pebble.FilterPolicy) filter.Policy {
	if p == nil {
		return filter.None()
	}
	if own, ok := p.(*policy); ok {
		return own.block.Policy()
	}
	return adapt.From(p, pebble.TableFilter)
}

// Filters returns policies by name, as Options.Filters takes them: those that
// the database's tables may have been written with. Of several with one name the
// first is taken.
func Filters(policies ...pebble.FilterPolicy) map[string]pebble.FilterPolicy {
	byName := make(map[string]pebble.FilterPolicy, len(policies))
	for _, p := range policies {
		if p == nil {
			continue
		}
		if _, ok := byName[p.Name()]; !ok {
			byName[p.Name()] = p
		}
	}
	return byName
}
