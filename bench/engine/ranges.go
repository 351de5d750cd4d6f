package engine

import "github.com/siftdb/sift/bench/data"

// newIter looks for a key in a range with an iterator that has its bounds.
const newIter = "new iterator"

// countRanges counts the ranges for which has returns true.
func countRanges(from, to *data.Keys, has func(from, to []byte) (bool, error)) (found int, err error) {
	for i := range from.Len() {
		ok, err := has(from.At(i), to.At(i))
		if err != nil {
			return found, err
		}
		if ok {
			found++
		}
	}
	return found, nil
}
