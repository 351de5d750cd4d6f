package serve

import "errors"

// The store accepts batches only up to some size, and a group only up to a smaller one. When a
// batch turns out to be larger, the command may already have changed filters in memory, which would
// then differ from the store. So a command is executed only if the largest batch that it may need
// would be accepted. The changes of a filter are not part of that: they are written, or added to a
// transaction's batch, as they grow, see drain.

const (
	// maxBatch is a batch size that the store accepts if there is no group; see sift.Batch.
	maxBatch = 1<<30 - 64
	// spareBytes is how much room commands leave in the largest batch that is accepted: for other
	// plain SETs that were collected before, for the changes of up to execTouched filters that are
	// not in a transaction's batch yet, and for those that one more item makes.
	spareBytes = 4 << 20
	// argBytes bounds what a batch contains for an argument besides copies of it: 40 bytes to
	// remove a filter that expires, its entry in the expiry index and its name, and up to 20 for an
	// item of a filter. collectedBytes is argBytes for plain SETs, on average over key and value.
	// If these are many, the expiry index is not in the same batch.
	argBytes, collectedBytes = 40, 14
	// A key may be in a batch twice: with its head, and with its old entry in the expiry index. The
	// last key of a command may be there lastKeyCopies times, if it gets an expiry and the name of
	// a filter. MOVE, which has one key, writes it for two databases, mostCopies times.
	lastKeyCopies, mostCopies = 4, 6
)

var errTooMuch = errors.New("OOM the command may change too much at once")

// fits reports whether a command may write n bytes. In a transaction, these are added to those of
// the earlier commands.
func (c *client) fits(n int64) bool {
	if c.inExec {
		n += int64(c.batch.Size())
	}
	return n <= int64(c.srv.maxWrite)
}

// checkRoom returns an error if the changes of a command might not fit.
func (c *client) checkRoom(cmd *command, args [][]byte) error {
	if c.inExec && c.batch.Size() > c.srv.execMax {
		return errExecOOM
	}
	size := int64(argBytes * len(args))
	for _, a := range args {
		size += int64(len(a))
	}
	switch {
	case c.fits(mostCopies*size + c.srv.longestValue()), c.fits(c.mostWritten(cmd, args, size)):
		return nil
	case c.inExec:
		return errExecOOM
	}
	return errTooMuch
}

// longestValue bounds the values in the store.
func (s *Server) longestValue() int64 {
	if s.cfg.Group != nil {
		return int64(s.cfg.MaxBulkBytes)
	}
	return longestBulk // MaxBulkBytes may have been larger
}

// mostWritten returns an upper bound on how many bytes a command adds to the batch, not counting
// changes of filters. size is that of its arguments, with argBytes for each.
func (c *client) mostWritten(cmd *command, args [][]byte, size int64) int64 {
	switch {
	case c.inExec:
	case cmd.isCollected(args):
		return size - int64((argBytes-collectedBytes)*len(args))
	case cmd.name == "del", cmd.name == "unlink":
		return 0 // parts bounds it
	case cmd.name == "bf.madd", cmd.name == "bf.insert", cmd.name == "cf.insert", cmd.name == "cf.insertnx":
		return lastKeyCopies*int64(len(args[1])) + argBytes // parts bounds the items
	}
	var last int64
	for key := range cmd.keys(args) {
		last = int64(len(key))
		size += last
	}
	size += (lastKeyCopies - 2) * last
	if cmd.name == "move" {
		size += (mostCopies - lastKeyCopies) * last
	}
	if cmd.flags&rewrites != 0 {
		size += c.srv.longestValue()
	}
	return size
}
