// Package livebench measures the filters of filter/live next to those that Go programs
// use: github.com/bits-and-blooms/bloom, github.com/holiman/bloomfilter and
// github.com/greatroar/blobloom; github.com/seiflotfy/cuckoofilter,
// github.com/panmari/cuckoofilter and github.com/linvon/cuckoo-filter. It is a module of
// its own, so that who embeds the filters inherits none of them.
//
//	go test -bench . -benchtime 10x
//
// Every benchmark gives its contestants the same work in turns, 100,000 operations at a
// time and in a new order each time. It reports the median time of an operation of each
// and, as ours/theirs, how many times as long the other package takes, so that a machine that
// is busy with other things slows both. With 10x, Add adds each element once.
//
// Of the others only blobloomSync is safe for concurrent use. Where goroutines share a
// filter the others are behind a lock; where one goroutine has it alone they are not, and
// then the fair comparison is with the forms of ours that are Unshared. Those that take a
// hash get XXH64.
package livebench
