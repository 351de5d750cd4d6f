// Package pebblefilter adapts the policies of package filter to pebble v2, and pebble's
// policies to package filter. With
//
//	opts.Levels[0].FilterPolicy = pebblefilter.New(filter.Bloom(10))
//
// the tables that pebble writes from then on carry filters of this module; pebble's
// levels below level 0 inherit the policy.
//
// What users of pebble must know:
//
//   - pebble's Get does not probe the filters of level 6, the last one, where most
//     keys are (cockroachdb/pebble#5136, #2709): a Get of an absent key reads a
//     block there whatever the filter. An iterator with
//     IterOptions.UseL6Filters and SeekPrefixGE does probe them.
//   - Filters are named on disk by the family, not by its parameters, so a policy
//     reads what any other policy of its family has written: Bloom(10) can be
//     replaced by Bloom(14).
//   - Tables that were written with another policy keep their filters until they
//     are compacted. pebble probes these if Options.Filters has their policy under
//     its name, and ignores them otherwise:
//     opts.Filters = pebblefilter.Filters(old, new) migrates a live database
//     in both directions, since bloom.FilterPolicy is a policy like any other.
//   - filter.RocksDBBloom writes pebble's own filters byte for byte, under
//     pebble's name for them: no migration and no gain on disk, but its probes do
//     not exclude keys if a block is too short.
//   - pebble holds filter blocks in its block cache, and looks them up there for
//     each probe. They take cache space like any other block.
//
// # What it saves
//
// Absent keys, by pebble's own counters, 400,000 keys of 16 bytes, filters of 10
// bits per key (go test -run Wasted -v ./filter/pebblefilter):
//
//	wasted block reads per 1,000 lookups      pebble's bloom(10)  Ribbon(10)
//	SeekPrefixGE in level 6, UseL6Filters     23.3                2.0
//	Get, four tables in level 0               91.0                8.1
//	Get, a table in each of levels 2 to 5     48.4                3.9
//
// Building Ribbon takes some 3 times as long as pebble's bloom: another 70 ns per
// key, on which a flush or compaction spends microseconds.
//
// # pebble's next interface
//
// pebble's master branch splits the interface as package filter does, into
// configuration and format:
//
//	pebble's master                                    here
//	TableFilterPolicy: Name, NewWriter                 filter.Policy: Name, NewWriter
//	TableFilterWriter: AddKey, Finish                  filter.Writer: Add, Finish
//	the family that Finish returns                     filter.BlockPolicy: BlockFamily
//	TableFilterDecoder: Family, MayContain             filter.BlockPolicy: BlockFamily, MayContainBlock
//
// BlockFamily and MayContainBlock depend on no parameter of a policy, so that any
// policy of a family can be its decoder. An error of Finish becomes ok == false.
// Names and bytes on disk do not change. TestNextInterface has the three types
// that it takes.
package pebblefilter

import (
	"github.com/cockroachdb/pebble/v2"
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
// its name is its family after "joined.". New(filter.None()) and New(nil) are
// pebble.NoFilterPolicy.
func New(p filter.Policy) pebble.FilterPolicy {
	if filter.IsNone(p) {
		return pebble.NoFilterPolicy
	}
	b := adapt.To(p)
	return &policy{b.MayContain, b}
}

// policy is the pebble.FilterPolicy of New.
type policy struct {
	mayContain func(block, key []byte) bool // block.MayContain
	block      adapt.Block
}

func (p *policy) Name() string { return p.block.Name() }

//go:nosplit
func (p *policy) MayContain(_ pebble.FilterType, block, key []byte) bool {
	return p.mayContain(block, key)
}

func (p *policy) NewWriter(pebble.FilterType) pebble.FilterWriter { return p.block.NewWriter() }

// From returns pebble's policy p as a policy for the store. Its readers use
// Key.Bytes. The blocks of bloom.FilterPolicy are kept unchanged, in the family of
// filter.RocksDBBloom. The blocks of other policies get a checksum, since these may
// exclude keys or panic if a block is corrupt; their family is p's name after
// "sealed.". From(New(p)) is p, and From(pebble.NoFilterPolicy) is filter.None().
func From(p pebble.FilterPolicy) filter.Policy {
	if p == nil || p == pebble.NoFilterPolicy {
		return filter.None()
	}
	if adapted, ok := p.(*policy); ok {
		return adapted.block.Policy()
	}
	return adapt.From(p, pebble.TableFilter)
}

// Filters returns policies by name, as Options.Filters takes them: those that
// the database's tables may have been written with. Of several with the same name
// the first is used.
func Filters(policies ...pebble.FilterPolicy) map[string]pebble.FilterPolicy {
	byName := make(map[string]pebble.FilterPolicy, len(policies))
	for _, p := range policies {
		if p == nil || p == pebble.NoFilterPolicy {
			continue
		}
		if _, ok := byName[p.Name()]; !ok {
			byName[p.Name()] = p
		}
	}
	return byName
}
