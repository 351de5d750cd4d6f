package siftd

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/cluster"
)

// The log of a shard's group holds two kinds of commands, distinguished by their first byte:
//
//	E epoch            a new leader starts to write; epoch has 16 bytes
//	W epoch batch      a leader's writes, by sift.Batch.Dump; rejected if another
//	                   leader has started since
//
// In addition to the server's own keys, the group's database holds:
//
//	cepoch             the epoch of the last E
//
// The log of the directory group holds:
//
//	S shape            a Shape, as JSON; only the first counts
//	N id 0 address     where clients reach a node
//	F id               the node is to leave
//	D id               the node has left
//	G shard place      the leader and members of a shard's group, as JSON; shard has two
//	                   bytes, little-endian
//
// and its database:
//
//	cshape             the shape
//	cn id              a node's address
//	cf id              present if the node is to leave
//	cg shard           the shard's place
//
// In the log and on disk; do not change.
const (
	beginCommand  = 'E'
	writeCommand  = 'W'
	shapeCommand  = 'S'
	nodeCommand   = 'N'
	leaveCommand  = 'F'
	forgetCommand = 'D'
	placeCommand  = 'G'

	epochLen    = 16
	writeHeader = 1 + epochLen // before the batch of a W

	epochKey  = "cepoch"
	shapeKey  = "cshape"
	nodeKeys  = "cn"
	leaveKeys = "cf"
	placeKeys = "cg"
)

var (
	errDeposed = errors.New("siftd: another leader has taken over")
	errCommand = errors.New("siftd: invalid command")
)

func writeEntry(epoch [epochLen]byte, b *sift.Batch) []byte {
	return append(append([]byte{writeCommand}, epoch[:]...), b.Dump()...)
}

// apply is the state machine of a shard's group.
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
	}
	return nil, errCommand
}

// applyDirectory is the state machine of the directory group.
func applyDirectory(tx *cluster.Tx, command []byte) (any, error) {
	if len(command) == 0 {
		return nil, errCommand
	}
	kind, rest := command[0], command[1:]
	switch kind {
	case shapeCommand:
		if has, err := tx.Has([]byte(shapeKey)); has || err != nil {
			return nil, err
		}
		return nil, tx.Put([]byte(shapeKey), rest)
	case nodeCommand:
		id, addr, ok := bytes.Cut(rest, []byte{0})
		if !ok {
			return nil, errCommand
		}
		return nil, tx.Put(append([]byte(nodeKeys), id...), addr)
	case leaveCommand:
		return nil, tx.Put(append([]byte(leaveKeys), rest...), nil)
	case forgetCommand:
		return nil, errors.Join(tx.Delete(append([]byte(nodeKeys), rest...)), tx.Delete(append([]byte(leaveKeys), rest...)))
	case placeCommand:
		if len(rest) < 2 {
			return nil, errCommand
		}
		return nil, tx.Put(append([]byte(placeKeys), rest[:2]...), rest[2:])
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
