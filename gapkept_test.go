package sift

import (
	"context"
	"fmt"
	"testing"
)

// TestDeleteRangeLeavesGap: the first iterator after a DeleteRange walks over nothing,
// though keys of the range were deleted one by one.
func TestDeleteRangeLeavesGap(t *testing.T) {
	d, err := Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	key := func(i int) []byte { return fmt.Appendf(nil, "key%05d", i) }
	for i := range 3000 {
		if err := d.Put(key(i), nil, NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.DeleteRange(context.Background(), key(1000), key(2000)); err != nil {
		t.Fatal(err)
	}
	gaps := d.gaps.Gaps()
	if len(gaps) != 1 || string(gaps[0].From) > string(key(1000)) || string(gaps[0].To) < string(key(2000)) {
		t.Errorf("the gaps are %v", gaps)
	}
}
