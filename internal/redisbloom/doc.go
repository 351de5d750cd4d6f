// Package redisbloom has the Bloom and cuckoo filters of Redis' BF and CF
// commands: the same hashes, sizes, growth and answers, and dumps of the same
// bytes, so that a filter can move between the two. A second layout of the Bloom
// filter, Tight, keeps the promised false positive rate at every size and takes
// less memory when the filter grows; its dumps are its own.
//
// A filter tells its owner what to store. Every change appends a few bytes to a
// redo log, which TakeRedo hands out and Replay carries out again; and every
// page of PageBytes that changed is noted, so that a checkpoint writes those
// pages alone. Replaying redo over pages that are newer than its beginning ends in
// the same state, as long as it is replayed to the end. So pages need not be
// written in one piece with anything, only before the redo that led to them
// goes.
//
// The types do no locking: reads may run in parallel, changes need exclusion.
package redisbloom
