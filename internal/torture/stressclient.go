package torture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"

	"github.com/siftdb/sift"
)

// client writes its own keys and compares everything that it reads with what it wrote.
type client struct {
	s     *stress
	id    int
	rng   *rand.Rand
	seq   int
	model view
	kept  []keptView
}

// view is the expected state of a client's keys. unsure holds those of writes that failed
// with ErrReopen: the next open shows whether these writes are there.
type view struct {
	values map[string]string
	unsure map[string][]string // the other values that a key may have, "" for absent
}

// keptView is a view that stays open.
type keptView struct {
	view
	snapshot *sift.Snapshot
	it       *sift.Iter
}

const stressKeys = 300

func stressKey(client, i int) []byte { return fmt.Appendf(nil, "c%d/%05d", client, i) }

func newClient(s *stress, id int, rng *rand.Rand) *client {
	return &client{s: s, id: id, rng: rng, model: view{map[string]string{}, map[string][]string{}}}
}

func (c *client) key() []byte    { return stressKey(c.id, c.rng.IntN(stressKeys)) }
func (c *client) prefix() []byte { return fmt.Appendf(nil, "c%d/", c.id) }

// compare checks a result. found reports whether there is a value.
func (c *client) compare(what string, v *view, key, value []byte, found bool) {
	if _, unsure := v.unsure[string(key)]; unsure {
		return
	}
	if want, ok := v.values[string(key)]; ok != found || want != string(value) {
		c.s.fail("%s of %q: %.40q (present: %v), but %.40q (present: %v) was written", what, key, value, found, want, ok)
	}
}

// adopt compares the contents after an open with the view, and adopts them.
func (c *client) adopt() {
	got := map[string]string{}
	err := c.s.call("Scan", nil, func() error {
		for e, err := range c.s.db.Scan(&sift.IterOptions{Prefix: c.prefix()}) {
			if err != nil {
				return err
			}
			got[string(e.Key)] = string(e.Value)
		}
		return nil
	})
	if err != nil {
		return
	}
	for key, others := range c.model.unsure {
		for _, value := range others {
			if got[key] == value {
				c.model.values[key] = value
				if value == "" {
					delete(c.model.values, key)
				}
			}
		}
	}
	clear(c.model.unsure)
	if !maps.Equal(got, c.model.values) {
		c.s.fail("client %d finds %d keys after Open that are not the %d that it wrote", c.id, len(got), len(c.model.values))
	}
}

func (c *client) run(ctx context.Context) {
	for ctx.Err() == nil && c.s.broken() == nil {
		if errors.Is(c.step(), sift.ErrClosed) {
			return
		}
		c.s.rest(c.rng)
	}
}

func (c *client) step() error {
	db := c.s.db
	switch n := c.rng.IntN(20); {
	case n < 9:
		return c.write()
	case n < 12:
		return c.get("Get", &c.model, db.Get)
	case n < 14:
		return c.getMany("GetMany", &c.model, db.GetMany)
	case n == 14:
		return c.transact()
	case n < 17:
		return c.scan()
	case n == 17 && c.rng.IntN(6) == 0:
		return c.deleteRange()
	case n == 17 && len(c.kept) < 4:
		return c.keep()
	case len(c.kept) > 0:
		return c.look()
	}
	return nil
}

// write writes a batch, from a single entry to many times the size of a memtable.
func (c *client) write() error {
	n := 1
	switch c.rng.IntN(40) {
	case 0:
		n = stressKeys
	case 1, 2, 3:
		n = 1 + c.rng.IntN(30)
	}
	var b sift.Batch
	edits := map[string]string{}
	for range n {
		key := c.key()
		if c.rng.IntN(5) == 0 {
			b.Delete(key)
			edits[string(key)] = ""
		} else {
			value := c.value()
			b.Put(key, value)
			edits[string(key)] = string(value)
		}
	}
	o := &sift.WriteOptions{NoSync: c.rng.IntN(4) > 0}
	return c.written(c.s.call("Write", nil, func() error { return c.s.db.Write(&b, o) }), edits)
}

func (c *client) value() []byte {
	c.seq++
	v := fmt.Appendf(nil, "v%d.%d.", c.id, c.seq)
	return append(v, make([]byte, c.rng.IntN(200))...)
}

// written records the outcome of a write.
func (c *client) written(err error, edits map[string]string) error {
	for key, value := range edits {
		switch {
		case err == nil && value == "":
			delete(c.model.values, key)
		case err == nil:
			c.model.values[key] = value
		case errors.Is(err, sift.ErrReopen):
			c.model.unsure[key] = append(c.model.unsure[key], c.model.values[key], value)
		}
	}
	return err
}

// deleteRange deletes some of its keys, or all. If it fails, any of them may be deleted.
func (c *client) deleteRange() error {
	from, to := c.rng.IntN(stressKeys), c.rng.IntN(stressKeys+1)
	lower, upper := stressKey(c.id, min(from, to)), stressKey(c.id, max(from, to))
	err := c.s.call("DeleteRange", nil, func() error { return c.s.db.DeleteRange(context.Background(), lower, upper) })
	for i := min(from, to); i < max(from, to); i++ {
		key := string(stressKey(c.id, i))
		if _, unsure := c.model.unsure[key]; err != nil || unsure {
			c.model.unsure[key] = append(c.model.unsure[key], c.model.values[key], "")
		}
		if err == nil {
			delete(c.model.values, key)
		}
	}
	return err
}

// transact reads a key, and writes it and another one.
func (c *client) transact() error {
	a, b, value := c.key(), c.key(), c.value()
	return c.written(c.s.call("Transact", nil, func() error {
		return c.s.db.Transact(context.Background(), func(tx *sift.Tx) error {
			if err := c.compareGet("a transaction's Get", &c.model, a, tx.Get); err != nil {
				return err
			}
			return errors.Join(tx.Put(a, value), tx.Put(b, value))
		})
	}), map[string]string{string(a): string(value), string(b): string(value)})
}

func (c *client) get(what string, v *view, get func([]byte) ([]byte, error)) error {
	key := c.key()
	return c.s.call(what, nil, func() error { return c.compareGet(what, v, key, get) })
}

func (c *client) compareGet(what string, v *view, key []byte, get func([]byte) ([]byte, error)) error {
	value, err := get(key)
	if err == nil || errors.Is(err, sift.ErrNotFound) {
		c.compare(what, v, key, value, err == nil)
		return nil
	}
	return err
}

func (c *client) getMany(what string, v *view, getMany func([][]byte) ([][]byte, error)) error {
	keys := make([][]byte, c.rng.IntN(100))
	for i := range keys {
		keys[i] = c.key()
	}
	return c.s.call(what, nil, func() error {
		values, err := getMany(keys)
		for i := range values {
			c.compare(what, v, keys[i], values[i], values[i] != nil)
		}
		return err
	})
}

func (c *client) scan() error {
	var it *sift.Iter
	err := c.s.call("NewIter", nil, func() (err error) {
		it, err = c.s.db.NewIter(&sift.IterOptions{Prefix: c.prefix()})
		return err
	})
	if err != nil {
		return err
	}
	return errors.Join(c.walk("an iterator", &c.model, it), c.s.call("Iter.Close", nil, it.Close))
}

// walk compares all entries of an iterator, in either direction.
func (c *client) walk(what string, v *view, it *sift.Iter) error {
	first, next := it.First, it.Next
	if c.rng.IntN(2) == 0 {
		first, next = it.Last, it.Prev
	}
	return c.s.call(what, nil, func() error {
		seen := 0
		for ok := first(); ok; ok = next() {
			c.compare(what, v, it.Key(), it.Value(), true)
			if _, unsure := v.unsure[string(it.Key())]; !unsure {
				seen++
			}
		}
		if err := it.Err(); err != nil {
			return err
		}
		want := 0
		for key := range v.values {
			if _, unsure := v.unsure[key]; !unsure {
				want++
			}
		}
		if seen != want {
			c.s.fail("%s returns %d of %d keys", what, seen, want)
		}
		return nil
	})
}

// keep opens a snapshot and an iterator.
func (c *client) keep() error {
	k := keptView{view: view{maps.Clone(c.model.values), maps.Clone(c.model.unsure)}, snapshot: c.s.db.Snapshot()}
	err := c.s.call("Snapshot.NewIter", nil, func() (err error) {
		k.it, err = k.snapshot.NewIter(&sift.IterOptions{Prefix: c.prefix()})
		return err
	})
	c.kept = append(c.kept, k)
	return err
}

// look checks an open snapshot or iterator, and sometimes closes it.
func (c *client) look() (err error) {
	i := c.rng.IntN(len(c.kept))
	k := &c.kept[i]
	switch c.rng.IntN(4) {
	case 0:
		err = c.get("a snapshot's Get", &k.view, k.snapshot.Get)
	case 1:
		err = c.getMany("a snapshot's GetMany", &k.view, k.snapshot.GetMany)
	case 2:
		if k.it != nil {
			err = c.walk("an open iterator", &k.view, k.it)
		}
	case 3:
		err = c.drop(k)
		c.kept = append(c.kept[:i], c.kept[i+1:]...)
	}
	return err
}

func (c *client) drop(k *keptView) error {
	var err error
	if k.it != nil {
		err = c.s.call("Iter.Close", nil, k.it.Close)
	}
	return errors.Join(err, c.s.call("Snapshot.Close", nil, k.snapshot.Close))
}

// letGo closes what is still open after the database has been closed.
func (c *client) letGo() {
	for i := range c.kept {
		c.drop(&c.kept[i])
	}
	c.kept = nil
}
