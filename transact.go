package sift

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"
)

const (
	defaultTries = 100
	// After firstRetries conflicts, each try follows a random pause, whose maximum doubles from
	// 2*minBackoff to maxBackoff.
	firstRetries = 4
	minBackoff   = 50 * time.Microsecond
	maxBackoff   = 10 * time.Millisecond
)

// transactWith implements TransactWith.
func (d *DB) transactWith(ctx context.Context, o *TxOptions, fn func(tx *Tx) error) error {
	tries := defaultTries
	if o != nil && o.Tries > 0 {
		tries = o.Tries
	}
	for try := 1; ; try++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		var again bool
		var err error
		switch {
		case o != nil && o.ReadOnly:
			again, err = d.transactOnce(o, fn)
		case try > 1 || d.joints.joins():
			again, err = d.joints.transact(ctx, d, o, fn)
		default:
			again, err = d.transactOnce(o, fn)
			d.joints.tried(again)
		}
		if !again {
			return err
		}
		if try >= tries {
			return fmt.Errorf("%w, in each of %d tries", ErrConflict, try)
		}
		if err := backOff(ctx, try); err != nil {
			return err
		}
	}
}

// transactOnce runs fn in a transaction and commits it. again reports whether the commit found a
// conflict.
func (d *DB) transactOnce(o *TxOptions, fn func(tx *Tx) error) (again bool, err error) {
	tx, err := d.Begin(o)
	if err != nil {
		return false, err
	}
	defer tx.Discard() // also when fn panics
	if err := fn(tx); err != nil {
		return false, err
	}
	err = tx.Commit()
	return errors.Is(err, ErrConflict), err
}

// backOff pauses after a conflict. It returns ctx.Err() early if ctx ends.
func backOff(ctx context.Context, try int) error {
	if try <= firstRetries {
		runtime.Gosched()
		return nil
	}
	longest := min(minBackoff<<min(try-firstRetries, 20), maxBackoff)
	t := time.NewTimer(rand.N(longest))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
