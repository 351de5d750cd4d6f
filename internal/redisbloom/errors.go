package redisbloom

import "errors"

var (
	// ErrFull is returned by an add to a filter that must not grow.
	ErrFull = errors.New("redisbloom: filter is full")
	// ErrMaxExpansions is returned by an add to a cuckoo filter that has grown
	// as often as it may.
	ErrMaxExpansions = errors.New("redisbloom: too many expansions")
	// ErrTooLarge is returned where a filter would need more memory than it is
	// given.
	ErrTooLarge = errors.New("redisbloom: not enough memory for the filter")
	// ErrFormat is returned for a header, page or redo log that no filter wrote.
	ErrFormat = errors.New("redisbloom: not a filter's dump, or a damaged one")
	// ErrOffset is returned for a part of a dump that belongs nowhere.
	ErrOffset = errors.New("redisbloom: no place for this part of a dump")
)
