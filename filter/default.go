package filter

// Two policies are the best for most stores: Bloom for tables that are flushed
// and soon compacted away, Ribbon for those that compactions write. At the same
// 10 bits per key Ribbon says maybe to an absent key a tenth as often. A million
// random keys, loaded, compacted and asked for, three rounds in turn, CPU time:
//
//	level 0     below       load, µs/key  absent Get, ns  block reads per 1,000
//	Bloom(10)   Bloom(10)   5.6 .. 6.6    292 .. 352      7.75
//	Bloom(10)   Ribbon(10)  5.7 .. 7.6    229 .. 404      0.75
//	Bloom(10)   Ribbon(7.1) 5.7 .. 7.3    258 .. 620      5.93, filters 29 % smaller
//	Bloom(10)   Fuse(8)     5.6 .. 6.7    242 .. 277      3.04, filters 6 % smaller
//
// What Ribbon costs to build is lost in what a compaction costs, and a wasted
// block read costs more than all the filters of a lookup.

// Default is the policy for tables that stay: Ribbon(10).
func Default() Policy { return Ribbon(defaultRibbonBits) }

// DefaultForFlush is the policy for tables that are written from memory and soon
// compacted: Bloom(10), the cheapest to build.
func DefaultForFlush() Policy { return Bloom(defaultBloomBits) }
