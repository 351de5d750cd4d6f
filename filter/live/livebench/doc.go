// Package livebench compares the filters of filter/live with those that Go programs use:
// github.com/bits-and-blooms/bloom, github.com/holiman/bloomfilter and
// github.com/greatroar/blobloom; github.com/seiflotfy/cuckoofilter,
// github.com/panmari/cuckoofilter and github.com/linvon/cuckoo-filter. It is a separate
// module, so that programs that use the filters do not depend on these.
//
//	go test -bench . -benchtime 10x
//
// In every benchmark the contestants take turns of 100,000 operations, in a new random order
// each time, so that other load on the machine slows all of them. It reports the median time
// per operation of each, and as ours/theirs how many times as long the other package takes.
// With 10x, Add adds each element once.
//
// Of the others, only blobloomSync is safe for concurrent use. With several goroutines the
// others are behind a lock; with one they are not, and the fair comparison is then with the
// Unshared filters of filter/live. Filters that take a hash get XXH64.
package livebench
