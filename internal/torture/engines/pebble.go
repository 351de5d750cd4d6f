package engines

import (
	"errors"
	"fmt"
	"path"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/siftdb/sift/internal/torture/damage"
)

// pebbleDB is pebble, with Bloom filters on all levels.
type pebbleDB struct{}

func (pebbleDB) Name() string { return "pebble v2" }

// failure is a fatal message of pebble, which would end the process.
type failure struct{ err error }

type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(failure{fmt.Errorf(format, args...)})
}

func pebbleOptions(fs vfs.FS) *pebble.Options {
	o := &pebble.Options{FS: fs, Logger: quiet{}, DisableAutomaticCompactions: true, ErrorIfNotExists: true}
	// Otherwise pebble ends the process when it meets damage in the background.
	o.EventListener = &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}}
	o.Levels[0].BlockSize = 256
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	return o
}

// Make implements engine.
func (pebbleDB) Make(w *script) (damage.Files, error) {
	fs := vfs.NewMem()
	o := pebbleOptions(fs)
	o.ErrorIfNotExists = false
	db, err := pebble.Open("db", o)
	if err != nil {
		return nil, err
	}
	for _, s := range w.steps {
		switch {
		case s.flush:
			err = db.Flush()
		case s.value == "":
			err = db.Delete([]byte(s.key), pebble.NoSync)
		default:
			err = db.Set([]byte(s.key), []byte(s.value), pebble.NoSync)
		}
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	if err := db.Close(); err != nil {
		return nil, err
	}
	files := damage.Files{}
	names, err := fs.List("db")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if files[name], err = readPebbleFile(fs, path.Join("db", name)); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func readPebbleFile(fs vfs.FS, name string) ([]byte, error) {
	info, err := fs.Stat(name)
	if err != nil {
		return nil, err
	}
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, info.Size())
	if len(b) > 0 {
		_, err = f.ReadAt(b, 0)
	}
	return b, err
}

// Read implements damage.Engine.
func (pebbleDB) Read(files damage.Files, keys []string) (a damage.Answers) {
	fs := vfs.NewMem()
	if err := fs.MkdirAll("db", 0o755); err != nil {
		panic(err)
	}
	for name, b := range files {
		f, err := fs.Create(path.Join("db", name), vfs.WriteCategoryUnspecified)
		if err != nil {
			panic(err)
		}
		if _, err := f.Write(b); err != nil {
			panic(err)
		}
		if err := f.Close(); err != nil {
			panic(err)
		}
	}
	db, err := pebble.Open("db", pebbleOptions(fs))
	if err != nil {
		a.OpenErr = err
		return a
	}
	for _, k := range keys {
		get := damage.Get{}
		v, closer, err := db.Get([]byte(k))
		if err == nil {
			get.Value, get.Found = string(v), true
			closer.Close()
		} else if !errors.Is(err, pebble.ErrNotFound) {
			get.Err = err
		}
		a.Gets = append(a.Gets, get)
	}
	a.Scan = map[string]string{}
	it, err := db.NewIter(nil)
	if err == nil {
		for ok := it.First(); ok; ok = it.Next() {
			a.Scan[string(it.Key())] = string(it.Value())
		}
		err = it.Close()
	}
	a.ScanErr = err
	if err := db.Close(); err != nil {
		a.Err = fmt.Errorf("close: %w", err)
	}
	return a
}
