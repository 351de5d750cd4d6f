// Package live provides filters that change after they are built. They answer "have I seen
// this?" and "can this exist at all?" in applications; the filters of tables are in package
// filter.
//
//	Bloom        additions and lookups; lock-free; reads and writes Guava's files
//	Scalable     a Bloom that grows and stays below its FPR
//	Counting     a Bloom with deletion, at four times the memory
//	Cuckoo       deletes and counts, at about the memory of a Bloom
//	Pair         one Bloom for added, one for deleted elements: cheap, but see its comment
//	Rotating     a Bloom that is rebuilt from its source in the background
//	Generations  a Bloom that keeps only the newest elements, by time or by number
//	Sharded      any of them, split by element
//	Layered      a coarse filter in memory before more exact ones in files or stores
//	Cold         a Bloom in a file or a store, one read of 68 bytes per lookup
//	Dedup        drops the duplicates of a stream
//	Guard        keeps lookups of keys that do not exist away from a cache and a database
//
// The filters of package redisfilter are in Redis or Redis Cluster, shared by several
// processes.
//
// All implement the interfaces that apply to them: Filter, Adder, FallibleAdder, Deleter,
// Merger, Cloner and Resetter. Each filter can be saved: with WriteTo and ReadFrom, MarshalBinary
// and UnmarshalBinary (and so encoding/gob), WriteFile and ReadFile. Build makes most of them from
// a Config, which is JSON or text such as bloom(items=1e6,fpr=0.001).
//
// A negative answer is certain: the element was not added, or was deleted or has expired since. The
// exceptions are a Pair, and a Counting or Cuckoo from which an element was deleted more often than
// it was added. A positive answer may be wrong; the share of absent elements that get one is the
// false positive rate (FPR). All filters are safe for concurrent use, except an Unshared Bloom, and
// except that nothing else may run during ReadFrom and UnmarshalBinary.
//
// Filters are made by constructors. The zero value of a filter whose elements need no Funnel can
// only be read into, with ReadFrom or UnmarshalBinary; a Rotating always needs its constructor.
//
// Elements are strings, byte slices, integers, or any type with a Funnel that encodes it.
// Elements with equal bytes are equal: a filter of strings and a filter of byte slices can
// read each other's saved form. int and uint are hashed as eight bytes on every machine.
package live
