package filter

import "fmt"

// verify returns an error that names the first of the keys that r excludes. All were added.
func verify(r Reader, keys []Key) error {
	var maybe [4 * hashBatch]bool
	for at := 0; at < len(keys); at += len(maybe) {
		batch := keys[at:min(at+len(maybe), len(keys))]
		r.MayContainMany(batch, maybe[:len(batch)])
		for i := range batch {
			if !maybe[i] {
				return fmt.Errorf("key %d of %d, with hash %016x, was added and is excluded", at+i, len(keys), batch[i].Hash)
			}
		}
	}
	return nil
}
