// Package pebblefilterv1 is package pebblefilter, which see, for version 1 of pebble.
// In this version Options.Levels is a slice, whose last entry applies to all further
// levels, and the filter type must be set:
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

// New returns p as a policy of pebble, safe for concurrent use. Its name, on disk, is p's
// BlockFamily. Its probes do not allocate and keep no state. They return true for a
// malformed block; pebble's block checksum guards against flipped bits. If a filter cannot
// be built, because a table has too many keys, one that excludes nothing is written.
//
// This holds for policies that implement filter.BlockPolicy, as those of package filter
// do unless they are keyed. Any other policy is opened for each probe, which is slow, and
// its name is its family after "joined.". New(filter.None()) and New(nil) are nil, with
// which pebble writes no filters.
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

// From returns pebble's policy p as a policy for the store. Its readers use
// Key.Bytes. The blocks of bloom.FilterPolicy are kept unchanged, in the family of
// filter.RocksDBBloom. The blocks of other policies get a checksum, since these may
// exclude keys or panic if a block is corrupt; their family is p's name after
// "sealed.". From(New(p)) is p, and From(nil) is filter.None().
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
// the database's tables may have been written with. Of several with the same name
// the first is used.
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
