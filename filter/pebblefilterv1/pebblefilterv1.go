// Package pebblefilterv1 is package pebblefilter for version 1 of pebble; see there.
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

// New returns p as a policy of pebble, safe for concurrent use. If p is a filter.BlockPolicy, as
// the policies of package filter are unless they are keyed, the name of the filters on disk is p's
// BlockFamily, and probes do not allocate. For any other policy the name is "joined." and p's
// Family, and each probe opens the filter, which is slow. New(filter.None()) and New(nil) are nil,
// with which pebble writes no filters.
//
// Probes of a block that ends too early return true; pebble's block checksum guards against other
// damage. If the writer fails, because a table has too many keys, pebble writes a filter that
// excludes nothing.
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

// From returns pebble's policy p as a policy of package filter. Its readers use Key.Bytes.
// Blocks of bloom.FilterPolicy remain unchanged, and have the family of
// filter.RocksDBBloom. Blocks of other policies get a checksum, since these policies may
// exclude keys or panic if a block is corrupt; their family is "sealed." and p's name.
// From(New(p)) is p, and From(nil) is filter.None().
func From(p pebble.FilterPolicy) filter.Policy {
	if p == nil {
		return filter.None()
	}
	if own, ok := p.(*policy); ok {
		return own.block.Policy()
	}
	return adapt.From(p, pebble.TableFilter)
}

// Filters returns a value for pebble's Options.Filters: the given policies by name. Pass
// all policies with which the database's tables may have been written. Of several policies
// with the same name it uses the first.
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
