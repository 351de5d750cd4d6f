package blocks

import "testing"

// The FPR is 1 if a block has more elements than could be counted.
func TestFPROfFullBlocks(t *testing.T) {
	for _, hashes := range []int{1, 7, 32} {
		if got := FPR(512, hashes, 1e19); got != 1 {
			t.Errorf("%d hashes: %v", hashes, got)
		}
	}
}
