package blocks

import "testing"

// So many elements in a block that they could not even be counted.
func TestFPROfFullBlocks(t *testing.T) {
	for _, hashes := range []int{1, 7, 32} {
		if got := FPR(512, hashes, 1e19); got != 1 {
			t.Errorf("%d hashes: %v", hashes, got)
		}
	}
}
