package filter

// Ribbon is the best for most stores, in tables that compactions write as in those
// that are flushed. At the same 10 bits per key it has false positives a
// tenth as often as Bloom. A million random keys, loaded, compacted and asked for,
// three rounds in turn, CPU time:
//
//	level 0     below       load, µs/key  absent Get, ns  block reads per 1,000
//	Bloom(10)   Bloom(10)   5.6 .. 6.6    292 .. 352      7.75
//	Bloom(10)   Ribbon(10)  5.7 .. 7.6    229 .. 404      0.75
//	Bloom(10)   Ribbon(7.1) 5.7 .. 7.3    258 .. 620      5.93, filters 29 % smaller
//	Bloom(10)   Fuse(8)     5.6 .. 6.7    242 .. 277      3.04, filters 6 % smaller
//
// What Ribbon costs to build is lost in what a compaction costs, and a wasted block
// read costs more than all the filters of a lookup.
//
// Tables in level 0 overlap, so that every lookup asks all of them, but they hold
// few keys: more bits there cost little memory and save many reads. Two million keys
// with a table in level 0, not compacted, two rounds in turn:
//
//	level 0     below       load, µs/key  absent Get, ns  block reads per 1,000  bits per key in all
//	Bloom(10)   Ribbon(10)  4.4 .. 4.9    364 .. 467      5.64                   9.97
//	Ribbon(12)  Ribbon(10)  4.1 .. 4.3    338 .. 377      0.81                   10.08

// Default returns the policy for tables in levels 1 and below: Ribbon(10).
func Default() Policy { return Ribbon(defaultRibbonBits) }

// flushRibbonBits are those of DefaultForFlush.
const flushRibbonBits = 12

// DefaultForFlush returns the policy for tables that are flushed from memory to level 0,
// all of which a lookup probes: Ribbon(12).
func DefaultForFlush() Policy { return Ribbon(flushRibbonBits) }
