// Command driver performs random operations on a goleveldb database and prints the
// results. The operations depend only on the seed, so the outputs of two builds, with
// goleveldb and with the module, can be compared line by line.
//
//	driver DIR SEED OPS
//	driver DIR dump
package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand"
	"os"
	"strconv"
	"strings"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/errors"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/iterator"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/storage"
	"github.com/syndtr/goleveldb/leveldb/util"
)

var out = bufio.NewWriter(os.Stdout)

func main() {
	defer out.Flush()
	if os.Args[2] == "dump" {
		d := &driver{dir: os.Args[1]}
		d.open()
		d.walk(d.db.NewIterator(nil, nil))
		d.close()
		return
	}
	seed, err := strconv.ParseInt(os.Args[2], 10, 64)
	check(err)
	ops, err := strconv.Atoi(os.Args[3])
	check(err)
	d := &driver{dir: os.Args[1], r: rand.New(rand.NewSource(seed)), iters: map[int]iterator.Iterator{}, snaps: map[int]*leveldb.Snapshot{}, ofTr: map[int]iterator.Iterator{}}
	d.open()
	for i := 0; i < ops; i++ {
		d.step()
	}
	d.close()
}

func check(err error) {
	if err != nil {
		out.Flush()
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type driver struct {
	dir   string
	r     *rand.Rand
	db    *leveldb.DB
	tr    *leveldb.Transaction
	iters map[int]iterator.Iterator
	snaps map[int]*leveldb.Snapshot
	ofTr  map[int]iterator.Iterator // iterators of the open transaction
}

func say(format string, args ...interface{}) { fmt.Fprintf(out, format+"\n", args...) }

// word describes an error. All damage is described alike, except that of a batch.
func word(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.IsCorrupted(err):
		if _, ok := err.(*errors.ErrCorrupted).Err.(*leveldb.ErrBatchCorrupted); ok {
			return err.Error()
		}
		return "corrupted"
	}
	return err.Error()
}

// value is slice for values. It treats nil as empty if there is a value: goleveldb
// returns either, depending on where it finds an empty value.
func value(v []byte, is bool) string {
	if is && v == nil {
		v = []byte{}
	}
	return slice(v)
}

func slice(b []byte) string {
	if b == nil {
		return "nil"
	}
	if len(b) > 64 {
		return fmt.Sprintf("%q...%d", b[:64], len(b))
	}
	return fmt.Sprintf("%q", b)
}

func (d *driver) key() []byte {
	switch d.r.Intn(40) {
	case 0:
		return nil
	case 1:
		return []byte{}
	case 2:
		return []byte{0xff, 0xff}
	}
	const letters = "abc\x00\x80\xfe\xffz"
	b := make([]byte, 1+d.r.Intn(4))
	for i := range b {
		b[i] = letters[d.r.Intn(len(letters))]
	}
	return b
}

func (d *driver) value() []byte {
	switch d.r.Intn(10) {
	case 0:
		return nil
	case 1:
		return []byte{}
	case 2:
		return []byte(strings.Repeat(strconv.Itoa(d.r.Intn(1000)), 1+d.r.Intn(3000)))
	}
	return []byte(strconv.Itoa(d.r.Int()))
}

func (d *driver) rang() *util.Range {
	switch d.r.Intn(5) {
	case 0:
		return nil
	case 1:
		return util.BytesPrefix(d.key())
	case 2:
		return &util.Range{Start: d.key()}
	case 3:
		return &util.Range{Limit: d.key()}
	}
	r := &util.Range{Start: d.key(), Limit: d.key()}
	if bytes.Compare(r.Start, r.Limit) > 0 { // goleveldb panics on some of these
		r.Start, r.Limit = r.Limit, r.Start
	}
	return r
}

func (d *driver) wo() *opt.WriteOptions {
	switch d.r.Intn(20) {
	case 0:
		return &opt.WriteOptions{Sync: true}
	case 1:
		return &opt.WriteOptions{NoWriteMerge: true}
	}
	return nil
}

func (d *driver) open() {
	db, err := leveldb.OpenFile(d.dir, &opt.Options{
		WriteBuffer: 64 << 10, CompactionTableSize: 32 << 10, CompactionTotalSize: 64 << 10, Filter: filter.NewBloomFilter(10),
	})
	check(err)
	d.db = db
}

func (d *driver) close() {
	for id := 0; id < 8; id++ {
		if it := d.iters[id]; it != nil {
			it.Release()
			delete(d.iters, id)
		}
		if s := d.snaps[id]; s != nil {
			s.Release()
			delete(d.snaps, id)
		}
	}
	say("close: %s", word(d.db.Close()))
	say("again: %s", word(d.db.Close()))
	if d.tr != nil {
		say("commit of closed: %s", word(d.tr.Commit()))
		d.tr.Discard()
		d.tr = nil
		d.ofTr = map[int]iterator.Iterator{}
	}
	_, err := d.db.Get([]byte("a"), nil)
	say("get of closed: %s, put: %s", word(err), word(d.db.Put(nil, nil, nil)))
	it := d.db.NewIterator(nil, nil)
	say("iterator of closed: %t %s", it.Next(), word(it.Error()))
	it.Release()
	_, err = d.db.GetSnapshot()
	say("snapshot of closed: %s", word(err))
	_, err = d.db.OpenTransaction()
	say("transaction of closed: %s", word(err))
	_, err = d.db.GetProperty("leveldb.stats")
	say("property of closed: %s, compact: %s, readonly: %s", word(err), word(d.db.CompactRange(util.Range{})), word(d.db.SetReadOnly()))
}

func (d *driver) walk(it iterator.Iterator) {
	n := 0
	for it.Next() {
		say("%s=%s", slice(it.Key()), value(it.Value(), true))
		n++
	}
	say("walked %d: %s %t %s %s, prev %t, next %t", n, word(it.Error()), it.Valid(), slice(it.Key()), slice(it.Value()), it.Prev(), it.Next())
	it.Release()
}

type replay struct{}

func (replay) Put(k, v []byte) { say("  put %s=%s", slice(k), slice(v)) }
func (replay) Delete(k []byte) { say("  delete %s", slice(k)) }

func (d *driver) batch() *leveldb.Batch {
	b := new(leveldb.Batch)
	for n := d.r.Intn(20); n > 0; n-- {
		if d.r.Intn(3) == 0 {
			b.Delete(d.key())
		} else {
			b.Put(d.key(), d.value())
		}
	}
	return b
}

func (d *driver) move(id int) {
	it := d.iters[id]
	var ok bool
	what := d.r.Intn(12)
	key := d.key()
	switch {
	case what < 5:
		ok = it.Next()
	case what < 8:
		ok = it.Prev()
	case what == 8:
		ok = it.First()
	case what == 9:
		ok = it.Last()
	default:
		ok = it.Seek(key)
	}
	say("iterator %d: move %d %s: %t %t %s=%s %s", id, what, slice(key), ok, it.Valid(), slice(it.Key()), value(it.Value(), ok), word(it.Error()))
}

func (d *driver) step() {
	id := d.r.Intn(8)
	op := d.r.Intn(100)
	if d.tr != nil && (op < 40 || op >= 96) {
		d.transact()
		return
	}
	switch {
	case op < 15:
		say("put: %s", word(d.db.Put(d.key(), d.value(), d.wo())))
	case op < 20:
		say("delete: %s", word(d.db.Delete(d.key(), d.wo())))
	case op < 28:
		say("write: %s", word(d.db.Write(d.batch(), d.wo())))
	case op < 40:
		k := d.key()
		v, err := d.db.Get(k, nil)
		has, err2 := d.db.Has(k, nil)
		say("get %s: %s %s, has %t %s", slice(k), value(v, err == nil), word(err), has, word(err2))
		for i := range v {
			v[i] = 'x' // v belongs to the caller
		}
	case op < 50:
		if it := d.iters[id]; it != nil {
			it.Release()
			it.Release()
			say("released: %t %t %s %s", it.Valid(), it.Next(), slice(it.Key()), word(it.Error()))
		}
		r := d.rang()
		if s := d.snaps[id]; s != nil && d.r.Intn(2) == 0 {
			d.iters[id] = s.NewIterator(r, nil)
		} else {
			d.iters[id] = d.db.NewIterator(r, nil)
		}
		it := d.iters[id]
		say("new iterator %d: %t %s %s", id, it.Valid(), slice(it.Key()), slice(it.Value()))
	case op < 75:
		if it := d.iters[id]; it != nil {
			for n := d.r.Intn(8); n >= 0; n-- {
				d.move(id)
			}
		}
	case op < 80:
		s := d.snaps[id]
		if s == nil || d.r.Intn(3) == 0 {
			if s != nil {
				s.Release()
				s.Release()
				_, err := s.Get([]byte("a"), nil)
				_, err2 := s.Has([]byte("a"), nil)
				it := s.NewIterator(nil, nil)
				say("released snapshot: %s %s %t %s", word(err), word(err2), it.Next(), word(it.Error()))
				it.Release()
			}
			var err error
			s, err = d.db.GetSnapshot()
			check(err)
			d.snaps[id] = s
		}
		k := d.key()
		v, err := s.Get(k, nil)
		has, err2 := s.Has(k, nil)
		say("snapshot get %s: %s %s, has %t %s", slice(k), value(v, err == nil), word(err), has, word(err2))
	case op < 84:
		b := d.batch()
		say("batch %d %s", b.Len(), slice([]byte(hex.EncodeToString(b.Dump()))))
		c := new(leveldb.Batch)
		data := append([]byte{}, b.Dump()...)
		if len(data) > 0 && d.r.Intn(2) == 0 {
			data = data[:d.r.Intn(len(data))]
		}
		if len(data) > 0 && d.r.Intn(4) == 0 {
			data[0] = byte(d.r.Intn(4))
		}
		err := c.Load(data)
		say("load: %s", word(err))
		if err == nil {
			say("%d %s", c.Len(), word(c.Replay(replay{})))
		}
	case op < 85:
		r := d.rang()
		if r == nil {
			r = &util.Range{}
		}
		if d.tr == nil { // it waits for the transaction
			say("compact: %s", word(d.db.CompactRange(*r)))
		}
	case op < 86:
		for _, name := range []string{"leveldb.nothing", "stats", "leveldb.alivesnaps", "leveldb.aliveiters", "leveldb.num-files-at-level99", "leveldb.num-files-at-levelx"} {
			v, err := d.db.GetProperty(name)
			say("%s: %q %s", name, v, word(err))
		}
		for _, name := range []string{"leveldb.stats", "leveldb.iostats", "leveldb.writedelay", "leveldb.compcount"} {
			v, err := d.db.GetProperty(name)
			say("%s: %s %s", name, shape(v), word(err))
		}
		sizes, err := d.db.SizeOf([]util.Range{{}, {Start: []byte("q"), Limit: []byte("a")}, {Start: []byte("a")}})
		say("sizes %v %s", sizes, word(err))
	case op < 88:
		if d.tr == nil {
			say("reopen")
			d.close()
			_, err := leveldb.OpenFile(d.dir, &opt.Options{ErrorIfExist: true})
			say("exists: %s", word(err))
			_, err = leveldb.OpenFile(d.dir+"-none", &opt.Options{ErrorIfMissing: true})
			say("missing: %s", word(err))
			os.RemoveAll(d.dir + "-none")
			_, err = leveldb.OpenFile(d.dir+"-none", &opt.Options{ReadOnly: true})
			say("missing, read-only: %t", os.IsNotExist(err))
			if d.r.Intn(3) == 0 {
				db, err := leveldb.OpenFile(d.dir, &opt.Options{ReadOnly: true})
				if err == io.EOF { // goleveldb cannot open its own two logs read-only
					db, err = leveldb.OpenFile(d.dir, nil)
					check(err)
					check(db.Close())
					db, err = leveldb.OpenFile(d.dir, &opt.Options{ReadOnly: true})
				}
				check(err)
				d.db = db
				say("read-only: %s %s %s", word(db.Put(nil, nil, nil)), word(db.CompactRange(util.Range{})), word(db.SetReadOnly()))
				d.walk(db.NewIterator(d.rang(), nil))
				check(db.Close())
			}
			d.open()
			_, err = leveldb.OpenFile(d.dir, nil)
			say("locked: %s", word(err))
			_, err = storage.OpenFile(d.dir, false)
			say("locked: %s", word(err))
		}
	case op < 89:
		d.walk(d.db.NewIterator(d.rang(), nil))
	case op < 90:
		if d.tr == nil && d.r.Intn(5) == 0 {
			say("readonly: %s", word(d.db.SetReadOnly()))
		}
	case op < 92:
		if it := d.iters[id]; it != nil {
			func() {
				defer func() { say("recovered: %v", recover()) }()
				n := 0
				it.SetReleaser(releaser{&n})
				func() {
					defer func() { say("second releaser: %v", recover()) }()
					it.SetReleaser(releaser{&n})
				}()
				it.Release()
				say("releaser called %d times", n)
				it.SetReleaser(nil)
			}()
			delete(d.iters, id)
		}
	case op < 96:
		if d.tr == nil {
			tr, err := d.db.OpenTransaction()
			say("transaction: %s", word(err))
			d.tr = tr
			if err != nil {
				d.tr = nil
			}
		}
	}
}

type releaser struct{ n *int }

func (r releaser) Release() { *r.n++ }

// shape returns a text without its numbers.
func shape(s string) string {
	var b strings.Builder
	rows := strings.SplitAfter(s, "\n")
	for i, row := range rows {
		if len(rows) > 3 && i > 2 && !strings.HasPrefix(row, "-") && !strings.HasPrefix(row, " Total") {
			continue // a level's row; which levels there are depends on the compactions
		}
		fields := strings.FieldsFunc(row, func(r rune) bool { return strings.ContainsRune(" 0123456789.µmsh", r) })
		b.WriteString(strings.Join(fields, ""))
	}
	return strconv.Quote(b.String())
}

func (d *driver) transact() {
	tr := d.tr
	switch d.r.Intn(12) {
	case 0, 1, 2:
		say("tr put: %s", word(tr.Put(d.key(), d.value(), nil)))
	case 3:
		say("tr delete: %s", word(tr.Delete(d.key(), nil)))
	case 4, 5:
		say("tr write: %s", word(tr.Write(d.batch(), nil)))
	case 6, 7:
		k := d.key()
		v, err := tr.Get(k, nil)
		has, err2 := tr.Has(k, nil)
		say("tr get %s: %s %s, has %t %s", slice(k), value(v, err == nil), word(err), has, word(err2))
	case 8, 9:
		id := d.r.Intn(8)
		if it := d.iters[id]; it != nil {
			it.Release()
		}
		d.iters[id] = tr.NewIterator(d.rang(), nil)
		d.ofTr[id] = d.iters[id]
		say("new iterator %d of the transaction", id)
		for n := d.r.Intn(20); n >= 0; n-- {
			d.move(id)
		}
	default:
		if d.r.Intn(3) > 0 {
			say("commit: %s", word(tr.Commit()))
		} else {
			// Iterators that outlive a discarded transaction are not compared: goleveldb's show
			// later writes.
			for id, it := range d.ofTr {
				if d.iters[id] == it {
					it.Release()
					delete(d.iters, id)
				}
			}
			tr.Discard()
		}
		d.tr = nil
		d.ofTr = map[int]iterator.Iterator{}
		tr.Discard()
		_, err := tr.Get(nil, nil)
		it := tr.NewIterator(nil, nil)
		say("ended: %s %s %s %s %s", word(err), word(tr.Put(nil, nil, nil)), word(tr.Commit()), word(tr.Write(d.batch(), nil)), word(it.Error()))
		it.Release()
	}
}
