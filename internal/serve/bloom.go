package serve

import (
	"errors"
	"strconv"
	"strings"

	"github.com/siftdb/sift/internal/redisbloom"
	"github.com/siftdb/sift/internal/serve/resp"
)

// Bounds of the BF commands.
const (
	maxCapacity  = 1 << 30
	maxExpansion = 32768
	maxErrorRate = 0.25 // higher rates are lowered to this
)

var errNonScalingFull = errors.New("ERR non scaling filter is full")

// makeBloom returns a make function for Server.write and Server.create.
func (s *Server) makeBloom(o redisbloom.BloomOptions) func(*filter, uint64) error {
	return func(f *filter, room uint64) (err error) {
		o.Layout, o.MaxBytes = s.cfg.Layout, room
		f.bloom, err = redisbloom.NewBloom(o)
		return err
	}
}

// parseRate parses a number like strtod, except that nothing may follow the number.
func parseRate(b []byte) (float64, bool) {
	s := string(b)
	if len(s) == 0 || len(s) > 64 || strings.ContainsAny(s, "_ ") {
		return 0, false
	}
	v, err := strconv.ParseFloat(s, 64)
	// Out of range, v is 0 or infinite, which are not valid rates.
	return v, (err == nil || errors.Is(err, strconv.ErrRange)) && v == v
}

func is(arg []byte, word string) bool { return strings.EqualFold(string(arg), word) }

func bfReserve(c *client, args [][]byte) {
	o := redisbloom.BloomOptions{Expansion: uint32(c.srv.defaults.bloomExpansion.Load())}
	var ok bool
	if o.Error, ok = parseRate(args[2]); !ok {
		c.w.Error("ERR bad error rate")
		return
	}
	if !(o.Error > 0 && o.Error < 1) {
		c.w.Error("ERR error rate must be in the range (0.000000, 1.000000)")
		return
	}
	capacity, ok := resp.ParseInt(args[3])
	if !ok {
		c.w.Error("ERR bad capacity")
		return
	}
	if capacity < 1 || capacity > maxCapacity {
		c.w.Error("ERR capacity must be in the range [1, 1073741824]")
		return
	}
	o.Capacity = uint64(capacity)
	fixed, given := false, false
	for i := 4; i < len(args); i++ {
		switch {
		case is(args[i], "NONSCALING"):
			fixed = true
		case is(args[i], "EXPANSION"):
			if i++; i == len(args) {
				c.w.Error("ERR no expansion")
				return
			}
			n, ok := resp.ParseInt(args[i])
			if !ok {
				c.w.Error("ERR bad expansion")
				return
			}
			if n < 0 || n > maxExpansion {
				c.w.Error("ERR expansion must be in the range [0, 32768]")
				return
			}
			o.Expansion, given = uint32(n), n > 0
		}
	}
	if fixed && given {
		c.w.Error("Nonscaling filters cannot expand")
		return
	}
	if fixed {
		o.Expansion = 0
	}
	if !c.reply(c.srv.create(c, args[1], kindBloom, c.srv.makeBloom(o))) {
		c.w.OK()
	}
}

// bloomAdd adds an item to a locked filter.
func (c *client) bloomAdd(f *filter, item []byte) (added bool, err error) {
	err = c.grow(f, func(room uint64) (err error) {
		added, err = f.bloom.Add(item, room)
		return err
	})
	if errors.Is(err, redisbloom.ErrFull) {
		err = errNonScalingFull
	}
	return added, err
}

func bfAdd(c *client, args [][]byte) {
	f, err := c.srv.write(c, args[1], kindBloom, c.srv.makeBloom(c.srv.defaults.bloom()))
	if c.reply(err) {
		return
	}
	added, err := c.bloomAdd(f, args[2])
	c.endWrite(f)
	if !c.reply(err) {
		c.w.Bool(added)
	}
}

func bfMAdd(c *client, args [][]byte) { c.bloomInsert(args[1], c.srv.defaults.bloom(), true, args[2:]) }

// bloomInsert adds items. If an item does not fit, the array of replies ends with the error.
func (c *client) bloomInsert(key []byte, o redisbloom.BloomOptions, create bool, items [][]byte) {
	maker := c.srv.makeBloom(o)
	if !create {
		maker = nil
	}
	added, found := make([]bool, 0, len(items)), false
	err := c.parts(items, func(items [][]byte) error {
		f, err := c.srv.write(c, key, kindBloom, maker)
		if err != nil {
			return err
		}
		defer c.endWrite(f)
		found = true
		for {
			n := len(added)
			if added, err = f.bloom.AddMany(items, 0, added); err == nil {
				return nil
			}
			// The next item does not fit, unless the filter grows.
			items = items[len(added)-n:]
			ok, err := c.bloomAdd(f, items[0])
			if err != nil {
				return err
			}
			added, items = append(added, ok), items[1:]
		}
	})
	n := len(added)
	if !found {
		c.reply(err)
		return
	}
	if err != nil {
		n++
	}
	c.w.Array(n)
	for _, ok := range added {
		c.w.Bool(ok)
	}
	c.reply(err)
}

func bfInsert(c *client, args [][]byte) {
	o := c.srv.defaults.bloom()
	create, fixed := true, false
	i := 2
	for ; i < len(args) && !is(args[i], "ITEMS"); i++ {
		switch {
		case is(args[i], "NOCREATE"):
			create = false
			continue
		case is(args[i], "NONSCALING"):
			fixed = true
			continue
		case !is(args[i], "CAPACITY") && !is(args[i], "ERROR") && !is(args[i], "EXPANSION"):
			c.w.Error("Unknown argument received")
			return
		case i+1 == len(args):
			c.arity("bf.insert")
			return
		}
		value := args[i+1]
		n, ok := resp.ParseInt(value)
		switch {
		case is(args[i], "CAPACITY"):
			if !ok || n < 1 || n > maxCapacity {
				c.w.Error("Bad capacity")
				return
			}
			o.Capacity = uint64(n)
		case is(args[i], "EXPANSION"):
			if !ok || n < 0 || n > maxExpansion {
				c.w.Error("Bad expansion")
				return
			}
			o.Expansion = uint32(n)
		default:
			rate, ok := parseRate(value)
			if !ok || !(rate > 0 && rate < 1) {
				c.w.Error("Bad error rate")
				return
			}
			o.Error = rate
		}
		i++
	}
	if i+1 >= len(args) {
		c.arity("bf.insert")
		return
	}
	if fixed {
		o.Expansion = 0
	}
	c.bloomInsert(args[1], o, create, args[i+1:])
}

func (c *client) arity(name string) {
	c.w.Error(wrongArgs(name))
}

// bloomExists replies whether a filter may contain items. If the key holds no Bloom filter, it
// replies that none of them exists.
func (c *client) bloomExists(key []byte, items [][]byte, array bool) {
	f := c.find(key)
	if f != nil && f.damage != nil {
		c.reply(f.damage)
		return
	}
	if f != nil && c.mustHandOver(f) {
		return
	}
	if array {
		c.w.Array(len(items))
	}
	if f == nil || f.kind != kindBloom {
		for range items {
			c.w.Bool(false)
		}
		return
	}
	hits := uint64(0)
	c.parts(items, func(items [][]byte) error {
		f.mu.RLock()
		defer f.mu.RUnlock()
		c.sees(f)
		for _, item := range items {
			has := f.bloom.Contains(item)
			hits += uint64(count(has))
			c.w.Bool(has)
		}
		return nil
	})
	f.probes.Add(uint64(len(items)))
	f.positives.Add(hits)
}

func bfExists(c *client, args [][]byte) { c.bloomExists(args[1], args[2:], false) }

func bfMExists(c *client, args [][]byte) { c.bloomExists(args[1], args[2:], true) }

func bfCard(c *client, args [][]byte) {
	f, err := c.srv.read(c, args[1], kindBloom)
	if err == errNotFound {
		c.w.Int(0)
		return
	}
	if c.reply(err) {
		return
	}
	c.w.Int(int64(f.bloom.Size()))
	f.mu.RUnlock()
}

// bloomSize is the size that BF.INFO reports: the memory that RedisBloom would take for the filter.
func bloomSize(b *redisbloom.Bloom) int64 { return int64(32 + 64*uint64(b.Links()) + b.Bytes()) }

func bfInfo(c *client, args [][]byte) {
	f, err := c.srv.read(c, args[1], kindBloom)
	if c.reply(err) {
		return
	}
	defer f.mu.RUnlock()
	b := f.bloom
	fields := []struct {
		arg, name string
		value     int64
	}{
		{"CAPACITY", "Capacity", int64(b.Capacity())},
		{"SIZE", "Size", bloomSize(b)},
		{"FILTERS", "Number of filters", int64(b.Links())},
		{"ITEMS", "Number of items inserted", int64(b.Size())},
		{"EXPANSION", "Expansion rate", 0},
	}
	write := func(i int) {
		if fields[i].arg != "EXPANSION" {
			c.w.Int(fields[i].value)
		} else if n, grows := b.Expansion(); grows {
			c.w.Int(int64(n))
		} else {
			c.w.Nil()
		}
	}
	if len(args) == 3 {
		for i, field := range fields {
			if !is(args[2], field.arg) {
				continue
			}
			if c.w.Proto == 2 {
				c.w.Array(1)
			} else {
				c.w.Map(1)
				c.w.Simple(field.name)
			}
			write(i)
			return
		}
		c.w.Error("Invalid information value")
		return
	}
	c.w.Map(len(fields))
	for i, field := range fields {
		c.w.Simple(field.name)
		write(i)
	}
}

func bfDebug(c *client, args [][]byte) {
	f, err := c.srv.read(c, args[1], kindBloom)
	if c.reply(err) {
		return
	}
	defer f.mu.RUnlock()
	c.w.Array(1 + f.bloom.Links())
	c.w.BulkString("size:" + strconv.FormatUint(f.bloom.Size(), 10))
	for i := range f.bloom.Links() {
		l := f.bloom.Link(i)
		n := func(v uint64) string { return strconv.FormatUint(v, 10) }
		c.w.BulkString("bytes:" + n(l.Bytes) + " bits:" + n(l.Bits) + " hashes:" + n(uint64(l.Hashes)) +
			" hashwidth:64 capacity:" + n(l.Capacity) + " size:" + n(l.Size) +
			" ratio:" + strconv.FormatFloat(l.Error, 'g', 6, 64))
	}
}

func bfScanDump(c *client, args [][]byte) {
	f, err := c.srv.read(c, args[1], kindBloom)
	if c.reply(err) {
		return
	}
	defer f.mu.RUnlock()
	iter, ok := resp.ParseInt(args[2])
	if !ok {
		c.w.Error("Second argument must be numeric")
		return
	}
	next, part := f.bloom.Dump(iter)
	c.w.Array(2)
	c.w.Int(next)
	c.w.Bulk(part)
}

func bfLoadChunk(c *client, args [][]byte) {
	iter, ok := resp.ParseInt(args[2])
	if !ok {
		c.w.Error("ERR Second argument must be numeric")
		return
	}
	if iter == 1 {
		err := c.srv.create(c, args[1], kindBloom, func(f *filter, room uint64) (err error) {
			f.bloom, err = redisbloom.ParseBloom(args[3], room)
			return err
		})
		if err != errExists {
			c.loaded(err)
			return
		}
	}
	f, err := c.srv.write(c, args[1], kindBloom, nil)
	if err == nil {
		err = f.bloom.Load(iter, args[3])
		c.endWrite(f)
	}
	c.loaded(err)
}

func (c *client) loaded(err error) {
	switch {
	case errors.Is(err, redisbloom.ErrFormat):
		c.w.Error("ERR received bad data")
	case errors.Is(err, redisbloom.ErrPart):
		c.w.Error("ERR invalid chunk - Too big for current filter")
	case errors.Is(err, redisbloom.ErrOffset):
		c.w.Error("ERR invalid offset - no link found")
	case !c.reply(err):
		c.w.OK()
	}
}
