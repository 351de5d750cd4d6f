package siftd

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/cluster"
)

// The log holds three kinds of commands. The first byte says which:
//
//	E epoch            the leader of a new term begins to write; 16 bytes
//	W epoch batch      a leader's writes, as sift.Batch's Dump; refused if another
//	                   leader has begun since
//	N id 0 address     where clients reach a node
//	D id               the node is gone
//
// The database holds, beside what a server writes:
//
//	c epoch            the last E's
//	c n id             a node's address
//
// In the log and on disk; do not change.
const (
	beginCommand  = 'E'
	writeCommand  = 'W'
	nodeCommand   = 'N'
	forgetCommand = 'D'

	epochLen = 16
	epochKey = "cepoch"
	nodeKeys = "cn"
)

var (
	errDeposed = errors.New("siftd: another leader has begun")
	errCommand = errors.New("siftd: a command that is not one")
)

func writeEntry(epoch [epochLen]byte, b *sift.Batch) []byte {
	return append(append([]byte{writeCommand}, epoch[:]...), b.Dump()...)
}

// apply is the group's state machine.
func apply(tx *cluster.Tx, command []byte) (any, error) {
	if len(command) == 0 {
		return nil, errCommand
	}
	kind, rest := command[0], command[1:]
	switch kind {
	case beginCommand:
		if len(rest) != epochLen {
			return nil, errCommand
		}
		return nil, tx.Put([]byte(epochKey), rest)
	case writeCommand:
		return nil, applyWrite(tx, rest)
	case nodeCommand:
		id, addr, ok := bytes.Cut(rest, []byte{0})
		if !ok {
			return nil, errCommand
		}
		return nil, tx.Put(append([]byte(nodeKeys), id...), addr)
	case forgetCommand:
		return nil, tx.Delete(append([]byte(nodeKeys), rest...))
	}
	return nil, errCommand
}

func applyWrite(tx *cluster.Tx, command []byte) error {
	if len(command) < epochLen {
		return errCommand
	}
	epoch, err := tx.Get([]byte(epochKey))
	if err != nil && !errors.Is(err, sift.ErrNotFound) {
		return err
	}
	if !bytes.Equal(epoch, command[:epochLen]) {
		return errDeposed
	}
	var b sift.Batch
	if err := b.Load(command[epochLen:]); err != nil {
		return fmt.Errorf("%w: %w", errCommand, err)
	}
	for op := range b.Ops() {
		if op.Delete {
			err = tx.Delete(op.Key)
		} else {
			err = tx.Put(op.Key, op.Value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
