// Package livebench measures the filters of filter/live next to
// github.com/bits-and-blooms/bloom and github.com/seiflotfy/cuckoofilter. It is a
// module of its own, so that who embeds the filters inherits neither.
//
//	go test -bench . -cpu 1,2
package livebench
