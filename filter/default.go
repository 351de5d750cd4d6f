package filter

// Ribbon is the best choice for most stores, in flushed and in compacted tables. At 10 bits per
// key its FPR is a tenth of Bloom's. A million random keys, loaded, compacted and looked up, three
// interleaved rounds, CPU time:
//
//	level 0     below       load, µs/key  absent Get, ns  block reads per 1,000
//	Bloom(10)   Bloom(10)   5.6 .. 6.6    292 .. 352      7.75
//	Bloom(10)   Ribbon(10)  5.7 .. 7.6    229 .. 404      0.75
//	Bloom(10)   Ribbon(7.1) 5.7 .. 7.3    258 .. 620      5.93, filters 29% smaller
//	Bloom(10)   Fuse(8)     5.6 .. 6.7    242 .. 277      3.04, filters 6% smaller
//
// Building Ribbon filters is a small part of a compaction's work, and a wasted block read costs
// more than all filter probes of a lookup.
//
// Tables in level 0 overlap, so every lookup probes all of them, but they hold few keys: more bits
// per key cost little memory there and save many reads. Two million keys with a table in level 0,
// not compacted, two interleaved rounds:
//
//	level 0     below       load, µs/key  absent Get, ns  block reads per 1,000  bits per key overall
//	Bloom(10)   Ribbon(10)  4.4 .. 4.9    364 .. 467      5.64                   9.97
//	Ribbon(12)  Ribbon(10)  4.1 .. 4.3    338 .. 377      0.81                   10.08

// Default returns the policy for tables in levels 1 and below: Ribbon(10).
func Default() Policy { return Ribbon(defaultRibbonBits) }

// flushRibbonBits is the bits per key of DefaultForFlush.
const flushRibbonBits = 12

// DefaultForFlush returns the policy for tables that are flushed from memory to level 0:
// Ribbon(12). A lookup probes all of these tables.
func DefaultForFlush() Policy { return Ribbon(flushRibbonBits) }
