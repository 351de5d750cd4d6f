package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/siftdb/sift/internal/base"
)

// NumLevels is the number of levels of the tree. LevelDB reads no more. On disk; do not change.
const NumLevels = 7

// maxLevels bounds the levels in a MANIFEST of goleveldb, which creates as many as its
// options and the data require.
const maxLevels = 1 << 16

// TableMeta describes a table. One TableMeta represents one file for the life of the process:
// versions that share a table share the pointer. All fields except Handle are immutable.
type TableMeta struct {
	Num      uint64 // file number
	Size     uint64 // size of the file in bytes
	Smallest []byte // the first internal key, encoded
	Largest  []byte // the last internal key, encoded

	// Handle belongs to the user of this package. It is set once, before the first version that
	// holds the table is published to other goroutines, and read-only afterwards.
	Handle any

	refs atomic.Int64 // number of versions in use that hold the table
}

// String returns number, size and user-key range.
func (t *TableMeta) String() string {
	return fmt.Sprintf("%06d %d [%q..%q]", t.Num, t.Size, base.UserKey(t.Smallest), base.UserKey(t.Largest))
}

// Overlaps reports whether the table's range overlaps the user keys from..to. Both bounds are
// inclusive; nil means unbounded.
func (t *TableMeta) Overlaps(from, to []byte) bool {
	return (from == nil || bytes.Compare(base.UserKey(t.Largest), from) >= 0) &&
		(to == nil || bytes.Compare(base.UserKey(t.Smallest), to) <= 0)
}

// check validates a description that was read from a file.
func (t *TableMeta) check() error {
	for _, k := range [][]byte{t.Smallest, t.Largest} {
		if err := checkKey(k); err != nil {
			return fmt.Errorf("table %06d: %w", t.Num, err)
		}
	}
	if base.CompareInternal(t.Smallest, t.Largest) > 0 {
		return fmt.Errorf("table %06d: its smallest key is above its largest", t.Num)
	}
	if t.Num > maxFileNum {
		return errFileNum
	}
	return nil
}

// same reports whether two descriptions are equal.
func (t *TableMeta) same(u *TableMeta) bool {
	return t.Num == u.Num && t.Size == u.Size && bytes.Equal(t.Smallest, u.Smallest) && bytes.Equal(t.Largest, u.Largest)
}

// maxFileNum bounds file numbers, so that counting up from one read from a damaged file cannot
// overflow.
const maxFileNum = 1<<62 - 1

// MaxNextFile is the highest next file number with which a database can be written to: counting up
// from it never exceeds what names may hold. Files with higher numbers would not be found again.
const MaxNextFile = maxFileNum / 2

var errFileNum = errors.New("file number out of range")

func checkKey(ikey []byte) error {
	if _, _, _, ok := base.SplitInternalKey(ikey); !ok {
		return fmt.Errorf("malformed internal key %q", ikey)
	}
	return nil
}
