package groupcommit

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// call is a member.
type call struct {
	Member
	id   int
	runs int
}

func newCall(id int) *call { return &call{Member: NewMember(), id: id} }

// work records the groups that are run.
type work struct {
	t       *testing.T
	most    int // the size of the largest group
	expect  int
	run     func(group []*call) // called in addition; may be nil
	running atomic.Bool
	groups  [][]int // ids
}

func (w *work) expected(*call) int { return w.expect }

func (w *work) take(waiting []*call) int { return min(len(waiting), w.most) }

func (w *work) runGroup(group []*call) {
	if w.running.Swap(true) {
		w.t.Error("two groups run at the same time")
	}
	defer w.running.Store(false)
	var ids []int
	for _, c := range group {
		c.runs++
		ids = append(ids, c.id)
	}
	w.groups = append(w.groups, ids)
	if w.run != nil {
		w.run(group)
	}
}

func newQueue(t *testing.T, most int) (*Queue[*call], *work) {
	w := &work{t: t, most: most}
	q := &Queue[*call]{}
	q.Init(Work[*call]{Expect: w.expected, Take: w.take, Run: w.runGroup})
	return q, w
}

// within fails the test if wg does not become done.
func within(t *testing.T, wg *sync.WaitGroup) {
	t.Helper()
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("a call does not return")
	}
}

// awaitLen waits until n members wait in q.
func awaitLen(t *testing.T, q *Queue[*call], n int) {
	t.Helper()
	for begin := time.Now(); q.Len() != n; runtime.Gosched() {
		if time.Since(begin) > time.Minute {
			t.Fatalf("%d members wait, want %d", q.Len(), n)
		}
	}
}

// hold starts call 0. Its group is running when hold returns, and ends when release is called.
func hold(q *Queue[*call], w *work, wg *sync.WaitGroup) (release func()) {
	entered, held := make(chan struct{}), make(chan struct{})
	w.run = func([]*call) {
		w.run = nil
		close(entered)
		<-held
	}
	wg.Go(func() { q.Do(newCall(0)) })
	<-entered
	return func() { close(held) }
}

// TestMany checks that each of many concurrent calls is run once, and has been when Do returns.
func TestMany(t *testing.T) {
	const callers, each, most = 16, 500, 5
	q, w := newQueue(t, most)
	w.expect = 3
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			c := newCall(i)
			for n := range each {
				if !q.Do(c) || c.runs != n+1 {
					t.Errorf("after call %d, caller %d has been run %d times", n, i, c.runs)
					return
				}
			}
		})
	}
	within(t, &wg)
	total := 0
	for _, ids := range w.groups {
		total += len(ids)
		if len(ids) > most {
			t.Errorf("a group has %d members", len(ids))
		}
	}
	if total != callers*each || q.Len() != 0 {
		t.Errorf("%d calls in groups, %d left, of %d", total, q.Len(), callers*each)
	}
}

// TestOrder checks that groups have the sizes that Take returns, in the order of the calls.
func TestOrder(t *testing.T) {
	q, w := newQueue(t, 3)
	var wg sync.WaitGroup
	release := hold(q, w, &wg)
	for i := range 7 {
		wg.Go(func() { q.Do(newCall(i + 1)) })
		awaitLen(t, q, i+1)
	}
	release()
	within(t, &wg)
	want := [][]int{{0}, {1, 2, 3}, {4, 5, 6}, {7}}
	if !slices.EqualFunc(w.groups, want, slices.Equal[[]int]) {
		t.Errorf("the groups are %v, want %v", w.groups, want)
	}
}

// TestUnwound checks that the members of a group return, and later groups run, even if Run
// panics or ends the goroutine.
func TestUnwound(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("by the work") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			q, w := newQueue(t, 2)
			var wg sync.WaitGroup
			release := hold(q, w, &wg)
			w.run = func(group []*call) {
				if group[0].id == 1 {
					end()
				}
			}
			var returned atomic.Int64
			for i := range 3 {
				wg.Go(func() {
					defer func() { _ = recover() }()
					q.Do(newCall(i + 1))
					returned.Add(1)
				})
				awaitLen(t, q, i+1)
			}
			release()
			within(t, &wg)
			if n := returned.Load(); n != 2 || len(w.groups) != 3 {
				t.Errorf("%d calls have returned, want 2; the groups are %v", n, w.groups)
			}
		})
	}
}

// TestClose checks that Close waits for all calls in the queue and rejects later ones.
func TestClose(t *testing.T) {
	q, w := newQueue(t, 1)
	var wg sync.WaitGroup
	release := hold(q, w, &wg)
	for i := range 3 {
		wg.Go(func() {
			if !q.Do(newCall(i + 1)) {
				t.Error("a call that was queued before Close is rejected")
			}
		})
		awaitLen(t, q, i+1)
	}
	wg.Go(func() {
		q.Close()
		if len(w.groups) != 4 {
			t.Errorf("Close returns after %d groups", len(w.groups))
		}
	})
	for closed := false; !closed; runtime.Gosched() {
		q.mu.Lock()
		closed = q.closed
		q.mu.Unlock()
	}
	if late := newCall(9); q.Do(late) || late.runs != 0 {
		t.Error("a call after Close is run")
	}
	release()
	within(t, &wg)
	q.Close() // returns at once
}

// TestGather checks that a leader waits for the members that it expects, and not forever. On one
// processor the other member can only come while the leader yields.
func TestGather(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	q, w := newQueue(t, 10)
	w.expect = 2
	if !q.Do(newCall(0)) { // nobody else comes
		t.Error("the call is rejected")
	}
	met := 0
	for range 100 {
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() { q.Do(newCall(i)) })
		}
		within(t, &wg)
		if len(w.groups[len(w.groups)-1]) == 2 {
			met++
		}
	}
	if met < 50 {
		t.Errorf("in %d of 100 rounds the leader waited for the other call", met)
	}
}
