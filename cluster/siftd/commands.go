package siftd

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/cluster"
)

// The log of a shard's group holds two kinds of commands, told apart by their first byte:
//
//	E epoch            the leader of a new term begins to write; 16 bytes
//	W epoch batch      a leader's writes, as sift.Batch's Dump; refused if another
//	                   leader has begun since
//
// Its database holds, in addition to what a server writes:
//
//	cepoch             the last E's
//
// The log of the directory group holds:
//
//	S shape            how the cluster is divided, JSON; the first counts
//	N id 0 address     where clients reach a node
//	F id               the node is to leave
//	D id               the node is gone
//	G shard place      who leads a shard's group and is in it, JSON; two bytes, little-endian
//
// and its database:
//
//	cshape             S's
//	cn id              a node's address
//	cf id              the node is to leave
//	cg shard           G's
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

	epochLen  = 16
	epochKey  = "cepoch"
	shapeKey  = "cshape"
	nodeKeys  = "cn"
	leaveKeys = "cf"
	placeKeys = "cg"
)

var (
	errDeposed = errors.New("siftd: another leader has begun")
	errCommand = errors.New("siftd: a command that is not one")
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

// applyToAll is the state machine of the directory group.
func applyToAll(tx *cluster.Tx, command []byte) (any, error) {
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
