package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift"
)

// rivals increment the same counters in transactions, so that most of these conflict. Each counter
// must equal the number of transactions that succeeded.
type rivals struct {
	s       *stress
	written [rivalCounters]atomic.Int64
	unsure  [rivalCounters]atomic.Int64 // increments that failed with ErrReopen
}

const (
	numRivals     = 4
	rivalCounters = 2
)

func rivalKey(i int) []byte { return fmt.Appendf(nil, "rivals/%d", i) }

// increment increments a counter.
func (r *rivals) increment(ctx context.Context, rng *rand.Rand) error {
	i := rng.IntN(rivalCounters)
	err := r.s.call("Transact of a rival", sift.ErrConflict, func() error {
		return r.s.db.Transact(context.Background(), func(tx *sift.Tx) error {
			n, err := readCounter(tx.Get(rivalKey(i)))
			if err != nil {
				return err
			}
			runtime.Gosched() // to a rival
			return tx.Put(rivalKey(i), strconv.AppendInt(nil, n+1, 10))
		})
	})
	switch {
	case err == nil:
		r.written[i].Add(1)
	case errors.Is(err, sift.ErrReopen):
		r.unsure[i].Add(1)
	}
	if rng.IntN(20) == 0 { // bursts, with rest for the others
		time.Sleep(time.Duration(rng.IntN(5000)) * time.Microsecond)
	}
	return err
}

// adopt checks the counters after an open.
func (r *rivals) adopt() {
	for i := range r.written {
		var n int64
		if r.s.call("Get", nil, func() (err error) { n, err = readCounter(r.s.db.Get(rivalKey(i))); return err }) != nil {
			continue
		}
		if written, unsure := r.written[i].Load(), r.unsure[i].Load(); n < written || n > written+unsure {
			r.s.fail("a counter is %d after %d increments and %d that may have failed", n, written, unsure)
		}
		r.written[i].Store(n)
		r.unsure[i].Store(0)
	}
}

func readCounter(value []byte, err error) (int64, error) {
	if errors.Is(err, sift.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(value), 10, 64)
}
