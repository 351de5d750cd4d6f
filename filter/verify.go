package filter

// Verify asks r for keys that were added and returns an error that names the
// first one denied. With the keys at hand it is a small part of the time that
// building takes, and catches memory that went bad in between. Readers of this
// package but RocksDBBloom's need only the keys' Hash.
func Verify(r Reader, keys []Key) error {
	var maybe [4 * hashBatch]bool
	for at := 0; at < len(keys); at += len(maybe) {
		batch := keys[at:min(at+len(maybe), len(keys))]
		r.MayContainMany(batch, maybe[:len(batch)])
		for i := range batch {
			if !maybe[i] {
				return damaged("key %d of %d, with hash %016x, was added and is denied", at+i, len(keys), batch[i].Hash)
			}
		}
	}
	return nil
}
