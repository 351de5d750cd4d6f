package torture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/torture/damage"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/internal/vfs/vfstest"
	"github.com/siftdb/sift/sstable"
)

// Sample is a database to damage: its files and its contents.
type Sample struct {
	Name  string
	Env   *Env
	Files damage.Files
	Old   damage.Files // an earlier state of the same database
	Want  map[string]string
	Keys  []string // to look up: all present keys, and some absent ones
	// Crashed: the database was not closed. Then Want is everything that was written, and
	// what was not proven to be synced may be missing.
	Crashed bool

	ends []int // for each write of a crashed database, the length of the log after it
}

// CleanSample creates a small database with the given filters and closes it.
func CleanSample(name string, policies ...filter.Policy) (*Sample, error) {
	return cleanSample(NewEnv(3), name, policies...)
}

// KeyedSample is a clean sample whose filters are keyed.
func KeyedSample() (*Sample, error) {
	e := NewEnv(5)
	e.Options.KeyedFilters = true
	return cleanSample(e, "keyed")
}

func cleanSample(e *Env, name string, policies ...filter.Policy) (*Sample, error) {
	e.CleanNow = true
	e.Options.LevelFilters = policies
	e.Options.DisableAutoCompaction = true
	e.Options.TableBytes = 1 << 10
	e.Open()
	e.fillSample(0, 40)
	e.Compact("", "")
	e.fillSample(1, 25)
	e.Flush()
	s := &Sample{Name: name, Env: e}
	var err error
	if s.Old, err = filesOf(e.Mem, e.Dir); err != nil {
		return nil, err
	}
	e.fillSample(2, 12)
	e.Close()
	return s.finish()
}

// CrashedSample creates a small database and abandons it without closing it. It keeps
// some of the zeros after the end of its log, which are preallocated space.
func CrashedSample(zeros int) (*Sample, error) {
	e := NewEnv(4)
	e.CleanNow = true
	e.Options.DisableAutoCompaction = true
	e.Options.MemtableBytes = 1 << 20
	e.Open()
	e.fillSample(0, 20)
	e.Flush()
	s := &Sample{Name: "crashed", Env: e, Crashed: true}
	var err error
	if s.Old, err = filesOf(e.Mem, e.Dir); err != nil {
		return nil, err
	}
	s.ends = make([]int, len(e.H.writes)) // in tables
	for i := range 30 {
		e.Put(fmt.Sprintf("key%03d", i*3), 12, i%5 == 2)
		files, err := filesOf(e.Mem, e.Dir)
		if err != nil {
			return nil, err
		}
		s.ends = append(s.ends, len(logOf(files)))
	}
	img := e.Mem.CrashImage(e.ops(), vfstest.KeepUnsynced)
	if err := e.DB.Close(); err != nil {
		return nil, err
	}
	e.DB, e.Mem = nil, img
	if s, err = s.finish(); err != nil {
		return nil, err
	}
	for name, b := range s.Files {
		if filepath.Ext(name) == ".log" {
			end := len(bytes.TrimRight(b, "\x00"))
			s.Files[name] = b[:min(len(b), end+zeros)]
		}
	}
	return s, nil
}

func (e *Env) fillSample(round, n int) {
	for i := range n {
		key := fmt.Sprintf("key%03d", (i*7+round)%100)
		if i%9 == 8 {
			e.Delete(key, false)
		} else {
			e.Put(key, 8+i%20, false)
		}
	}
}

func (s *Sample) finish() (*Sample, error) {
	e := s.Env
	if e.Err != nil {
		return nil, e.Err
	}
	e.H.Finish()
	s.Want = maps.Clone(e.H.now)
	s.Keys = e.H.Keys()
	for i := range 20 {
		s.Keys = append(s.Keys, fmt.Sprintf("key%03dx", i*5))
	}
	var err error
	s.Files, err = filesOf(e.Mem, e.Dir)
	return s, err
}

// filesOf reads all files of a directory.
func filesOf(fs vfs.FS, dir string) (damage.Files, error) {
	names, err := fs.List(dir)
	if err != nil {
		return nil, err
	}
	files := damage.Files{}
	for _, name := range names {
		if files[name], err = readFile(fs, filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// diskOf is the inverse of filesOf.
func diskOf(files damage.Files) (*vfstest.Mem, error) {
	mem := vfstest.NewMem()
	if err := mem.MkdirAll(dbDir); err != nil {
		return nil, err
	}
	for name, b := range files {
		if err := writeFile(mem, filepath.Join(dbDir, name), b); err != nil {
			return nil, err
		}
	}
	return mem, nil
}

// SiftEngine reads damaged databases with sift.
type SiftEngine struct {
	Sample   *Sample
	ReadOnly bool
}

// Name implements damage.Engine.
func (s SiftEngine) Name() string { return "sift, " + s.Sample.Name }

// Read implements damage.Engine.
func (s SiftEngine) Read(files damage.Files, keys []string) (a damage.Answers) {
	mem, err := diskOf(files)
	if err != nil {
		a.OpenErr = err
		return a
	}
	o := s.Sample.Env.options(mem)
	o.ReadOnly, o.ErrorIfMissing = s.ReadOnly, true
	db, err := sift.Open(dbDir, o)
	if err != nil {
		a.OpenErr = err
		return a
	}
	for _, k := range keys {
		v, err := db.Get([]byte(k))
		g := damage.Get{Value: string(v), Found: err == nil}
		if err != nil && !errors.Is(err, sift.ErrNotFound) {
			g.Err = err
		}
		a.Gets = append(a.Gets, g)
	}
	a.Scan, a.ScanErr = scanOf(db)
	a.Err = db.Close()
	return a
}

// scanOf is contentsOf, but returns what it has read before an error.
func scanOf(db *sift.DB) (map[string]string, error) {
	it, err := db.NewIter(nil)
	if err != nil {
		return nil, err
	}
	m := map[string]string{}
	for ok := it.First(); ok; ok = it.Next() {
		m[string(it.Key())] = string(it.Value())
	}
	return m, it.Close()
}

// Verdict is damage.Verdict for sift: every error must name the file, and a database that
// was not closed may lose what was not proven to be synced.
func (s *Sample) Verdict(t *Unnamed) damage.Verdict {
	return func(c damage.Case, a damage.Answers, o damage.Outcome, what string) (damage.Outcome, string) {
		errs := []error{a.OpenErr, a.ScanErr, a.Err}
		for _, g := range a.Gets {
			errs = append(errs, g.Err)
		}
		for _, err := range errs {
			t.note(c, err)
		}
		if o == damage.Silent && s.Crashed && a.ScanErr == nil && s.isPrefix(a, c) {
			o, what = damage.Right, ""
		}
		if o > damage.Error || !t.due() {
			return o, what
		}
		if found, err := s.checked(c.Files()); err != nil {
			return damage.Silent, fmt.Sprintf("Check: %v", err)
		} else if t.checked(c, found); !found && o == damage.Error {
			return damage.Silent, "reads fail, but Check finds no fault"
		}
		return o, what
	}
}

// checked reports whether Check finds a fault in files.
func (s *Sample) checked(files damage.Files) (found bool, err error) {
	mem, err := diskOf(files)
	if err != nil {
		return false, err
	}
	_, err = sift.Check(context.Background(), dbDir, s.Env.options(mem), func(error) { found = true })
	return found || isMissing(err), ignoreMissing(err)
}

func ignoreMissing(err error) error {
	if isMissing(err) {
		return nil
	}
	return err
}

// isPrefix reports whether answers are those after a prefix of the writes that includes
// all that were proven to be synced.
func (s *Sample) isPrefix(a damage.Answers, c damage.Case) bool {
	for i, k := range s.Keys {
		g := a.Gets[i]
		if v, there := a.Scan[k]; g.Err != nil || g.Found != there || g.Value != v {
			return false
		}
	}
	_, ok := s.Env.H.match(sumOf(a.Scan), s.proven(c), len(s.Env.H.writes), -1)
	return ok
}

// logOf returns the bytes of the newest log.
func logOf(files damage.Files) []byte {
	newest := ""
	for name := range files {
		if filepath.Ext(name) == ".log" {
			newest = max(newest, name)
		}
	}
	return files[newest]
}

// proven returns the number of writes that the log proves to be synced: those up to the last synced
// one that another write follows. The original end of a truncated or older log is unknown, so it
// proves only what was durable before; but a truncated log holds the writes before its end.
func (s *Sample) proven(c damage.Case) int {
	h := s.Env.H
	if (c.Kind == "truncate" || c.Kind == "stale") && c.Region == "log" {
		n := h.barriers[len(h.barriers)-1].writes
		if c.Kind == "truncate" {
			length := len(logOf(c.Files()))
			for n < len(s.ends) && s.ends[n] <= length {
				n++
			}
		}
		return n
	}
	for i := len(h.writes) - 2; i >= 0; i-- {
		if h.writes[i].sync {
			return i + 1
		}
	}
	return 0
}

// Unnamed collects errors that name no file, and damage that Check misses.
type Unnamed struct {
	// CheckEvery: Check examines one case in CheckEvery.
	CheckEvery int

	mu                     sync.Mutex
	calls                  int
	Count, NoOffset, Named int
	First                  string

	Checked, Unfound int // flips in tables that Check examined, and that it missed
}

// due reports whether Check should examine a case.
func (u *Unnamed) due() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.calls++
	return u.calls%u.CheckEvery == 0
}

// checked records the result of Check.
func (u *Unnamed) checked(c damage.Case, found bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if c.Kind == "flip" && strings.HasPrefix(c.Region, "table") {
		u.Checked++
		if !found {
			u.Unfound++
		}
	}
}

func (u *Unnamed) note(c damage.Case, err error) {
	if err == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	var ce *sift.CorruptionError
	switch {
	case errors.As(err, &ce) && ce.Path != "":
		u.Named++
		if ce.Offset < 0 {
			u.NoOffset++
		}
	case errors.Is(err, sift.ErrUnsupported) && strings.Contains(err.Error(), dbDir):
		u.Named++
	default:
		if u.Count++; u.First == "" {
			u.First = fmt.Sprintf("%s: %v", c.What, err)
		}
	}
}

// Region distinguishes the filter blocks, index and footer of tables from their data.
func (s *Sample) Region() damage.Region {
	type span struct {
		from, to int
		name     string
	}
	spans := map[string][]span{}
	for name, b := range s.Files {
		if kind, _, ok := manifest.ParseName(name); !ok || kind != manifest.KindTable {
			continue
		}
		r, err := sstable.NewReader(bytes.NewReader(b), int64(len(b)), nil)
		if err != nil {
			continue
		}
		for _, m := range r.MetaBlocks() {
			what := "table meta"
			if strings.HasPrefix(m.Name, "fullfilter.") {
				what = "table filter"
			}
			spans[name] = append(spans[name], span{int(m.Offset), int(m.Offset + m.Length + 5), what})
		}
	}
	return func(name string, offset int) string {
		for _, sp := range spans[name] {
			if offset >= sp.from && offset < sp.to {
				return sp.name
			}
		}
		return damage.ByKind(name, offset)
	}
}

// SwappedBlocks returns a case for each pair of data blocks of a table that have the same
// length, exchanged.
func (s *Sample) SwappedBlocks() []damage.Case {
	var cases []damage.Case
	for _, name := range slices.Sorted(maps.Keys(s.Files)) {
		b := s.Files[name]
		r, err := sstable.NewReader(bytes.NewReader(b), int64(len(b)), nil)
		if err != nil {
			continue
		}
		var blocks []sstable.Handle
		for i := range r.NumDataBlocks() {
			if info, err := r.DataBlock(i); err == nil {
				blocks = append(blocks, info.Handle)
			}
		}
		for i, x := range blocks {
			for _, y := range blocks[i+1:] {
				if x.Length != y.Length {
					continue
				}
				cases = append(cases, damage.Case{Kind: "swap", Region: "table", What: fmt.Sprintf("%s: blocks at %d and %d exchanged", name, x.Offset, y.Offset), Files: func() damage.Files {
					c := bytes.Clone(b)
					n := int(x.Length) + 5
					copy(c[x.Offset:], b[y.Offset:int(y.Offset)+n])
					copy(c[y.Offset:], b[x.Offset:int(x.Offset)+n])
					f := maps.Clone(s.Files)
					f[name] = c
					return f
				}})
			}
		}
	}
	return cases
}
