// Package livebench measures the filters of filter/live next to those that Go programs
// use: github.com/bits-and-blooms/bloom, github.com/holiman/bloomfilter and
// github.com/greatroar/blobloom; github.com/seiflotfy/cuckoofilter,
// github.com/panmari/cuckoofilter and github.com/linvon/cuckoo-filter. It is a module of
// its own, so that who embeds the filters inherits none of them.
//
//	go test -bench . -benchtime 200x
//
// Every benchmark gives its contestants the same work in turns, 20,000 operations
// at a time, and reports the median time of an operation of each and, as ours/theirs,
// how many times longer the other package takes, so that a machine that is busy with
// other things slows both. Of the others only blobloom has a form that goroutines may
// share; where they share one, the rest get a lock. Those that take a hash get XXH64.
package livebench
