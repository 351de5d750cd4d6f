package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/siftdb/sift/internal/base"
)

// NumLevels is the number of levels of the tree. LevelDB reads no more; on
// disk, do not change.
const NumLevels = 7

// maxLevels bounds the levels that a MANIFEST of goleveldb's may have, which makes
// as many as its options and its data ask for.
const maxLevels = 1 << 16

// TableMeta describes one table. One TableMeta stands for one file for as long
// as the process runs: versions that share a table share the pointer. All
// fields but Handle are immutable.
type TableMeta struct {
	Num      uint64 // file number
	Size     uint64 // of the file, in bytes
	Smallest []byte // the first internal key, encoded
	Largest  []byte // the last internal key, encoded

	// Handle is the owner's: it is set once, before the first version that
	// holds the table is published to other goroutines, and only read then.
	Handle any

	refs atomic.Int64 // versions that hold the table and are in use
}

// String gives number, size and user-key range.
func (t *TableMeta) String() string {
	return fmt.Sprintf("%06d %d [%q..%q]", t.Num, t.Size, base.UserKey(t.Smallest), base.UserKey(t.Largest))
}

// Covers reports whether the user key lies within the table's range.
func (t *TableMeta) Covers(userKey []byte) bool {
	return bytes.Compare(userKey, base.UserKey(t.Smallest)) >= 0 &&
		bytes.Compare(userKey, base.UserKey(t.Largest)) <= 0
}

// Overlaps reports whether the table's range and the user keys from..to, both
// included, have a key in common. nil stands for no bound.
func (t *TableMeta) Overlaps(from, to []byte) bool {
	return (from == nil || bytes.Compare(base.UserKey(t.Largest), from) >= 0) &&
		(to == nil || bytes.Compare(base.UserKey(t.Smallest), to) <= 0)
}

// check says what is wrong with a description that came from a file.
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

// same reports whether two descriptions say the same.
func (t *TableMeta) same(u *TableMeta) bool {
	return t.Num == u.Num && t.Size == u.Size && bytes.Equal(t.Smallest, u.Smallest) && bytes.Equal(t.Largest, u.Largest)
}

// maxFileNum bounds file numbers, so that counting on from one read from a
// damaged file cannot wrap around.
const maxFileNum = 1<<62 - 1

var errFileNum = errors.New("file number out of range")

func checkKey(ikey []byte) error {
	if _, _, _, ok := base.SplitInternalKey(ikey); !ok {
		return fmt.Errorf("malformed internal key %q", ikey)
	}
	return nil
}
