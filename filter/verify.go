package filter

// Verify probes r for keys that were added, and returns an error that names the first
// false negative. It takes a small part of the time to build the filter, and catches
// memory errors in between. Readers of this package, except RocksDBBloom's, need only the
// keys' Hash.
func Verify(r Reader, keys []Key) error {
	var maybe [4 * hashBatch]bool
	for at := 0; at < len(keys); at += len(maybe) {
		batch := keys[at:min(at+len(maybe), len(keys))]
		r.MayContainMany(batch, maybe[:len(batch)])
		for i := range batch {
			if !maybe[i] {
				return damaged("key %d of %d, with hash %016x, was added and is excluded", at+i, len(keys), batch[i].Hash)
			}
		}
	}
	return nil
}
