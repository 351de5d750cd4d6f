// Package redisbloom implements the Bloom and cuckoo filters of RedisBloom's BF and CF
// commands: with the same hashes, sizes, growth, results and dumps, byte for byte, so that
// filters can move between the two. A second layout of the Bloom filter, Tight, keeps the
// requested false positive rate at every size, and takes less memory when the filter grows.
// Its dumps have a different format.
//
// Filters support redo logs and checkpoints. Every change appends a few bytes to a redo log,
// which TakeRedo returns and Replay applies. Every page of PageBytes that has changed is
// marked dirty, and a checkpoint writes only those pages. Replaying a redo log on pages that
// are newer than its start gives the same state, if it is replayed to its end. So pages need
// not be written atomically, only before the redo log that led to them is deleted.
//
// The types do no locking: reads may run in parallel, changes must be exclusive.
package redisbloom
