package serial

import (
	"fmt"
	"slices"
)

// lists adds the order that reads of lists show.
func (c *checker) lists() error {
	longest := map[string][]int{}
	for i := range c.txns {
		if err := ownAppends(&c.txns[i]); err != nil {
			return err
		}
		for _, o := range c.txns[i].Ops {
			if o.Kind != Read {
				continue
			}
			for j, v := range o.List {
				if _, ok := c.writers[version{o.Key, v}]; !ok {
					return fmt.Errorf("a value from nowhere: %d in %s", v, c.txns[i].String())
				}
				if slices.Contains(o.List[:j], v) {
					return fmt.Errorf("a value twice: %d in %s", v, c.txns[i].String())
				}
			}
			a, b := longest[o.Key], o.List
			if len(a) < len(b) {
				a, b = b, a
				longest[o.Key] = o.List
			}
			if !slices.Equal(a[:len(b)], b) {
				return fmt.Errorf("incompatible orders of %s: %v and %v", o.Key, a, b)
			}
		}
	}
	unseen := c.unseen(longest)
	for key, list := range longest {
		for n := 1; n < len(list); n++ {
			c.edge(c.writers[version{key, list[n-1]}], c.writers[version{key, list[n]}], ww)
		}
		for _, w := range unseen[key] {
			if len(list) > 0 {
				c.edge(c.writers[version{key, list[len(list)-1]}], w, ww)
			}
		}
	}
	for i := range c.txns {
		for _, o := range c.txns[i].Ops {
			if o.Kind != Read {
				continue
			}
			list := longest[o.Key]
			if n := len(o.List); n > 0 {
				last := version{o.Key, o.List[n-1]}
				if err := c.intermediate(i, last); err != nil {
					return err
				}
				c.edge(c.writers[last], i, wr)
			}
			// The next value was not seen. If the reader appended it itself, the one
			// after it was not seen, which the ww edges give.
			if n := len(o.List); n < len(list) {
				c.edge(i, c.writers[version{o.Key, list[n]}], rw)
			} else {
				for _, w := range unseen[o.Key] {
					c.edge(i, w, rw)
				}
			}
		}
	}
	return nil
}

// unseen returns, by key, the transactions that appended values that nobody has read:
// these come after all that were read.
func (c *checker) unseen(longest map[string][]int) map[string][]int {
	in := map[version]bool{}
	for key, list := range longest {
		for _, v := range list {
			in[version{key, v}] = true
		}
	}
	unseen := map[string][]int{}
	for v, w := range c.writers {
		if !in[v] {
			unseen[v.key] = append(unseen[v.key], w)
		}
	}
	return unseen
}

// ownAppends checks that a transaction sees what it has appended.
func ownAppends(t *Txn) error {
	now := map[string][]int{} // what it has read, and appended since
	known := map[string]bool{}
	for _, o := range t.Ops {
		switch {
		case o.Kind == Append:
			now[o.Key] = append(slices.Clone(now[o.Key]), o.Value)
		case known[o.Key] && !slices.Equal(o.List, now[o.Key]):
			return fmt.Errorf("internal: %s is not as the transaction left it, %v: %s", o.Key, now[o.Key], t.String())
		default:
			if n := len(now[o.Key]); n > len(o.List) || !slices.Equal(o.List[len(o.List)-n:], now[o.Key]) {
				return fmt.Errorf("internal: a transaction does not see its own append to %s: %s", o.Key, t.String())
			}
			known[o.Key], now[o.Key] = true, o.List
		}
	}
	return nil
}

// intermediate returns an error if a transaction has read a value that its writer, another
// transaction, has overwritten itself.
func (c *checker) intermediate(reader int, v version) error {
	w := c.writers[v]
	if w == reader {
		return nil
	}
	ops := c.txns[w].Ops
	for i := len(ops) - 1; i >= 0; i-- {
		if ops[i].Kind == Read || ops[i].Key != v.key {
			continue
		}
		if ops[i].Value != v.value {
			return fmt.Errorf("intermediate read (G1b): %d of %s, of\n%s\nby\n%s", v.value, v.key, c.txns[w].String(), c.txns[reader].String())
		}
		return nil
	}
	return nil
}

// registers adds the known order of values.
func (c *checker) registers() error {
	type pair struct{ before, after version }
	order := map[pair]bool{}
	byKey := map[string][]version{}
	for v := range c.writers {
		byKey[v.key] = append(byKey[v.key], v)
	}
	for i := range c.txns {
		now := map[string]int{} // what the transaction reads, once it is known
		wrote := map[string]bool{}
		for _, o := range c.txns[i].Ops {
			have, known := now[o.Key]
			switch {
			case o.Kind == Write:
				if known && !wrote[o.Key] {
					order[pair{version{o.Key, have}, version{o.Key, o.Value}}] = true
				}
				now[o.Key], wrote[o.Key] = o.Value, true
			case known && have != o.Value:
				return fmt.Errorf("internal: %s is not %d: %s", o.Key, have, c.txns[i].String())
			case !known:
				now[o.Key] = o.Value
				v := version{o.Key, o.Value}
				if o.Value == 0 {
					// The initial value comes before all that were written.
					for _, later := range byKey[o.Key] {
						order[pair{v, later}] = true
					}
					continue
				}
				w, ok := c.writers[v]
				if !ok {
					return fmt.Errorf("a value from nowhere: %d in %s", o.Value, c.txns[i].String())
				}
				if err := c.intermediate(i, v); err != nil {
					return err
				}
				c.edge(w, i, wr)
			}
		}
	}
	for _, versions := range byKey {
		for _, a := range versions {
			for _, b := range versions {
				if x, y := &c.txns[c.writers[a]], &c.txns[c.writers[b]]; x != y && !x.NoEnd && !y.NoStart && x.End < y.Start {
					order[pair{a, b}] = true
				}
			}
		}
	}
	readers := map[version][]int{}
	for i := range c.txns {
		wrote := map[string]bool{}
		for _, o := range c.txns[i].Ops {
			if o.Kind == Read && !wrote[o.Key] {
				readers[version{o.Key, o.Value}] = append(readers[version{o.Key, o.Value}], i)
			}
			wrote[o.Key] = wrote[o.Key] || o.Kind == Write
		}
	}
	for p := range order {
		after := c.writers[p.after]
		if before, ok := c.writers[p.before]; ok {
			c.edge(before, after, ww)
		}
		for _, r := range readers[p.before] {
			c.edge(r, after, rw)
		}
	}
	return nil
}
