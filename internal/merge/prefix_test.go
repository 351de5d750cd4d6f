package merge

import (
	"slices"
	"testing"

	"github.com/siftdb/sift/internal/base"
)

// TestKeysOfAboutEightBytes merges keys of up to ten bytes, each from its own iterator, that differ
// only in their last bytes or in length: the first eight bytes of an internal key, which are
// compared first, may include part of its trailer.
func TestKeysOfAboutEightBytes(t *testing.T) {
	var keys []string
	for n := range 9 {
		start := "abcdefgh"[:n]
		for _, end := range []string{"", "\x00", "\x00\x00", "\x01", "\x02", "`z", "a", "\xff"} {
			keys = append(keys, start+end)
		}
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	var children []base.Iterator
	for i, k := range keys {
		ikey := base.AppendInternalKey(nil, []byte(k), uint64(1000+i*37%256), base.KindSet)
		children = append(children, newSliceIter([]entry{{ikey: ikey}}))
	}
	it := New(children...)
	var got []string
	for ok := it.First(); ok; ok = it.Next() {
		got = append(got, string(base.UserKey(it.Key())))
	}
	if !slices.Equal(got, keys) {
		t.Errorf("forwards: %q", got)
	}
	got = nil
	for ok := it.Last(); ok; ok = it.Prev() {
		got = append(got, string(base.UserKey(it.Key())))
	}
	slices.Reverse(got)
	if !slices.Equal(got, keys) || it.Err() != nil {
		t.Errorf("backwards: %q, %v", got, it.Err())
	}
	if err := it.Close(); err != nil {
		t.Error(err)
	}
}
