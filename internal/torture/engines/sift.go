package engines

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/torture/damage"
)

// siftDB is sift, on the host's file system like goleveldb.
type siftDB struct{ tmp string }

func (siftDB) Name() string { return "sift" }

func (s siftDB) options() *sift.Options {
	return &sift.Options{Filter: filter.Bloom(10), BlockBytes: 256, TableBytes: 1 << 10, DisableAutoCompaction: true}
}

// Make implements engine.
func (s siftDB) Make(w *script) (damage.Files, error) {
	dir, err := os.MkdirTemp(s.tmp, "make")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	db, err := sift.Open(dir, s.options())
	if err != nil {
		return nil, err
	}
	for _, st := range w.steps {
		switch {
		case st.flush:
			err = db.Flush()
		case st.value == "":
			err = db.Delete([]byte(st.key), sift.NoSync)
		default:
			err = db.Put([]byte(st.key), []byte(st.value), sift.NoSync)
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
		if files[n.Name()], err = os.ReadFile(filepath.Join(dir, n.Name())); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// Read implements damage.Engine.
func (s siftDB) Read(files damage.Files, keys []string) (a damage.Answers) {
	dir, err := os.MkdirTemp(s.tmp, "read")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			panic(err)
		}
	}
	o := s.options()
	o.ErrorIfMissing = true
	db, err := sift.Open(dir, o)
	if err != nil {
		a.OpenErr = err
		return a
	}
	for _, k := range keys {
		v, err := db.Get([]byte(k))
		get := damage.Get{Value: string(v), Found: err == nil}
		if err != nil && !errors.Is(err, sift.ErrNotFound) {
			get.Err = err
		}
		a.Gets = append(a.Gets, get)
	}
	a.Scan = map[string]string{}
	for e, err := range db.Scan(nil) {
		if err != nil {
			a.ScanErr = err
			break
		}
		a.Scan[string(e.Key)] = string(e.Value)
	}
	a.Err = db.Close()
	return a
}
