package engines

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/storage"
	"github.com/syndtr/goleveldb/leveldb/util"

	"github.com/siftdb/sift/internal/torture/damage"
)

// goLevelDB is goleveldb; strict selects how it handles damage.
type goLevelDB struct {
	name   string
	strict opt.Strict
	tmp    string // the parent of temporary directories
}

func (g *goLevelDB) Name() string { return g.name }

func (g *goLevelDB) options() *opt.Options {
	return &opt.Options{
		Filter: filter.NewBloomFilter(10), Strict: g.strict, NoSync: true, BlockSize: 256,
		CompactionTableSize: 1 << 10, ErrorIfMissing: true,
	}
}

// Make implements engine.
func (g *goLevelDB) Make(w *script) (damage.Files, error) {
	dir, err := os.MkdirTemp(g.tmp, "make")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	o := g.options()
	o.ErrorIfMissing = false
	db, err := leveldb.OpenFile(dir, o)
	if err != nil {
		return nil, err
	}
	for _, s := range w.steps {
		switch {
		case s.flush:
			err = db.CompactRange(util.Range{})
		case s.value == "":
			err = db.Delete([]byte(s.key), nil)
		default:
			err = db.Put([]byte(s.key), []byte(s.value), nil)
		}
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	if err := db.Close(); err != nil {
		return nil, err
	}
	files := damage.Files{}
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		if n.Name() == "LOG" || n.Name() == "LOG.old" {
			continue // messages for people
		}
		if files[n.Name()], err = os.ReadFile(filepath.Join(dir, n.Name())); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// Read implements damage.Engine.
func (g *goLevelDB) Read(files damage.Files, keys []string) (a damage.Answers) {
	dir, err := os.MkdirTemp(g.tmp, "read")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			panic(err)
		}
	}
	stor, err := storage.OpenFile(dir, false)
	if err != nil {
		a.OpenErr = err
		return a
	}
	defer stor.Close()
	db, err := leveldb.Open(stor, g.options())
	if err != nil {
		a.OpenErr = err
		return a
	}
	for _, k := range keys {
		v, err := db.Get([]byte(k), nil)
		get := damage.Get{Value: string(v), Found: err == nil}
		if err != nil && err != leveldb.ErrNotFound {
			get.Err = err
		}
		a.Gets = append(a.Gets, get)
	}
	a.Scan = map[string]string{}
	it := db.NewIterator(nil, nil)
	for it.Next() {
		a.Scan[string(it.Key())] = string(it.Value())
	}
	a.ScanErr = it.Error()
	it.Release()
	if err := db.Close(); err != nil {
		a.Err = fmt.Errorf("close: %w", err)
	}
	return a
}
