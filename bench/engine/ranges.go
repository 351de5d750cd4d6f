package engine

import "github.com/siftdb/sift/bench/data"

// newIter looks into a range by a new iterator with its bounds.
const newIter = "new iterator"

// countRanges asks has for each range.
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
