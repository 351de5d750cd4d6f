package torture

import (
	"fmt"
	"slices"
	"sync"
	"testing"
)

// trial is one faulty run.
type trial struct {
	r       *Recording
	trouble Trouble
	site    *Site
	nth     int
}

// trials lists the runs to make: in the short form, a fault at the first and the last
// occurrence of each site in the first workload that reaches it; in the full form, at
// each occurrence in each workload.
func (p *plan) trials(seed uint64, scale int, skip []string, troubles []Trouble) (list []trial) {
	covered := map[uint64]bool{}
	for _, w := range Workloads {
		if slices.Contains(skip, w.Name) {
			continue
		}
		r, err := Record(w, max(8, w.Writes/scale), seed)
		if err != nil {
			p.t.Fatal(err)
		}
		for _, s := range r.Sites {
			times := []int{1, s.Times}
			if p.full() {
				times = nil
				for n := range s.Times {
					times = append(times, n+1)
				}
			} else if covered[s.ID] {
				continue
			}
			covered[s.ID] = true
			for _, x := range troubles {
				for _, n := range slices.Compact(times) {
					if x.strikes(s.Op) {
						list = append(list, trial{r, x, s, n})
					}
				}
			}
		}
	}
	return list
}

// try makes the runs of a list, for one seed after another.
func (p *plan) try(what string, list func(seed uint64) []trial, run func(trial) (failures int, err error)) {
	var mu sync.Mutex
	runs, failed, failures, whole, longest := 0, 0, 0, 0, 0
	sites := map[uint64]bool{}
	p.rounds(func(seed uint64) {
		trials := list(seed)
		longest = max(longest, len(trials))
		done := p.each(len(trials), func(i int) error {
			n, err := run(trials[i])
			mu.Lock()
			defer mu.Unlock()
			failures += n
			if n > 0 {
				failed++
			}
			sites[trials[i].site.ID] = true
			if err != nil {
				return fmt.Errorf("seed %d: %w", seed, err)
			}
			return nil
		})
		runs += done
		if done == len(trials) {
			whole++
		}
	})
	p.t.Logf("%d runs with %s, at %d places in the store; in %d of these runs, %d calls failed; the longest list had %d runs, and %d lists were completed",
		runs, what, len(sites), failed, failures, longest, whole)
	if runs > 0 && failures == 0 {
		p.t.Error("no call failed: the faults strike nothing")
	}
}

// TestErrors makes each operation fail in turn, in several ways. All guarantees must hold.
func TestErrors(t *testing.T) { runErrors(short(t)) }

func runErrors(p *plan) {
	p.try("a failing disk", func(seed uint64) []trial { return p.trials(seed, choose(p, 3, 1), []string{"group"}, Troubles) },
		func(t trial) (int, error) { return t.r.Try(t.trouble, t.site, t.nth) })
}

// TestFailedSync makes each Sync fail and lose the data. All guarantees must hold.
func TestFailedSync(t *testing.T) { runFailedSync(short(t)) }

func runFailedSync(p *plan) {
	p.try("a Sync that drops the pages", func(seed uint64) []trial { return p.trials(seed, 1, []string{"group"}, []Trouble{FailedSync}) },
		func(t trial) (int, error) { return t.r.Try(t.trouble, t.site, t.nth) })
}

// TestClosing closes the database during each operation. All guarantees must hold.
func TestClosing(t *testing.T) { runClosing(short(t)) }

func runClosing(p *plan) {
	p.try("a Close from another goroutine", func(seed uint64) []trial {
		return p.trials(seed, choose(p, 3, 1), []string{"group", "repair"}, []Trouble{{Name: "close"}})
	}, func(t trial) (int, error) { return t.r.TryClose(t.site, t.nth) })
}

// TestSpace runs on disks with space for many different numbers of bytes, fewer in the short form.
// Reads must continue to work, and everything must work once there is space again.
func TestSpace(t *testing.T) { runSpace(short(t)) }

func runSpace(p *plan) {
	runs, failures := 0, 0
	var after [Refuses + 1]int
	var mu sync.Mutex
	p.rounds(func(seed uint64) {
		const bytes = 12 << 10
		step := choose(p, 397, 13)
		p.each(bytes/step, func(i int) error {
			x, err := FillUp(seed, 80, int64(i*step)+int64(seed)%int64(step), i%2 == 0)
			mu.Lock()
			defer mu.Unlock()
			after[x]++
			return err
		})
		for _, w := range Workloads {
			if w.Name == "group" {
				continue
			}
			r, err := Record(w, w.Writes/2, seed)
			if err != nil {
				p.t.Fatal(err)
			}
			step := max(1, r.Bytes/choose[int64](p, 8, 400))
			runs += p.each(int(r.Bytes/step), func(i int) error {
				n, err := r.TrySpace(int64(i)*step + int64(seed)%step)
				mu.Lock()
				defer mu.Unlock()
				failures += n
				return err
			})
		}
	})
	p.t.Logf("%d runs on a disk that fills up, %d calls failed; with space again, of %d databases %d accepted writes, %d refused until they were reopened, %d had noticed nothing",
		runs, failures, after[0]+after[1]+after[2], after[Resumes], after[Refuses], after[Unharmed])
	// A short budget need not reach every outcome.
	if enough := !p.full() || after[0]+after[1]+after[2] > 200; enough && (after[Resumes] == 0 || after[Refuses] == 0) {
		p.t.Errorf("not every outcome of a full disk occurred: %v", after)
	}
}
