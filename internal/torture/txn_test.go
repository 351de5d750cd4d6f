package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/testhook"
	"github.com/siftdb/sift/internal/torture/serial"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// TestTxn has many goroutines run transactions on a few keys, and checks that their
// history is strictly serializable: while memtables are flushed and tables compacted,
// after power cuts, and, in TestTxnKill, after kills.
func TestTxn(t *testing.T) { runTxn(short(t)) }

func runTxn(p *plan) {
	var txns, commits, images, ops atomic.Int64
	p.rounds(func(seed uint64) {
		p.each(choose(p, 8, 40), func(i int) error {
			s := seed*1000 + uint64(i)
			var err error
			switch i % 4 {
			case 0, 1:
				err = txnHistory(s, i%2 == 1, &txns, &commits)
			case 2:
				err = txnCuts(s, i%8 == 6, &txns, &commits, &images)
			case 3:
				err = txnLinear(s, &ops)
			}
			if err != nil {
				return fmt.Errorf("seed %d: %w", s, err)
			}
			return nil
		})
	})
	p.t.Logf("%d transactions, %d of them committed, %d images of power cuts, %d operations on single keys", txns.Load(), commits.Load(), images.Load(), ops.Load())
	if c, n := commits.Load(), txns.Load(); c == 0 || c > n*95/100 {
		p.t.Errorf("%d of %d transactions were committed: too few or too many for a meaningful test", c, n)
	}
}

func check(registers bool, h []serial.Txn) error {
	if registers {
		return serial.Registers(h)
	}
	return serial.Lists(h)
}

// run has clients run transactions. It returns their history, and which of them must be durable
// once acknowledged.
func (w *txnLoad) run(seed uint64, clients, each int) (h []serial.Txn, durable []bool, err error) {
	histories := make([][]serial.Txn, clients)
	synced := make([][]bool, clients)
	errs := make([]error, clients)
	var wg sync.WaitGroup
	for c := range clients {
		rng := rand.New(rand.NewPCG(seed, uint64(300+c)))
		wg.Go(func() {
			for i := range each {
				t, sync, err := w.one(rng, fmt.Sprintf("%d.%d", c, i))
				if err != nil {
					errs[c] = err
					return
				}
				histories[c] = append(histories[c], t)
				synced[c] = append(synced[c], sync)
			}
		})
	}
	wg.Wait()
	for c := range clients {
		h, durable = append(h, histories[c]...), append(durable, synced[c]...)
	}
	return h, durable, errors.Join(errs...)
}

func count(h []serial.Txn, txns, commits *atomic.Int64) {
	txns.Add(int64(len(h)))
	for i := range h {
		if h[i].Outcome == serial.Committed {
			commits.Add(1)
		}
	}
}

// slowLog slows down syncs of the log, so that groups form.
func slowLog(mem *vfstest.Mem, seed uint64) *vfstest.Faulty {
	faulty := vfstest.Inject(mem)
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 2))
	faulty.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.OpSync && strings.HasSuffix(filepath.Base(op.Name), ".log") {
			mu.Lock()
			pause := time.Duration(rng.IntN(300)) * time.Microsecond
			mu.Unlock()
			time.Sleep(pause)
		}
		return nil
	})
	return faulty
}

// txnHistory checks a history that is made while the tree changes.
func txnHistory(seed uint64, registers bool, txns, commits *atomic.Int64) error {
	rng := rand.New(rand.NewPCG(seed, 22))
	o := tiny()
	testhook.Apply(&o, testhook.Settings{FS: slowLog(vfstest.NewMem(), seed)})
	db, err := sift.Open(dbDir, &o)
	if err != nil {
		return err
	}
	w := newTxnLoad(db, registers, "k")
	stop := make(chan struct{})
	var background sync.WaitGroup
	var derr error
	background.Go(func() { derr = disturb(db, stop) })
	h, _, err := w.run(seed, 4+rng.IntN(20), 20)
	close(stop)
	background.Wait()
	last, aerr := w.all()
	if err = errors.Join(err, derr, aerr, db.Close()); err != nil {
		return err
	}
	last.Name, last.Start, last.End = "last", w.clock(), w.clock()
	count(h, txns, commits)
	return check(registers, append(h, last))
}

// txnCuts makes a history, and cuts the power at some moments: what remains must be a state that a
// reader could have seen, with everything that was durable.
func txnCuts(seed uint64, registers bool, txns, commits, images *atomic.Int64) error {
	rng := rand.New(rand.NewPCG(seed, 23))
	mem := vfstest.NewMem()
	o := tiny()
	testhook.Apply(&o, testhook.Settings{FS: slowLog(mem, seed)})
	db, err := sift.Open(dbDir, &o)
	if err != nil {
		return err
	}
	opened := mem.NumOps()
	w := newTxnLoad(db, registers, "k")
	w.clock = func() int64 { return int64(mem.NumOps()) }
	h, durable, err := w.run(seed, 6, 25)
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	count(h, txns, commits)
	if err := check(registers, h); err != nil {
		return err
	}
	for round := range 12 {
		ops := opened + rng.IntN(mem.NumOps()-opened+1)
		if err := w.cut(mem.CrashImage(ops, vfstest.TearUnsynced(seed+uint64(round))), h, durable, ops); err != nil {
			return fmt.Errorf("power cut after %d operations: %w", ops, err)
		}
		images.Add(1)
	}
	return nil
}

// keyValue is a value that was written to a key.
type keyValue struct {
	key   string
	value int
}

// cut checks what a power cut has left.
func (w *txnLoad) cut(img *vfstest.Mem, h []serial.Txn, durable []bool, ops int) error {
	o := tiny()
	testhook.Apply(&o, testhook.Settings{FS: img})
	db, err := sift.Open(dbDir, &o)
	if err != nil {
		return err
	}
	after := &txnLoad{db: db, registers: w.registers, keys: w.keys}
	reader, err := after.all()
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	// The reader sees a state that is not ordered in time: a commit in progress may be on
	// disk before others could have read it.
	reader.Name, reader.NoStart, reader.NoEnd = "after the cut", true, true
	if err := check(w.registers, append(h[:len(h):len(h)], reader)); err != nil {
		return err
	}
	// It sees every write that was durable, whatever it sees of the others.
	then := slices.Clone(h)
	for i := range then {
		t := &then[i]
		writes := slices.ContainsFunc(t.Ops, func(o serial.Op) bool { return o.Kind != serial.Read })
		t.NoEnd = !durable[i] || !writes || t.End > int64(ops)
	}
	reader.Start, reader.NoStart = int64(ops)+1, false
	if err := check(w.registers, append(then, reader)); err != nil {
		return fmt.Errorf("something durable is lost: %w", err)
	}
	there := map[keyValue]bool{}
	for _, r := range reader.Ops {
		there[keyValue{r.Key, r.Value}] = true
		for _, v := range r.List {
			there[keyValue{r.Key, v}] = true
		}
	}
	for i, t := range h {
		// A value of a register may be missing because it was overwritten.
		must := durable[i] && t.Outcome == serial.Committed && t.End <= int64(ops) && !w.registers
		for _, op := range t.Ops {
			if op.Kind == serial.Read {
				continue
			}
			switch found := there[keyValue{op.Key, op.Value}]; {
			case found && t.Start >= int64(ops):
				return fmt.Errorf("a transaction that had not begun is there: %s", t.String())
			case !found && must:
				return fmt.Errorf("a durable transaction is lost: %s", t.String())
			}
		}
	}
	return nil
}

// txnLinear checks transactions of one key each, which are retried until they are
// committed: each must take effect at one moment between its call and its return.
func txnLinear(seed uint64, operations *atomic.Int64) error {
	o := tiny()
	testhook.Apply(&o, testhook.Settings{FS: vfstest.NewMem()})
	db, err := sift.Open(dbDir, &o)
	if err != nil {
		return err
	}
	begin := time.Now()
	const clients = 8
	histories := make([][]porcupine.Operation, clients)
	errs := make([]error, clients)
	var wg sync.WaitGroup
	for c := range clients {
		rng := rand.New(rand.NewPCG(seed, uint64(500+c)))
		wg.Go(func() {
			for i := range 15 {
				op := appendOp{key: fmt.Sprint("key", rng.IntN(3))}
				if rng.IntN(3) > 0 {
					op.value = fmt.Sprintf("%d.%d;", c, i)
				}
				call := time.Since(begin)
				var before string
				errs[c] = db.TransactWith(context.Background(), &sift.TxOptions{NoSync: rng.IntN(2) == 0, Tries: 1 << 20}, func(tx *sift.Tx) error {
					v, err := tx.Get([]byte(op.key))
					if err != nil && !errors.Is(err, sift.ErrNotFound) {
						return err
					}
					if before = string(v); op.value == "" {
						return nil
					}
					return tx.Put([]byte(op.key), append(v, op.value...))
				})
				if errs[c] != nil {
					return
				}
				histories[c] = append(histories[c], porcupine.Operation{ClientId: c, Input: op, Output: before, Call: int64(call), Return: int64(time.Since(begin))})
			}
		})
	}
	wg.Wait()
	var all []porcupine.Operation
	for _, h := range histories {
		all = append(all, h...)
	}
	if err := errors.Join(append(errs, db.Close())...); err != nil {
		return err
	}
	operations.Add(int64(len(all)))
	switch porcupine.CheckOperationsTimeout(appends, all, time.Minute) {
	case porcupine.Illegal:
		return fmt.Errorf("a history of %d operations is not linearizable", len(all))
	case porcupine.Unknown:
		return fmt.Errorf("the checker timed out on %d operations", len(all))
	}
	return nil
}

// appendOp reads a key and, unless value is empty, appends value to it.
type appendOp struct{ key, value string }

var appends = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, op := range history {
			k := op.Input.(appendOp).key
			byKey[k] = append(byKey[k], op)
		}
		var parts [][]porcupine.Operation
		for _, ops := range byKey {
			parts = append(parts, ops)
		}
		return parts
	},
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		return state == output, state.(string) + input.(appendOp).value
	},
}
