package filtermem

import "github.com/siftdb/sift/internal/plan"

// Plan describes how a budget would be spent.
type Plan struct {
	Bytes        int64   // how much of the budget is used
	NextMiBSaves float64 // block reads that another MiB would save, per lookup of an absent key and scan of an empty range
	Tables       []PlannedTable
}

// PlannedTable describes how much of a table's filters a plan keeps in memory.
type PlannedTable struct {
	Steps             int     // number of steps of the key filter
	Bytes, RangeBytes int64   // memory of the filter and of the range filter
	WastedReads       float64 // expected block reads per lookup of an absent key
}

// NewPlan returns how a manager would spend a budget, in bytes, on the filters of tables, with or
// without range filters, if all keys were looked up equally often. It loads and drops nothing.
func NewPlan(tables []Table, ranges bool, budget int64) Plan {
	filters, inputs := planInputs(tables, ranges)
	for i := range inputs {
		inputs[i].Held = 0
	}
	held := plan.Choose(inputs, budget)
	p := Plan{Bytes: plan.Bytes(inputs, held), NextMiBSaves: plan.NextSaves(inputs, budget, 1<<20)}
	at := map[managedKey]int{}
	for i, f := range filters {
		at[f.key()] = i
	}
	for _, t := range tables {
		pt := PlannedTable{WastedReads: t.Share}
		if i, ok := at[managedKey{t.Traffic, true}]; ok {
			pt.RangeBytes = plan.Bytes(inputs[i:i+1], held[i:i+1])
		}
		if i, ok := at[managedKey{t.Traffic, false}]; ok {
			pt.Steps, pt.Bytes = held[i], plan.Bytes(inputs[i:i+1], held[i:i+1])
			pt.WastedReads = plan.Wasted(inputs[i:i+1], held[i:i+1])
		}
		p.Tables = append(p.Tables, pt)
	}
	return p
}
