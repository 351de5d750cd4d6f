package redisbloom

import "errors"

var (
	// ErrFull is returned when an item is added to a full filter that does not grow.
	ErrFull = errors.New("redisbloom: filter is full")
	// ErrMaxExpansions is returned when a cuckoo filter would have to grow and has the maximum
	// number of links.
	ErrMaxExpansions = errors.New("redisbloom: too many expansions")
	// ErrTooLarge is returned if a filter would need more memory than it may take.
	ErrTooLarge = errors.New("redisbloom: not enough memory for the filter")
	// ErrFormat is returned for a header, page or redo log that no filter wrote.
	ErrFormat = errors.New("redisbloom: not a filter's dump, or a damaged one")
	// ErrOffset is returned for a part of a dump at an offset that no link has.
	ErrOffset = errors.New("redisbloom: no place for this part of a dump")
	// ErrPart is returned for a part of a dump that is longer than its link.
	ErrPart = errors.New("redisbloom: a part of a dump is too long")
)
