package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/torture/serial"
)

// txnLoad runs transactions whose history package serial can check.
type txnLoad struct {
	db        *sift.DB
	registers bool         // the objects are registers; else lists
	keys      []string     // sorted
	clock     func() int64 // the time for starts and ends
	value     atomic.Int64 // the last value that was written
	// began receives a transaction before it commits, unless it is nil.
	began func(*serial.Txn)
}

func newTxnLoad(db *sift.DB, registers bool, prefix string) *txnLoad {
	w := &txnLoad{db: db, registers: registers}
	for i := range 10 {
		w.keys = append(w.keys, fmt.Sprintf("%s%02d", prefix, i))
	}
	begin := time.Now()
	w.clock = func() int64 { return int64(time.Since(begin)) }
	return w
}

func (w *txnLoad) key(rng *rand.Rand) string {
	if rng.IntN(2) == 0 {
		return w.keys[rng.IntN(3)]
	}
	return w.keys[rng.IntN(len(w.keys))]
}

// readOp returns the operation that read a value; a nil value is an absent key.
func (w *txnLoad) readOp(key string, value []byte) (o serial.Op, err error) {
	o.Key = key
	for s := range strings.FieldsSeq(string(value)) {
		n, err := strconv.Atoi(s)
		if err != nil {
			return o, fmt.Errorf("%q is %q", key, value)
		}
		if w.registers {
			o.Value = n
			break
		}
		o.List = append(o.List, n)
	}
	return o, nil
}

// register returns the contents of a register, padded to cause many flushes.
func register(value int) []byte {
	return fmt.Appendf(nil, "%d %s", value, strings.Repeat("0", value%200))
}

// all reads every key at one moment.
func (w *txnLoad) all() (t serial.Txn, err error) {
	keys := make([][]byte, len(w.keys))
	for i, k := range w.keys {
		keys[i] = []byte(k)
	}
	values, err := w.db.GetMany(keys)
	for i, v := range values {
		o, err := w.readOp(w.keys[i], v)
		if err != nil {
			return t, err
		}
		t.Ops = append(t.Ops, o)
	}
	return t, err
}

// one runs a transaction and returns what it did. A conflict is not an error.
func (w *txnLoad) one(rng *rand.Rand, name string) (t serial.Txn, sync bool, err error) {
	t.Name, t.Start = name, w.clock()
	if w.registers && rng.IntN(8) == 0 {
		return w.blind(rng, t)
	}
	o := &sift.TxOptions{NoSync: rng.IntN(3) > 0, ReadOnly: rng.IntN(10) == 0, Tries: 5}
	if rng.IntN(3) == 0 {
		return w.transact(rng, t, o)
	}
	tx, err := w.db.Begin(o)
	if err != nil {
		return t, false, err
	}
	defer tx.Discard()
	if t.Ops, err = w.ops(rng, tx, o.ReadOnly); err != nil {
		return t, false, err
	}
	t.Outcome = serial.Unknown
	if w.began != nil {
		w.began(&t)
	}
	if rng.IntN(15) == 0 {
		tx.Discard()
		t.Outcome = serial.Aborted
	} else if err := tx.Commit(); err == nil {
		t.Outcome = serial.Committed
	} else if errors.Is(err, sift.ErrConflict) {
		t.Outcome = serial.Aborted
	} else {
		return t, false, err
	}
	t.End = w.clock()
	return t, !o.NoSync, nil
}

var errGivenUp = errors.New("given up")

// transact runs a transaction with Transact. Only the last try counts.
func (w *txnLoad) transact(rng *rand.Rand, t serial.Txn, o *sift.TxOptions) (serial.Txn, bool, error) {
	err := w.db.TransactWith(context.Background(), o, func(tx *sift.Tx) (err error) {
		if t.Ops, err = w.ops(rng, tx, o.ReadOnly); err != nil {
			return err
		}
		t.Outcome = serial.Unknown
		if w.began != nil {
			w.began(&t)
		}
		if rng.IntN(15) == 0 {
			return errGivenUp
		}
		return nil
	})
	switch t.End = w.clock(); {
	case err == nil:
		t.Outcome = serial.Committed
	case errors.Is(err, errGivenUp), errors.Is(err, sift.ErrConflict):
		t.Outcome = serial.Aborted
	default:
		return t, false, err
	}
	return t, !o.NoSync, nil
}

// ops performs a transaction's operations and returns them.
func (w *txnLoad) ops(rng *rand.Rand, tx *sift.Tx, readOnly bool) (all []serial.Op, err error) {
	for range 1 + rng.IntN(5) {
		var ops []serial.Op
		switch n := rng.IntN(6); {
		case n < 3 && !readOnly:
			ops, err = w.write(rng, tx)
		case n < 4:
			ops, err = w.scan(rng, tx)
		default:
			ops, err = w.read(rng, tx)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, ops...)
		if rng.IntN(3) == 0 {
			runtime.Gosched()
		}
	}
	if rng.IntN(4) == 0 {
		time.Sleep(time.Duration(rng.IntN(1000)) * time.Microsecond)
	}
	return all, nil
}

// blind writes some registers, without a transaction.
func (w *txnLoad) blind(rng *rand.Rand, t serial.Txn) (serial.Txn, bool, error) {
	var b sift.Batch
	for range 1 + rng.IntN(3) {
		o := serial.Op{Kind: serial.Write, Key: w.key(rng), Value: int(w.value.Add(1))}
		b.Put([]byte(o.Key), register(o.Value))
		t.Ops = append(t.Ops, o)
	}
	sync := rng.IntN(2) == 0
	t.Outcome = serial.Unknown
	if w.began != nil {
		w.began(&t)
	}
	err := w.db.Write(&b, &sift.WriteOptions{NoSync: !sync})
	if err == nil {
		t.Outcome = serial.Committed
	}
	t.End = w.clock()
	return t, sync, err
}

func (w *txnLoad) write(rng *rand.Rand, tx *sift.Tx) ([]serial.Op, error) {
	key := w.key(rng)
	value := int(w.value.Add(1))
	if w.registers {
		return []serial.Op{{Kind: serial.Write, Key: key, Value: value}}, tx.Put([]byte(key), register(value))
	}
	old, err := tx.Get([]byte(key))
	if err != nil && !errors.Is(err, sift.ErrNotFound) {
		return nil, err
	}
	r, err := w.readOp(key, old)
	if err != nil {
		return nil, err
	}
	ops := []serial.Op{r, {Kind: serial.Append, Key: key, Value: value}}
	return ops, tx.Put([]byte(key), fmt.Appendf(old, " %d", value))
}

func (w *txnLoad) read(rng *rand.Rand, tx *sift.Tx) (ops []serial.Op, err error) {
	keys := [][]byte{[]byte(w.key(rng))}
	var values [][]byte
	if rng.IntN(2) == 0 {
		var v []byte
		if v, err = tx.Get(keys[0]); errors.Is(err, sift.ErrNotFound) {
			err = nil
		}
		values = [][]byte{v}
	} else {
		keys = append(keys, []byte(w.key(rng)), []byte(w.key(rng)))
		values, err = tx.GetMany(keys)
	}
	for i, v := range values {
		o, rerr := w.readOp(string(keys[i]), v)
		ops, err = append(ops, o), errors.Join(err, rerr)
	}
	return ops, err
}

// scan reads a range or a part of it, in either direction. Absent keys count as read, too.
func (w *txnLoad) scan(rng *rand.Rand, tx *sift.Tx) (ops []serial.Op, err error) {
	from, to := rng.IntN(len(w.keys)), rng.IntN(len(w.keys))
	if from > to {
		from, to = to, from
	}
	within := w.keys[from:to]
	o := &sift.IterOptions{LowerBound: []byte(w.keys[from]), UpperBound: []byte(w.keys[to])}
	it, err := tx.NewIter(o)
	if err != nil {
		return nil, err
	}
	forward, most := rng.IntN(2) == 0, 1+rng.IntN(len(w.keys))
	first, next := it.First, it.Next
	if !forward {
		first, next = it.Last, it.Prev
	}
	found := map[string][]byte{}
	last := ""
	ok := first()
	for ; ok && len(found) < most; ok = next() {
		last = string(it.Key())
		found[last] = slices.Clone(it.Value())
	}
	stopped := ok // it is at a key, which has been read, too
	if stopped {
		last = string(it.Key())
		found[last] = slices.Clone(it.Value())
	}
	if err := it.Close(); err != nil {
		return nil, err
	}
	for _, k := range within {
		if stopped && (forward && k > last || !forward && k < last) {
			continue
		}
		r, err := w.readOp(k, found[k])
		if err != nil {
			return nil, err
		}
		ops = append(ops, r)
		delete(found, k)
	}
	if len(found) > 0 {
		return nil, fmt.Errorf("a scan of %q to %q finds %d other keys", o.LowerBound, o.UpperBound, len(found))
	}
	return ops, nil
}
