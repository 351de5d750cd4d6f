// Package plan decides how much of each table's filter is held in memory, given
// a budget: the units whose bytes save the most reads.
//
// A table that is asked q times a second for keys that it does not hold wastes
// q * p reads with a filter of false positive rate p. A further unit that lowers
// the rate from p to p' saves q * (p - p'), and costs its bytes. Each next unit
// of a table saves less for its bytes than the one before, so taking units in
// order of saving per byte is the best there is, up to the last unit that fits.
//
// With even traffic, where a lookup asks every level once, this is the
// allocation of Monkey (Dayan, Athanassoulis, Idreos, "Monkey: Optimal Navigable
// Key-Value Store", SIGMOD 2017): rates in proportion to the number of keys.
// With skewed traffic it follows the heat.
package plan

import (
	"container/heap"
	"math"
)

// Table is what the plan needs to know of a table.
type Table struct {
	Asked float64 // lookups a second of keys that the table does not hold, in its range
	Units []int64 // bytes of each part of its filter that can be held or dropped, in order
	FPR   float64 // the filter's false positive rate with all units
	Held  int     // how many units are in memory now
}

// rateWith is the false positive rate with the first n units: units are taken
// to add bits of equal worth.
func (t *Table) rateWith(n int) float64 {
	if n == 0 {
		return 1
	}
	var held, all int64
	for i, b := range t.Units {
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

// Stickiness is how many times as much a unit that is not held must save as one
// that is, before it takes its place. It keeps a burst, or two tables of like
// heat, from moving units back and forth.
const Stickiness = 1.5

// Choose returns how many units of each table to hold within budget bytes.
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
			heap.Pop(&q) // this table gets no more; a smaller unit of another may fit
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

// unit is the next unit of a table that could be held.
type unit struct {
	table int
	bytes int64
	worth float64 // reads saved a second for each byte
}

func candidate(tables []Table, i, n int, stickiness float64) (unit, bool) {
	t := &tables[i]
	if n >= len(t.Units) {
		return unit{}, false
	}
	saving := t.Asked * (t.rateWith(n) - t.rateWith(n+1))
	if n < t.Held {
		saving *= stickiness
	}
	return unit{table: i, bytes: t.Units[n], worth: saving / float64(max(t.Units[n], 1))}, true
}

// queue is a heap with the worthiest unit on top.
type queue []unit

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	if q[i].worth != q[j].worth {
		return q[i].worth > q[j].worth
	}
	return q[i].table < q[j].table
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(unit)) }
func (q *queue) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

// Wasted returns the reads a second that lookups of absent keys cost with the
// given units held.
func Wasted(tables []Table, held []int) float64 {
	var reads float64
	for i := range tables {
		reads += tables[i].Asked * tables[i].rateWith(held[i])
	}
	return reads
}

// Bytes returns what the given units take.
func Bytes(tables []Table, held []int) int64 {
	var n int64
	for i := range tables {
		for _, b := range tables[i].Units[:held[i]] {
			n += b
		}
	}
	return n
}

// NextSaves returns the reads a second that the given number of further bytes
// would save.
func NextSaves(tables []Table, budget, more int64) float64 {
	with, without := choose(tables, budget+more, 1), choose(tables, budget, 1)
	return max(0, Wasted(tables, without)-Wasted(tables, with))
}

// Step is one change on the way from what is held to what is wanted.
type Step struct {
	Table int
	Units int // how many to hold
}

// Steps returns the changes that lead from the tables' Held to want, what is
// given up first, so that the bytes held stay within the budget on the way. It
// stops before more than limit bytes would be read.
func Steps(tables []Table, want []int, limit int64) []Step {
	var steps []Step
	for i, n := range want {
		if n < tables[i].Held {
			steps = append(steps, Step{i, n})
		}
	}
	for i, n := range want {
		units := tables[i].Held
		for units < n && limit >= tables[i].Units[units] {
			limit -= tables[i].Units[units]
			units++
		}
		if units > tables[i].Held {
			steps = append(steps, Step{i, units})
		}
	}
	return steps
}
