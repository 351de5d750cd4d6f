// Package livebench measures the filters of filter/live next to
// github.com/bits-and-blooms/bloom and github.com/seiflotfy/cuckoofilter. It is a
// module of its own, so that who embeds the filters inherits neither.
//
//	go test -bench . -benchtime 200x
//
// Every benchmark gives its contestants the same work in turns, 20,000 operations
// at a time, and reports the median time of an operation of each and how many
// times longer the other package takes, so that a machine that is busy with other
// things slows both. Neither of the other packages is safe for concurrent use;
// where goroutines share one, it gets a lock.
package livebench
