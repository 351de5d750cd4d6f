package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/testhook"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// TestLinear has many clients use a few keys concurrently, and checks that their history is
// linearizable: there is an order of the operations that explains all answers, in which each
// takes effect at one moment between its call and its return.
func TestLinear(t *testing.T) { runLinear(short(t)) }

func runLinear(p *plan) {
	histories, operations := 0, 0
	var mu sync.Mutex
	for done := false; !done; done = !p.full() || p.over() || p.t.Failed() {
		p.each(50, func(i int) error {
			mu.Lock()
			seed := p.seed + uint64(histories)
			histories++
			mu.Unlock()
			h, err := history(seed)
			if err != nil {
				return fmt.Errorf("seed %d: %w", seed, err)
			}
			mu.Lock()
			operations += len(h)
			mu.Unlock()
			switch porcupine.CheckOperationsTimeout(pairs, h, time.Minute) {
			case porcupine.Illegal:
				return fmt.Errorf("seed %d: a history of %d operations is not linearizable", seed, len(h))
			case porcupine.Unknown:
				return fmt.Errorf("seed %d: the checker timed out on %d operations", seed, len(h))
			}
			return nil
		})
	}
	p.t.Logf("%d histories, %d operations", histories, operations)
}

// pairOp is an operation on a pair of keys. Pairs distinguish a batch from two writes.
type pairOp struct {
	pair  int
	write bool
	set   [2]bool   // what a write touches
	to    [2]string // what it sets, "" to delete
}

var pairs = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byPair := map[int][]porcupine.Operation{}
		for _, op := range history {
			p := op.Input.(pairOp).pair
			byPair[p] = append(byPair[p], op)
		}
		var parts [][]porcupine.Operation
		for _, ops := range byPair {
			parts = append(parts, ops)
		}
		return parts
	},
	Init: func() any { return [2]string{} },
	Step: func(state, input, output any) (bool, any) {
		s, in := state.([2]string), input.(pairOp)
		if !in.write {
			return output.([2]string) == s, s
		}
		for i := range s {
			if in.set[i] {
				s[i] = in.to[i]
			}
		}
		return true, s
	},
}

// history runs clients and returns their history.
func history(seed uint64) ([]porcupine.Operation, error) {
	rng := rand.New(rand.NewPCG(seed, 21))
	clients := 8 + rng.IntN(25)
	o := tiny()
	testhook.Apply(&o, testhook.Settings{FS: vfstest.NewMem()})
	db, err := sift.Open(dbDir, &o)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	histories := make([][]porcupine.Operation, clients)
	errs := make([]error, clients+1)
	stop := make(chan struct{})
	var background, wg sync.WaitGroup
	background.Go(func() { errs[clients] = disturb(db, stop) })
	for c := range clients {
		rng := rand.New(rand.NewPCG(seed, uint64(100+c)))
		wg.Go(func() {
			for i := range 12 {
				op := randomPairOp(rng, fmt.Sprintf("%d.%d", c, i))
				call := time.Since(begin)
				out, err := op.do(db, rng)
				if err != nil {
					errs[c] = err
					return
				}
				histories[c] = append(histories[c], porcupine.Operation{
					ClientId: c, Input: op, Output: out, Call: int64(call), Return: int64(time.Since(begin)),
				})
			}
		})
	}
	wg.Wait()
	close(stop)
	background.Wait()
	var all []porcupine.Operation
	for _, h := range histories {
		all = append(all, h...)
	}
	return all, errors.Join(append(errs, db.Close())...)
}

// disturb flushes and compacts until it is stopped.
func disturb(db *sift.DB, stop chan struct{}) error {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return nil
		default:
		}
		var err error
		if i%3 == 2 {
			err = db.Compact(context.Background(), nil, nil)
		} else {
			err = db.Flush()
		}
		if err != nil {
			return err
		}
	}
}

func randomPairOp(rng *rand.Rand, value string) pairOp {
	op := pairOp{pair: rng.IntN(3), write: rng.IntN(2) == 0}
	switch rng.IntN(4) {
	case 0:
		op.set[0], op.to[0] = true, value
	case 1:
		op.set[1] = true
	case 2:
		op.set[1], op.to[1] = true, value
	case 3:
		op.set, op.to = [2]bool{true, true}, [2]string{value, value}
	}
	return op
}

func (op pairOp) key(i int) []byte { return fmt.Appendf(nil, "pair%d/%d", op.pair, i) }

func (op pairOp) do(db *sift.DB, rng *rand.Rand) (out [2]string, err error) {
	if op.write {
		var b sift.Batch
		for i := range op.set {
			switch {
			case op.set[i] && op.to[i] == "":
				b.Delete(op.key(i))
			case op.set[i]:
				b.Put(op.key(i), []byte(op.to[i]))
			}
		}
		return out, db.Write(&b, &sift.WriteOptions{NoSync: rng.IntN(2) == 0})
	}
	keys := [][]byte{op.key(0), op.key(1)}
	var values [][]byte
	switch rng.IntN(3) {
	case 0:
		values, err = db.GetMany(keys)
	case 1:
		s := db.Snapshot()
		values, err = s.GetMany(keys)
		err = errors.Join(err, s.Close())
	default:
		values, err = scanPair(db, op)
	}
	if err != nil {
		return out, err
	}
	return [2]string{string(values[0]), string(values[1])}, nil
}

// scanPair reads both keys with an iterator.
func scanPair(db *sift.DB, op pairOp) ([][]byte, error) {
	it, err := db.NewIter(&sift.IterOptions{Prefix: fmt.Appendf(nil, "pair%d/", op.pair)})
	if err != nil {
		return nil, err
	}
	values := make([][]byte, 2)
	for ok := it.First(); ok; ok = it.Next() {
		values[it.Key()[len(it.Key())-1]-'0'] = append([]byte(nil), it.Value()...)
	}
	return values, it.Close()
}
