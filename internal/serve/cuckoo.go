package serve

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/siftdb/sift/internal/redisbloom"
	"github.com/siftdb/sift/internal/serve/resp"
)

var (
	errCuckooFull = errors.New("Filter is full")
	errCuckooMax  = errors.New("Maximum expansions reached")
	errCuckooMem  = errors.New("ERR Insufficient memory")
)

func makeCuckoo(o redisbloom.CuckooOptions) func(*filter, uint64) error {
	return func(f *filter, room uint64) (err error) {
		o.MaxBytes = room
		f.cuckoo, err = redisbloom.NewCuckoo(o)
		return err
	}
}

func cfReserve(c *client, args [][]byte) {
	if len(args)%2 == 0 {
		c.arity("cf.reserve")
		return
	}
	o := c.srv.defaults.cuckoo()
	capacity, ok := resp.ParseInt(args[2])
	if !ok {
		c.w.Error("Bad capacity")
		return
	}
	for i := 3; i < len(args); i += 2 {
		n, ok := resp.ParseInt(args[i+1])
		set := func(name string, low, high int64) bool {
			switch {
			case !ok:
				c.w.Error("Couldn't parse " + name)
			case n < low || n > high:
				c.w.Error(fmt.Sprintf("%s: value must be in the range [%d, %d]", name, low, high))
			default:
				return true
			}
			return false
		}
		switch {
		case is(args[i], "BUCKETSIZE"):
			if !set("BUCKETSIZE", 1, 255) {
				return
			}
			o.BucketSize = uint8(n)
		case is(args[i], "MAXITERATIONS"):
			if !set("MAXITERATIONS", 1, 65535) {
				return
			}
			o.MaxIterations = uint16(n)
		case is(args[i], "EXPANSION"):
			if !set("EXPANSION", 0, maxExpansion) {
				return
			}
			o.Expansion = uint16(n)
		}
	}
	if capacity < 2*int64(o.BucketSize) || capacity > maxCapacity {
		c.w.Error("Capacity must be in the range [2 * BUCKETSIZE, 1073741824]")
		return
	}
	o.Capacity = uint64(capacity)
	if !c.reply(c.srv.create(c, args[1], kindCuckoo, makeCuckoo(o))) {
		c.w.OK()
	}
}

// cuckooAdd adds an item to a locked filter.
func (c *client) cuckooAdd(f *filter, item []byte, onlyNew bool) (added bool, err error) {
	err = c.grow(f, func(room uint64) (err error) {
		if onlyNew {
			added, err = f.cuckoo.AddNew(item, room)
			return err
		}
		added = true
		return f.cuckoo.Add(item, room)
	})
	switch {
	case errors.Is(err, redisbloom.ErrFull):
		err = errCuckooFull
	case errors.Is(err, redisbloom.ErrMaxExpansions):
		err = errCuckooMem
	}
	return added, err
}

// mayExpand returns an error if a locked filter has the maximum number of links before a command.
// As in RedisBloom, a command that adds many items may exceed that number.
func (s *Server) mayExpand(f *filter) error {
	if int64(f.cuckoo.Links()) >= s.defaults.cuckooLinks.Load() {
		return errCuckooMax
	}
	return nil
}

// parseCuckoo creates a filter from a header that a client sent.
func (s *Server) parseCuckoo(header []byte, room uint64) (*redisbloom.Cuckoo, error) {
	k, err := redisbloom.ParseCuckoo(header, room)
	if err == nil && int64(k.Links()) > s.defaults.cuckooLinks.Load() {
		return nil, redisbloom.ErrFormat
	}
	return k, err
}

// onlyNew reports whether a command's name ends in NX.
func onlyNew(args [][]byte) bool {
	name := args[0]
	return name[len(name)-1]|0x20 == 'x'
}

func cfAdd(c *client, args [][]byte) {
	f, err := c.srv.write(c, args[1], kindCuckoo, makeCuckoo(c.srv.defaults.cuckoo()))
	if c.reply(err) {
		return
	}
	added := false
	if err = c.srv.mayExpand(f); err == nil {
		added, err = c.cuckooAdd(f, args[2], onlyNew(args))
	}
	c.endWrite(f)
	if !c.reply(err) {
		c.w.Bool(added)
	}
}

func cfInsert(c *client, args [][]byte) {
	nx := onlyNew(args)
	name := "cf.insert"
	if nx {
		name = "cf.insertnx"
	}
	o := c.srv.defaults.cuckoo()
	maker := makeCuckoo(o)
	i := 2
	for ; i < len(args) && !is(args[i], "ITEMS"); i++ {
		switch {
		case is(args[i], "NOCREATE"):
			maker = nil
		case !is(args[i], "CAPACITY"):
			c.w.Error("Unknown argument received")
			return
		case i+1 == len(args):
			c.arity(name)
			return
		default:
			i++
			n, ok := resp.ParseInt(args[i])
			if ok && i+1 == len(args) {
				c.arity(name)
				return
			}
			if !ok {
				c.w.Error("Bad capacity")
				return
			}
			if n < 2*int64(o.BucketSize) || n > maxCapacity {
				c.w.Error("Capacity must be in the range [cf-bucket-size * 2, 1073741824]")
				return
			}
			o.Capacity = uint64(n)
			if maker != nil {
				maker = makeCuckoo(o)
			}
		}
	}
	if i+1 >= len(args) {
		c.arity(name)
		return
	}
	items := args[i+1:]
	done := 0
	err := c.parts(items, func(part [][]byte) error {
		f, err := c.srv.write(c, args[1], kindCuckoo, maker)
		if err != nil {
			return err
		}
		defer c.endWrite(f)
		if done == 0 {
			if !c.fits(0) {
				return errExecOOM
			}
			if err := c.srv.mayExpand(f); err != nil {
				return err
			}
			c.w.Array(len(items))
		}
		for _, item := range part {
			if !c.fits(0) {
				return errExecOOM
			}
			added, err := c.cuckooAdd(f, item, nx)
			c.cuckooAdded(added, err, nx)
			done++
			c.drain(f, groupRedo) // one item may move as many others as the filter has iterations
		}
		return nil
	})
	if done == 0 {
		c.reply(err)
		return
	}
	for ; done < len(items); done++ { // the key holds something else by now
		c.reply(err)
	}
}

// cuckooAdded replies to an item of CF.INSERT or CF.INSERTNX.
func (c *client) cuckooAdded(added bool, err error, nx bool) {
	switch {
	case err == errReadOnly || err == errOOM:
		c.w.Error(err.Error())
	case nx && err != nil:
		c.w.Int(-1)
	case nx && added:
		c.w.Int(1)
	case nx:
		c.w.Int(0)
	case err != nil && c.w.Proto == 2:
		c.w.Int(-1)
	default:
		c.w.Bool(err == nil)
	}
}

// withCuckoo calls fn with the cuckoo filter at a key, nil if there is none.
func (c *client) withCuckoo(key []byte, fn func(*redisbloom.Cuckoo)) {
	f := c.find(key)
	if f != nil && f.damage != nil {
		c.reply(f.damage)
		return
	}
	if f == nil || f.kind != kindCuckoo {
		fn(nil)
		return
	}
	if c.mustHandOver(f) {
		return
	}
	f.mu.RLock()
	c.sees(f)
	fn(f.cuckoo)
	f.mu.RUnlock()
	f.probes.Add(1)
}

func (c *client) cuckooExists(key []byte, items [][]byte, array bool) {
	c.withCuckoo(key, func(f *redisbloom.Cuckoo) {
		if array {
			c.w.Array(len(items))
		}
		for _, item := range items {
			c.w.Bool(f != nil && f.Contains(item))
		}
	})
}

func cfExists(c *client, args [][]byte) { c.cuckooExists(args[1], args[2:], false) }

func cfMExists(c *client, args [][]byte) { c.cuckooExists(args[1], args[2:], true) }

func cfCount(c *client, args [][]byte) {
	c.withCuckoo(args[1], func(f *redisbloom.Cuckoo) {
		if f == nil {
			c.w.Int(0)
		} else {
			c.w.Int(int64(f.Count(args[2])))
		}
	})
}

// compacting calls fn, which may compact a locked cuckoo filter. A compaction writes its changes in
// several steps, except in a transaction, which is one write.
func (c *client) compacting(f *filter, fn func(k *redisbloom.Cuckoo)) {
	before := f.memory()
	if c.overlay == nil {
		f.cuckoo.Drain = func() {
			var err error
			c.resetBatch()
			if c.valBuf, err = c.srv.flushFilter(f, &c.batch, c.valBuf); c.err == nil {
				c.err = err
			}
		}
		defer func() { f.cuckoo.Drain = nil }()
	}
	fn(f.cuckoo)
	c.srv.shrunk(f, before)
}

// roomToCompact reports whether the changes of a compaction fit in the current transaction. Without
// one they always do.
func (c *client) roomToCompact(k *redisbloom.Cuckoo) bool {
	const moveBytes = 20 // of the redo log, when an item moves from a link to an older one
	if c.overlay == nil {
		return true
	}
	items := int64(0) // in links other than the first
	for i := 1; i < k.Links(); i++ {
		items += int64(len(k.Data(i)) - bytes.Count(k.Data(i), []byte{0}))
	}
	return items*int64(k.Links()-1) <= int64(c.srv.execMax-c.batch.Size())/moveBytes
}

func cfDel(c *client, args [][]byte) {
	f, err := c.srv.write(c, args[1], kindCuckoo, nil)
	if err == errNotFound || err == errWrongType {
		c.w.Error("Not found")
		return
	}
	if c.reply(err) {
		return
	}
	if f.cuckoo.MayCompact() && !c.roomToCompact(f.cuckoo) {
		c.endWrite(f)
		c.reply(errExecOOM)
		return
	}
	if f.cuckoo.MayCompact() && f.cuckoo.Bytes() >= largeFilter {
		if c.onLoop() {
			f.mu.Unlock()
			c.handOver = true
			return
		}
		defer c.keepsLong(f)()
	}
	deleted := false
	c.compacting(f, func(k *redisbloom.Cuckoo) { deleted = k.Delete(args[2]) })
	c.endWrite(f)
	c.w.Bool(deleted)
}

func cfCompact(c *client, args [][]byte) {
	f, err := c.srv.write(c, args[1], kindCuckoo, nil)
	if err == errNotFound || err == errWrongType {
		c.w.Error("Cuckoo filter was not found")
		return
	}
	if c.reply(err) {
		return
	}
	if !c.roomToCompact(f.cuckoo) {
		c.endWrite(f)
		c.reply(errExecOOM)
		return
	}
	defer c.keepsLong(f)()
	c.compacting(f, (*redisbloom.Cuckoo).Compact)
	c.endWrite(f)
	c.w.OK()
}

// cuckooSize is the size that CF.INFO reports: the memory that RedisBloom would take for the
// filter.
func cuckooSize(f *redisbloom.Cuckoo) int64 { return int64(40 + 16*uint64(f.Links()) + f.Bytes()) }

func cfInfo(c *client, args [][]byte) {
	f, err := c.srv.read(c, args[1], kindCuckoo)
	if c.reply(err) {
		return
	}
	defer f.mu.RUnlock()
	k := f.cuckoo
	fields := []struct {
		name  string
		value uint64
	}{
		{"Size", uint64(cuckooSize(k))},
		{"Number of buckets", k.Buckets()},
		{"Number of filters", uint64(k.Links())},
		{"Number of items inserted", k.Items()},
		{"Number of items deleted", k.Deletes()},
		{"Bucket size", k.BucketSize()},
		{"Expansion rate", k.Expansion()},
		{"Max iterations", k.MaxIterations()},
	}
	c.w.Map(len(fields))
	for _, field := range fields {
		c.w.Simple(field.name)
		c.w.Int(int64(field.value))
	}
}

func cfDebug(c *client, args [][]byte) {
	f, err := c.srv.read(c, args[1], kindCuckoo)
	if c.reply(err) {
		return
	}
	k := f.cuckoo
	text := fmt.Sprintf("bktsize:%d buckets:%d items:%d deletes:%d filters:%d max_iterations:%d expansion:%d",
		k.BucketSize(), k.Buckets(), k.Items(), k.Deletes(), k.Links(), k.MaxIterations(), k.Expansion())
	f.mu.RUnlock()
	c.w.BulkString(text)
}

func cfScanDump(c *client, args [][]byte) {
	f, err := c.srv.read(c, args[1], kindCuckoo)
	if c.reply(err) {
		return
	}
	defer f.mu.RUnlock()
	iter, ok := resp.ParseInt(args[2])
	if !ok || iter < 0 {
		c.w.Error("Invalid position")
		return
	}
	next, part := f.cuckoo.Dump(iter)
	c.w.Array(2)
	c.w.Int(next)
	if next == 0 {
		c.w.Nil()
	} else {
		c.w.Bulk(part)
	}
}

func cfLoadChunk(c *client, args [][]byte) {
	iter, ok := resp.ParseInt(args[2])
	if !ok || iter < 1 {
		c.w.Error("Invalid position")
		return
	}
	if iter == 1 {
		tooLarge := false
		err := c.srv.create(c, args[1], kindCuckoo, func(f *filter, room uint64) (err error) {
			f.cuckoo, err = c.srv.parseCuckoo(args[3], room)
			tooLarge = errors.Is(err, redisbloom.ErrTooLarge)
			return err
		})
		switch {
		case errors.Is(err, redisbloom.ErrFormat) && len(args[3]) != redisbloom.CuckooHeaderBytes:
			c.w.Error("Invalid header")
		case errors.Is(err, redisbloom.ErrFormat), err == errOOM && tooLarge:
			c.w.Error("Couldn't create filter!")
		case !c.reply(err):
			c.w.OK()
		}
		return
	}
	f, err := c.srv.write(c, args[1], kindCuckoo, nil)
	if c.reply(err) {
		return
	}
	err = f.cuckoo.Load(iter, args[3])
	c.endWrite(f)
	if err != nil {
		c.w.Error("Couldn't load chunk!")
	} else {
		c.w.OK()
	}
}
