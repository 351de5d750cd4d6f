// Package pebblefilter adapts the policies of package filter to pebble v2, and pebble's
// policies to package filter. With
//
//	opts.Levels[0].FilterPolicy = pebblefilter.New(filter.Bloom(10))
//
// the tables that pebble writes from then on have filters of package filter; pebble's
// levels below level 0 inherit the policy.
//
// What users of pebble must know:
//
//   - pebble's Get does not probe the filters of level 6, the last one, where most
//     keys are (cockroachdb/pebble#5136, #2709): a Get of an absent key reads a
//     block there even with a filter. SeekPrefixGE of an iterator with
//     IterOptions.UseL6Filters does probe them.
//   - The name of a filter on disk is its family, without parameters. So a policy
//     reads what any other policy of its family has written, and Bloom(14) can
//     replace Bloom(10).
//   - Tables that were written with another policy keep their filters until they
//     are compacted. pebble probes these filters if Options.Filters has their policy
//     under its name, and ignores them otherwise. To migrate a database, set
//     opts.Filters = pebblefilter.Filters(old, new). pebble's bloom.FilterPolicy can
//     be either of them, so this works in both directions.
//   - filter.RocksDBBloom writes the same filters as pebble, byte for byte and under
//     the same name. So it needs no migration and changes nothing on disk, but unlike
//     pebble's probes its probes do not exclude keys if a block is too short.
//   - pebble keeps filter blocks in its block cache, and looks them up there for
//     each probe. They take cache space like any other block.
//
// # What it saves
//
// Lookups of absent keys among 400,000 keys of 16 bytes, with filters of 10 bits
// per key, by pebble's counters (go test -run Wasted -v ./filter/pebblefilter):
//
//	wasted block reads per 1,000 lookups      pebble's bloom(10)  Ribbon(10)
//	SeekPrefixGE in level 6, UseL6Filters     23.3                2.0
//	Get, four tables in level 0               91.0                8.1
//	Get, a table in each of levels 2 to 5     48.4                3.9
//
// Building Ribbon filters takes about 3 times as long as building pebble's: 70 ns more
// per key, where a flush or compaction spends microseconds on each key.
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
// Names and bytes on disk do not change. TestNextInterface shows the three types
// that an adapter needs.
package pebblefilter

import (
	"github.com/cockroachdb/pebble/v2"
	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/filter/internal/adapt"
)

// New returns p as a policy of pebble, safe for concurrent use. If p is a filter.BlockPolicy, as
// the policies of package filter are unless they are keyed, the name of the filters on disk is p's
// BlockFamily, and probes do not allocate. For any other policy the name is "joined." and p's
// Family, and each probe opens the filter, which is slow. That includes a policy from From: use
// pebble's own instead. New(filter.None()) and New(nil) are pebble.NoFilterPolicy.
//
// Probes of a block that ends too early return true; pebble's block checksum guards against other
// damage. If the writer fails, because a table has too many keys, pebble writes a filter that
// excludes nothing.
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

func (p *policy) MayContain(_ pebble.FilterType, block, key []byte) bool {
	return p.mayContain(block, key)
}

func (p *policy) NewWriter(pebble.FilterType) pebble.FilterWriter { return p.block.NewWriter() }

// From returns pebble's policy p as a policy of package filter. Its readers use Key.Bytes. Blocks
// of bloom.FilterPolicy remain unchanged, and have the family of filter.RocksDBBloom. Blocks of
// other policies get a checksum, since these policies may exclude keys or panic if a block is
// corrupt; their family is "sealed." and p's name. From(New(p)) is p, and
// From(pebble.NoFilterPolicy) and From(nil) are filter.None().
func From(p pebble.FilterPolicy) filter.Policy {
	if p == nil || p == pebble.NoFilterPolicy {
		return filter.None()
	}
	if adapted, ok := p.(*policy); ok {
		return adapted.block.Policy()
	}
	return adapt.From(p, pebble.TableFilter)
}

// Filters returns a value for pebble's Options.Filters: the given policies by name. Pass
// all policies with which the database's tables may have been written. Of several policies
// with the same name it uses the first. It leaves out nil and pebble.NoFilterPolicy.
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
