package filter

import "fmt"

// verify returns an error that names the first of the keys that r excludes. All were added.
func verify(r Reader, keys []Key) error {
	var positive [4 * hashBatch]bool
	for at := 0; at < len(keys); at += len(positive) {
		batch := keys[at:min(at+len(positive), len(keys))]
		r.MayContainMany(batch, positive[:len(batch)])
		for i := range batch {
			if !positive[i] {
				return fmt.Errorf("key %d of %d, with hash %016x, was added and is excluded", at+i, len(keys), batch[i].Hash)
			}
		}
	}
	return nil
}
