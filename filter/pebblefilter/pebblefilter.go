// Package pebblefilter makes the filters of package filter filter policies of
// pebble v2, and the other way round. With
//
//	opts.Levels[0].FilterPolicy = pebblefilter.New(filter.Bloom(10))
//
// the tables that pebble writes from then on carry our filters; pebble's levels
// below level 0 inherit the policy.
//
// What users of pebble must know:
//
//   - pebble's Get does not ask the filters of level 6, the last one, where most
//     keys are (cockroachdb/pebble#5136, #2709): a Get of an absent key reads a
//     block there whatever the filter. An iterator with
//     IterOptions.UseL6Filters and SeekPrefixGE does ask them.
//   - Filters are named on disk by the family, not by its parameters, so that a
//     policy reads what any other of its family has written: Bloom(10) and
//     Bloom(14) can follow each other.
//   - Tables that were written with another policy keep their filters until they
//     are compacted. pebble asks them if Options.Filters has their policy under
//     its name, and reads them without a filter otherwise:
//     opts.Filters = pebblefilter.Filters(old, new) migrates a live database
//     in both directions, since bloom.FilterPolicy is a policy like any other.
//   - filter.RocksDBBloom writes pebble's own filters byte for byte, under
//     pebble's name for them: no migration, and no gain on disk, but a probe that
//     does not exclude keys when a block is short.
//   - pebble holds filter blocks in its block cache, and looks them up there for
//     each question. They cost cache space like any other block.
//
// # What it saves
//
// Absent keys, by pebble's own counters, 400,000 keys of 16 bytes, filters of 10
// bits a key (go test -run Wasted -v ./filter/pebblefilter):
//
//	wasted block reads per 1,000 lookups      pebble's bloom(10)  Ribbon(10)
//	SeekPrefixGE in level 6, UseL6Filters     23.3                2.0
//	Get, four tables in level 0               91.0                8.1
//	Get, a table in each of levels 2 to 5     48.4                3.9
//
// Building Ribbon takes some 3 times as long as pebble's bloom: 70 ns a key more
// on a flush or compaction that spends microseconds on it.
//
// # pebble's next interface
//
// pebble's master parts the interface as package filter does, by configuration and
// by what the bytes are:
//
//	pebble's master                                    here
//	TableFilterPolicy: Name, NewWriter                 filter.Policy: Name, NewWriter
//	TableFilterWriter: AddKey, Finish                  filter.Writer: Add, Finish
//	the family that Finish returns                     filter.BlockPolicy: BlockFamily
//	TableFilterDecoder: Family, MayContain             filter.BlockPolicy: BlockFamily, MayContainBlock
//
// BlockFamily and MayContainBlock depend on no parameter of a policy, so that any
// policy of a family is its decoder. An error of Finish is its ok of false. The
// names on disk and the bytes stay what they are. TestNextInterface has the three
// types that it takes.
package pebblefilter

import (
	"github.com/cockroachdb/pebble/v2"
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
// New(filter.None()) and New(nil) are pebble.NoFilterPolicy.
func New(p filter.Policy) pebble.FilterPolicy {
	if filter.IsNone(p) {
		return pebble.NoFilterPolicy
	}
	b := adapt.To(p)
	return &policy{b.MayContain, b}
}

type policy struct {
	ask   func(block, key []byte) bool
	block adapt.Block
}

func (p *policy) Name() string { return p.block.Name() }

//go:nosplit
func (p *policy) MayContain(_ pebble.FilterType, block, key []byte) bool {
	return p.ask(block, key)
}

func (p *policy) NewWriter(pebble.FilterType) pebble.FilterWriter { return p.block.NewWriter() }

// From returns pebble's policy p as a policy for the store. Its readers ask for
// Key.Bytes. What bloom.FilterPolicy writes is kept as it is, in the family of
// filter.RocksDBBloom. The blocks of other policies are sealed with a checksum,
// since they may exclude keys or panic when a block is damaged; their family is
// "sealed." and p's name. From(New(p)) is p, and From(pebble.NoFilterPolicy) is
// filter.None().
func From(p pebble.FilterPolicy) filter.Policy {
	if p == nil || p == pebble.NoFilterPolicy {
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
		if p == nil || p == pebble.NoFilterPolicy {
			continue
		}
		if _, ok := byName[p.Name()]; !ok {
			byName[p.Name()] = p
		}
	}
	return byName
}
