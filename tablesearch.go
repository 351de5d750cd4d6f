package sift

import (
	"context"
	"time"

	"github.com/siftdb/sift/internal/manifest"
)

// tableSearch is the search of a job for tables, among those that overlap a key range. Each table
// that it looks at may have to be read, so it takes as many steps as needed. It looks at a table
// again only in another level, if it was wanted, or, once, in a later step, if the disk could not
// read it for now.
type tableSearch struct {
	from, to []byte // user keys, both inclusive; nil: unbounded

	passed map[placedTable]bool // tables that were not wanted; false: look at the table again
}

// placedTable is a table in a level.
type placedTable struct {
	level int
	num   uint64
}

// searchTime is the time after which a step looks at no further table, since compactions wait
// meanwhile.
const searchTime = 100 * time.Millisecond

// next returns the first table that is wanted, and its level, among those in the given level or
// deeper, or nil. more reports that the search has to continue in another step. wanted may read the
// table. If it returns an error, the search ends with it, and it ends with ctx.Err() when ctx ends.
func (s *tableSearch) next(ctx context.Context, version *manifest.Version, level int, wanted func(level int, meta *manifest.TableMeta) (bool, error)) (_ int, _ *manifest.TableMeta, more bool, err error) {
	var begin time.Time // of the first table, at which each step looks
	for ; level <= version.Deepest; level++ {
		for _, meta := range version.Overlapping(nil, level, s.from, s.to) {
			at := placedTable{level, meta.Num}
			passed, again := s.passed[at]
			if passed {
				continue
			}
			if err := ctx.Err(); err != nil {
				return 0, nil, false, err
			}
			if begin.IsZero() {
				begin = time.Now()
			} else if time.Since(begin) > searchTime {
				return 0, nil, true, nil
			}
			switch ok, err := wanted(level, meta); {
			case err != nil:
				return 0, nil, false, err
			case ok:
				return level, meta, false, nil
			}
			if s.passed == nil {
				s.passed = make(map[placedTable]bool)
			}
			s.passed[at] = again || !meta.Handle.(*table).failsForNow()
		}
	}
	return 0, nil, false, nil
}
