// Package serial decides whether a history of transactions is strictly serializable,
// in the manner of Elle (Kingsbury and Alvaro, Elle: Inferring Isolation Anomalies
// from Experimental Observations, VLDB 2020): from what transactions have read it infers
// the order in which they must have run, and looks for a cycle.
//
// Values are unique for each key, so a read shows which transaction it saw. There are
// two kinds of objects:
//   - lists, to which values are appended: a read shows the order of all appends before
//     it, so nothing remains unknown,
//   - registers, which are overwritten: the order of two values is known if a
//     transaction has read the one and written the other, or if the one was written
//     before the other in time.
//
// Transaction a comes before b (a -> b) if
//   - ww: b's write to a key follows a's,
//   - wr: b has read what a wrote,
//   - rw: b's write follows the one that a has read, so a did not see it,
//   - rt: a ended before b began.
//
// A read of a range is a read of every key in it, including absent ones.
package serial

import (
	"fmt"
	"slices"
	"strings"
)

// Outcome is what is known of a transaction.
type Outcome uint8

// The outcomes.
const (
	Committed Outcome = iota
	Aborted           // none of it may be seen
	Unknown           // it is committed if some of it is seen
)

// OpKind says what an operation does.
type OpKind uint8

// The kinds of operations.
const (
	Read   OpKind = iota
	Append        // of Value to the list
	Write         // of Value to the register
)

// Op is an operation on one key.
type Op struct {
	Kind  OpKind
	Key   string
	Value int   // what is appended or written; what was read from a register, 0: nothing
	List  []int // what was read from a list
}

func (o Op) String() string {
	switch o.Kind {
	case Append:
		return fmt.Sprintf("append(%s, %d)", o.Key, o.Value)
	case Write:
		return fmt.Sprintf("write(%s, %d)", o.Key, o.Value)
	}
	if o.List != nil || o.Value == 0 {
		return fmt.Sprintf("read(%s) = %v", o.Key, o.List)
	}
	return fmt.Sprintf("read(%s) = %d", o.Key, o.Value)
}

// Txn is a transaction: what it did, in order, and when. It began after Start and
// ended before End, on a clock that all transactions share.
type Txn struct {
	Name       string
	Ops        []Op
	Start, End int64
	Outcome    Outcome
	// NoStart and NoEnd say that the transaction is not ordered in time by its start
	// or its end.
	NoStart, NoEnd bool
}

func (t *Txn) String() string {
	var ops []string
	for _, o := range t.Ops {
		ops = append(ops, o.String())
	}
	return fmt.Sprintf("%s [%d, %d] %s", t.Name, t.Start, t.End, strings.Join(ops, " "))
}

// dependency is the reason why one transaction comes before another.
type dependency uint8

const (
	ww dependency = iota
	wr
	rw
	rt
)

func (d dependency) String() string { return [...]string{"ww", "wr", "rw", "rt"}[d] }

// version is a value of a key.
type version struct {
	key   string
	value int
}

// checker collects the dependencies that order the transactions.
type checker struct {
	txns    []Txn
	writers map[version]int // which transaction has written it
	seen    map[version]bool
	g       graph
}

// Lists returns nil if a history of reads and appends is strictly serializable, and
// otherwise an error that describes the anomaly.
func Lists(txns []Txn) error {
	c, err := newChecker(txns)
	if err != nil {
		return err
	}
	if err := c.lists(); err != nil {
		return err
	}
	return c.cycle()
}

// Registers is Lists for a history of reads and writes.
func Registers(txns []Txn) error {
	c, err := newChecker(txns)
	if err != nil {
		return err
	}
	if err := c.registers(); err != nil {
		return err
	}
	return c.cycle()
}

// newChecker finds the writers, and drops transactions without effect: those that were
// aborted, and those of unknown outcome that nobody has seen.
func newChecker(txns []Txn) (*checker, error) {
	c := &checker{writers: map[version]int{}, seen: map[version]bool{}}
	txns = slices.Clone(txns)
	for i := range txns {
		if txns[i].Outcome == Committed {
			c.see(&txns[i])
		}
	}
	// Those of unknown outcome that are seen have committed, and what they have read
	// was seen, too.
	for again := true; again; {
		again = false
		for i := range txns {
			t := &txns[i]
			if t.Outcome == Unknown && slices.ContainsFunc(t.Ops, func(o Op) bool { return o.Kind != Read && c.seen[version{o.Key, o.Value}] }) {
				t.Outcome = Committed
				c.see(t)
				again = true
			}
		}
	}
	for _, t := range txns {
		for _, o := range t.Ops {
			if o.Kind == Read {
				continue
			}
			v := version{o.Key, o.Value}
			if _, ok := c.writers[v]; ok || o.Value == 0 {
				return nil, fmt.Errorf("bad history: %v is written twice, or is 0", v)
			}
			if t.Outcome == Aborted && c.seen[v] {
				return nil, fmt.Errorf("aborted read (G1a): %d of %s was seen, of %s", v.value, v.key, t.String())
			}
			if t.Outcome == Committed {
				c.writers[v] = len(c.txns)
			}
		}
		if t.Outcome == Committed {
			c.txns = append(c.txns, t)
		}
	}
	c.g.init(len(c.txns))
	c.time()
	return c, nil
}

// see records what a transaction has read.
func (c *checker) see(t *Txn) {
	for _, o := range t.Ops {
		if o.Kind != Read {
			continue
		}
		for _, v := range o.List {
			c.seen[version{o.Key, v}] = true
		}
		c.seen[version{o.Key, o.Value}] = true
	}
}

// time adds the order in time. A chain of moments, one for each end of a transaction,
// avoids an edge for each pair of transactions.
func (c *checker) time() {
	var ends []int
	for i := range c.txns {
		if !c.txns[i].NoEnd {
			ends = append(ends, i)
		}
	}
	slices.SortFunc(ends, func(a, b int) int { return int(c.txns[a].End - c.txns[b].End) })
	first := c.g.add(len(ends))
	for n, i := range ends {
		c.g.edge(i, first+n, rt)
		if n > 0 {
			c.g.edge(first+n-1, first+n, rt)
		}
	}
	for i := range c.txns {
		// The last moment before the start.
		n, _ := slices.BinarySearchFunc(ends, c.txns[i].Start, func(e int, start int64) int {
			if c.txns[e].End < start {
				return -1
			}
			return 1
		})
		if n > 0 && !c.txns[i].NoStart {
			c.g.edge(first+n-1, i, rt)
		}
	}
}

// edge adds a dependency.
func (c *checker) edge(a, b int, why dependency) {
	if a != b {
		c.g.edge(a, b, why)
	}
}

// cycle returns an error if there is a cycle.
func (c *checker) cycle() error {
	at, why := c.g.cycle()
	if at == nil {
		return nil
	}
	var text []string
	count := map[dependency]int{}
	for i, n := range at {
		count[why[i]]++
		if n < len(c.txns) {
			text = append(text, c.txns[n].String())
		}
		text = append(text, "  "+why[i].String())
	}
	name := "G2"
	switch {
	case count[rw] == 1:
		name = "G-single"
	case count[rw] == 0 && count[wr] > 0:
		name = "G1c"
	case count[rw] == 0:
		name = "G0"
	}
	if count[rt] > 0 {
		name += ", with the order in time"
	}
	return fmt.Errorf("cycle (%s):\n%s", name, strings.Join(text, "\n"))
}
