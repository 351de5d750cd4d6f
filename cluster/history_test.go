package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// lists is the model of a key: what was appended to it, in order.
var lists = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, op := range history {
			key := op.Input.(listOp).key
			byKey[key] = append(byKey[key], op)
		}
		var parts [][]porcupine.Operation
		for _, ops := range byKey {
			parts = append(parts, ops)
		}
		return parts
	},
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		s, in, out := state.(string), input.(listOp), output.(listOut)
		if in.token != "" {
			s += in.token + ","
		}
		return out.unknown || out.list == s, s
	},
}

type listOp struct{ key, token string } // token "": a read

type listOut struct {
	list    string
	unknown bool
}

// member is a node as clients see it. After an error that matches ErrUnknown a token may
// have been appended or not; after any other it was not.
type member interface {
	append(ctx context.Context, key, token string) (string, error)
	read(ctx context.Context, key string) (string, error)
}

// recorder runs clients of a group, and records what they see.
type recorder struct {
	seed    uint64
	begin   time.Time
	members func() []member // those that are reachable now
	spread  int             // how many keys each client uses in turn; 0 means 1

	mu     sync.Mutex
	ops    []porcupine.Operation
	acked  map[string][]string // tokens, by key
	client int
}

const opsPerKey = 60

// patience is a timeout that does not run while the process is stopped: a long gap counts
// as one second.
type patience struct {
	left time.Duration
	last time.Time
}

func patient(d time.Duration) *patience { return &patience{d, time.Now()} }

// more reports whether time is left. It must be called every few seconds.
func (p *patience) more() bool {
	now := time.Now()
	passed := now.Sub(p.last)
	if p.last = now; passed > maxTry {
		passed = time.Second
	}
	p.left -= passed
	return p.left > 0
}

// maxTry is longer than anything between two calls of more.
const maxTry = 15 * time.Second

// run runs clients until stop is closed.
func (r *recorder) run(clients int, stop <-chan struct{}) {
	r.begin, r.acked = time.Now(), map[string][]string{}
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() { r.work(rand.New(rand.NewPCG(r.seed, uint64(c))), c, stop) })
	}
	wg.Wait()
}

func (r *recorder) work(rng *rand.Rand, c int, stop <-chan struct{}) {
	keys := max(1, r.spread)
	prefer := make([]int, keys) // the member that answered last
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		members := r.members()
		if len(members) == 0 {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		turn := i % keys
		op := listOp{key: fmt.Sprintf("k%d", i/(opsPerKey*keys)*keys+turn)}
		if rng.IntN(2) == 0 {
			op.token = fmt.Sprintf("%d.%d", c, i)
		}
		if rng.IntN(8) == 0 {
			prefer[turn] = rng.IntN(len(members))
		}
		if !r.do(members[prefer[turn]%len(members)], op, c) {
			prefer[turn]++
			time.Sleep(time.Duration(1+rng.IntN(5)) * time.Millisecond)
		}
	}
}

// do executes an operation, and reports whether its outcome is known.
func (r *recorder) do(m member, op listOp, c int) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	call := time.Since(r.begin)
	var out listOut
	var err error
	if op.token == "" {
		out.list, err = m.read(ctx, op.key)
	} else {
		out.list, err = m.append(ctx, op.key, op.token)
	}
	end := int64(time.Since(r.begin))
	if err != nil {
		if op.token == "" || !errors.Is(err, ErrUnknown) {
			return false
		}
		out, end = listOut{unknown: true}, math.MaxInt64
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	id := c
	if out.unknown {
		// The operation may still take effect, so the client continues under another id.
		r.client++
		id = 1000 + r.client
	} else if op.token != "" {
		r.acked[op.key] = append(r.acked[op.key], op.token)
	}
	r.ops = append(r.ops, porcupine.Operation{ClientId: id, Input: op, Output: out, Call: int64(call), Return: end})
	return err == nil
}

// keys returns all keys that were used.
func (r *recorder) keys() map[string]bool {
	keys := map[string]bool{}
	for _, op := range r.ops {
		keys[op.Input.(listOp).key] = true
	}
	return keys
}

// check reports what is wrong with the history and with the final state.
func (r *recorder) check(final map[string]string) error {
	for key, tokens := range r.acked {
		list := "," + final[key]
		for _, token := range tokens {
			if n := strings.Count(list, ","+token+","); n != 1 {
				return fmt.Errorf("%s: %s was acknowledged, and is there %d times", key, token, n)
			}
		}
	}
	// Lists only grow, so the final list shows whether a write of unknown outcome took
	// effect, and after which others.
	ops := slices.Clone(r.ops)
	ops = slices.DeleteFunc(ops, func(op porcupine.Operation) bool {
		return op.Output.(listOut).unknown && upTo(final, op.Input.(listOp)) == ""
	})
	for i := range ops {
		if ops[i].Output.(listOut).unknown {
			ops[i].Output = listOut{list: upTo(final, ops[i].Input.(listOp))}
		}
	}
	for _, part := range lists.Partition(ops) {
		switch porcupine.CheckOperationsTimeout(lists, part, 5*time.Minute) {
		case porcupine.Illegal:
			return fmt.Errorf("the history of %d operations is not linearizable:\n%s", len(part), formatOps(part))
		case porcupine.Unknown:
			return fmt.Errorf("the checker timed out on %d operations", len(part))
		}
	}
	return nil
}

// formatOps formats operations, ordered by start time, with times in ms and the end of each list.
func formatOps(ops []porcupine.Operation) string {
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var b strings.Builder
	for _, op := range ops {
		in, list := op.Input.(listOp), op.Output.(listOut).list
		fmt.Fprintf(&b, "%s: %9.3f to %9.3f, client %d, append %q: %d bytes, ...%s\n", in.key, float64(op.Call)/1e6, float64(op.Return)/1e6, op.ClientId, in.token, len(list), list[max(0, len(list)-50):])
	}
	return b.String()
}

// upTo returns the list that an append has left, or "" if it has not taken effect.
func upTo(final map[string]string, op listOp) string {
	list := "," + final[op.key]
	i := strings.Index(list, ","+op.token+",")
	if i < 0 {
		return ""
	}
	return list[1 : i+len(op.token)+2]
}

func (r *recorder) String() string {
	unknown, reads := 0, 0
	for _, op := range r.ops {
		if op.Output.(listOut).unknown {
			unknown++
		}
		if op.Input.(listOp).token == "" {
			reads++
		}
	}
	return fmt.Sprintf("%d operations, %d of them reads, %d with unknown outcome", len(r.ops), reads, unknown)
}

// TestModel: the checker accepts legal histories, and finds stale reads and duplicate appends.
func TestModel(t *testing.T) {
	op := func(client int, token, list string, call, end int64) porcupine.Operation {
		return porcupine.Operation{ClientId: client, Input: listOp{"k", token}, Output: listOut{list: list}, Call: call, Return: end}
	}
	for _, c := range []struct {
		name string
		ops  []porcupine.Operation
		want bool
	}{
		{"in order", []porcupine.Operation{op(1, "a", "a,", 1, 2), op(2, "", "a,", 3, 4)}, true},
		{"stale", []porcupine.Operation{op(1, "a", "a,", 1, 2), op(2, "", "", 3, 4)}, false},
		{"at the same time", []porcupine.Operation{op(1, "a", "a,", 1, 4), op(2, "", "", 2, 3)}, true},
		{"twice", []porcupine.Operation{op(1, "a", "a,", 1, 2), op(2, "", "a,a,", 3, 4)}, false},
	} {
		if got := porcupine.CheckOperations(lists, c.ops); got != c.want {
			t.Errorf("%s: linearizable: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestUpTo(t *testing.T) {
	final := map[string]string{"k": "a,bb,b,"}
	for token, want := range map[string]string{"a": "a,", "bb": "a,bb,", "b": "a,bb,b,", "c": ""} {
		if got := upTo(final, listOp{"k", token}); got != want {
			t.Errorf("%s: %q, want %q", token, got, want)
		}
	}
}
