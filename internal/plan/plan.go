// Package plan decides how much of each table's filter to keep in memory within a budget.
//
// A filter is loaded and dropped in steps. A table that receives q lookups of absent keys
// per second wastes q * p reads with a filter of false positive rate p. One more step that
// lowers the rate from p to p' saves q * (p - p') reads, and costs its bytes. Each further
// step of a table saves less per byte than the previous one, so choosing steps in order of
// savings per byte is optimal, except for bytes at the end of the budget in which no step fits.
//
// Under uniform traffic, where each lookup probes every level once, this is the allocation
// of Monkey (Dayan, Athanassoulis, Idreos, "Monkey: Optimal Navigable Key-Value Store",
// SIGMOD 2017): rates in proportion to the number of keys. Under skewed traffic it follows
// the access rates.
package plan

import (
	"container/heap"
	"math"
)

// Table describes a table with a filter for a plan.
type Table struct {
	AccessRate float64   // lookups per second of absent keys that reach the table, or any multiple
	Steps      []int64   // bytes of each step of the filter, in order
	FPR        float64   // the filter's false positive rate with all steps
	Held       int       // number of steps in memory now
	Rates      []float64 // Rates[i] is the false positive rate with i+1 steps; nil: derived from FPR
}

// rateWith returns the false positive rate with the first n steps. Without Rates it assumes that
// each byte lowers the rate by the same factor.
func (t *Table) rateWith(n int) float64 {
	if n == 0 {
		return 1
	}
	if t.Rates != nil {
		return t.Rates[n-1]
	}
	var held, all int64
	for i, b := range t.Steps {
		all += b
		if i < n {
			held += b
		}
	}
	if all == 0 {
		return 1
	}
	return math.Pow(t.FPR, float64(held)/float64(all))
}

// Stickiness is the factor by which the savings per byte of a step must exceed those of a loaded
// step to replace it. It prevents thrashing on bursts, and between tables with similar access
// rates.
const Stickiness = 1.5

// Choose returns the number of steps of each table to keep in memory within budget bytes.
func Choose(tables []Table, budget int64) []int {
	return choose(tables, budget, Stickiness)
}

func choose(tables []Table, budget int64, stickiness float64) []int {
	held := make([]int, len(tables))
	q := make(queue, 0, len(tables))
	for i := range tables {
		if c, ok := candidate(tables, i, 0, stickiness); ok {
			q = append(q, c)
		}
	}
	heap.Init(&q)
	for len(q) > 0 {
		c := q[0]
		if c.bytes > budget {
			heap.Pop(&q) // no more for this table, but a smaller step of another may fit
			continue
		}
		budget -= c.bytes
		held[c.table]++
		if next, ok := candidate(tables, c.table, held[c.table], stickiness); ok {
			q[0] = next
			heap.Fix(&q, 0)
		} else {
			heap.Pop(&q)
		}
	}
	return held
}

// step is the next step of a table that could be loaded.
type step struct {
	table int
	bytes int64
	worth float64 // reads saved per second per byte
}

// candidate returns the step after the first n of table i, if there is one.
func candidate(tables []Table, i, n int, stickiness float64) (step, bool) {
	t := &tables[i]
	if n >= len(t.Steps) {
		return step{}, false
	}
	saving := t.AccessRate * (t.rateWith(n) - t.rateWith(n+1))
	if n < t.Held {
		saving *= stickiness
	}
	return step{table: i, bytes: t.Steps[n], worth: saving / float64(max(t.Steps[n], 1))}, true
}

// queue is a heap with the most valuable step on top.
type queue []step

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	if q[i].worth != q[j].worth {
		return q[i].worth > q[j].worth
	}
	return q[i].table < q[j].table
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(step)) }
func (q *queue) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

// Wasted returns the block reads per second that lookups of absent keys waste with the given
// number of steps of each table in memory.
func Wasted(tables []Table, held []int) float64 {
	var reads float64
	for i := range tables {
		reads += tables[i].AccessRate * tables[i].rateWith(held[i])
	}
	return reads
}

// Bytes returns the memory that the given number of steps of each table take.
func Bytes(tables []Table, held []int) int64 {
	var n int64
	for i := range tables {
		for _, b := range tables[i].Steps[:held[i]] {
			n += b
		}
	}
	return n
}

// NextSaves returns the block reads per second that a budget of budget+more bytes would save.
func NextSaves(tables []Table, budget, more int64) float64 {
	with, without := choose(tables, budget+more, 1), choose(tables, budget, 1)
	return max(0, Wasted(tables, without)-Wasted(tables, with))
}

// Change loads or drops steps of a table.
type Change struct {
	Table int // index of the table
	Steps int // number of steps to keep
}

// Changes returns the changes from the tables' Held toward want. Drops come first, so that memory
// stays within the budget throughout. The changes read at most limit bytes, so they may not reach
// want. A single step may be larger: a filter that is one large step could otherwise never be
// loaded, although others were dropped for it.
func Changes(tables []Table, want []int, limit int64) []Change {
	var changes []Change
	for i, n := range want {
		if n < tables[i].Held {
			changes = append(changes, Change{i, n})
		}
	}
	reads := false
	for i, n := range want {
		steps := tables[i].Held
		for steps < n && (!reads || limit >= tables[i].Steps[steps]) {
			limit -= tables[i].Steps[steps]
			reads = true
			steps++
		}
		if steps > tables[i].Held {
			changes = append(changes, Change{i, steps})
		}
	}
	return changes
}
