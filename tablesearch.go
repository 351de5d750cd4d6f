package sift

import (
	"context"
	"time"

	"github.com/siftdb/sift/internal/manifest"
)

// tableSearch is the search of a job for tables, among those that overlap a key range. Each table
// that it looks at may have to be read, so it takes as many steps as needed. It looks at a table
// again only in another level, or if it was wanted.
type tableSearch struct {
	from, to []byte // user keys, both inclusive; nil: unbounded

	passed map[placedTable]bool // tables that were not wanted
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
	begin := time.Now()
	for ; level <= version.Deepest; level++ {
		for _, meta := range version.Overlapping(nil, level, s.from, s.to) {
			at := placedTable{level, meta.Num}
			if s.passed[at] {
				continue
			}
			if err := ctx.Err(); err != nil {
				return 0, nil, false, err
			}
			if time.Since(begin) > searchTime {
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
			s.passed[at] = true
		}
	}
	return 0, nil, false, nil
}
