// Package live has filters that change after they are built: "have I seen
// this?" and "can this exist at all?" for applications, not for tables.
//
//	Bloom        add and ask; lock-free; reads and writes Guava's files
//	Scalable     a Bloom that grows, with its error below the target at any size
//	Counting     a Bloom that deletes, at four times the memory
//	Cuckoo       deletes and counts, at about the memory of a Bloom
//	Pair         added and deleted: cheap, with a price that its comment states
//	Rotating     a Bloom that is rebuilt from its source in the background
//	Generations  a Bloom that forgets: the last few spans of time or of elements
//	Sharded      any of them, split by element
//	Layered      a coarse filter in memory before exact ones that are farther away
//	Cold         a Bloom in a file or a store, one 64-byte read a lookup
//	Dedup        drops the duplicates of a stream
//	Guard        keeps lookups of keys that do not exist away from a cache and a database
//
// The filters of package redisfilter do the same in Redis and Redis Cluster,
// for processes that share one.
//
// They share one vocabulary, the interfaces Filter, Adder, FallibleAdder, Deleter,
// Merger and Cloner, and each survives a restart: WriteTo and ReadFrom, MarshalBinary
// and UnmarshalBinary (and so encoding/gob), WriteFile and ReadFile. A Config makes any
// of them from JSON or from text such as bloom(items=1e6,fpr=0.001).
//
// A negative answer is certain: the element was not added, or was deleted. A positive one may be
// wrong; the share of absent elements that get one is the false positive rate (FPR). All filters
// are safe for concurrent use, except an Unshared Bloom.
//
// Elements are strings, byte slices, integers, or any type with a Funnel that
// turns it into bytes. Equal bytes are equal elements: a filter of strings and a
// filter of byte slices read each other's saved form. int and uint are hashed as
// eight bytes on every machine.
package live
