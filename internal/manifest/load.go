package manifest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/record"
	"github.com/siftdb/sift/internal/vfs"
)

// Load reads the MANIFEST that CURRENT names.
//
// It omits what may be the remains of one unfinished edit at the end, and reports that in
// State.Dropped. Errors match ErrNoDatabase (see ReadCurrent); base.ErrUnsupported for an
// unknown comparator or field, or a level out of range, in any MANIFEST of the directory if CURRENT
// names none; base.ErrCorruption for damage before a whole edit, for inconsistent edits, and for a
// missing or incomplete MANIFEST.
func Load(fsys vfs.FS, dir string) (*State, error) {
	num, err := ReadCurrent(fsys, dir)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, MakeName(KindManifest, num))
	l := loader{path: path, tree: NewTree(nil), state: &State{Num: num}}
	dropped, err := readEdits(fsys, path, l.add)
	if errors.Is(err, fs.ErrNotExist) {
		// Not wrapped: fs.ErrNotExist would suggest that the database is missing.
		return nil, badCurrent(fsys, dir, fmt.Errorf("it names %s, which does not exist", filepath.Base(path)))
	}
	if err != nil {
		return nil, err
	}
	l.state.Dropped = dropped
	return l.finish()
}

// loader applies edits.
type loader struct {
	path  string
	tree  *Tree
	state *State
	edits int
	last  int64 // offset of the last edit
	have  struct{ log, next, seq bool }
}

func (l *loader) add(e *Edit, offset int64) error {
	l.edits++
	l.last = offset
	s := l.state
	if e.LogNumber != nil {
		s.LogNumber, l.have.log = *e.LogNumber, true
	}
	if e.PrevLogNum != nil {
		s.PrevLogNum = *e.PrevLogNum
	}
	if e.NextFile != nil {
		s.NextFile, l.have.next = *e.NextFile, true
	}
	if e.LastSeq != nil {
		s.LastSeq, l.have.seq = *e.LastSeq, true
	}
	for _, p := range e.Pointers {
		if p.Level < NumLevels {
			s.Pointers[p.Level] = p.Key
		}
	}
	if err := l.tree.Apply(e); err != nil {
		return l.corruption(offset, err)
	}
	return nil
}

func (l *loader) finish() (*State, error) {
	s := l.state
	var missing error
	switch {
	case l.edits == 0:
		missing = errors.New("it holds no edit")
	case !l.have.log:
		missing = errors.New("no log number")
	case !l.have.next:
		missing = errors.New("no next file number")
	case !l.have.seq:
		missing = errors.New("no last sequence number")
	}
	if missing != nil {
		if s.Dropped != nil {
			missing = fmt.Errorf("%w; its end is lost: %w", missing, s.Dropped)
		}
		return nil, l.corruption(-1, missing)
	}
	var err error
	if s.Version, s.Deep, err = l.tree.finishDeep(); err != nil {
		return nil, l.corruption(l.last, err)
	}
	if s.Deep != nil {
		s.Pointers = [NumLevels][]byte{} // they belong to other levels
	}
	v := s.Version
	for _, n := range []uint64{s.Num, s.LogNumber, s.PrevLogNum} {
		s.NextFile = max(s.NextFile, n+1)
	}
	for _, tables := range v.Levels {
		for _, t := range tables {
			s.NextFile = max(s.NextFile, t.Num+1)
		}
	}
	return s, nil
}

func (l *loader) corruption(offset int64, err error) error {
	return &base.CorruptionError{Path: l.path, Offset: offset, What: "MANIFEST", Err: err}
}

// readEdits calls fn with the edits of a MANIFEST and their offsets, until fn returns an error.
// dropped says what was omitted at the end because it may be an unfinished edit.
func readEdits(fsys vfs.FS, path string, fn func(e *Edit, offset int64) error) (dropped, err error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := fsys.Size(path)
	if err != nil {
		return nil, err
	}
	r := record.NewReader(f, size, path)
	for {
		payload, offset, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		e, err := decodeOurs(payload)
		if errors.Is(err, base.ErrUnsupported) {
			return nil, fmt.Errorf("%s: edit at offset %d: %w", path, offset, err)
		}
		if err != nil {
			return nil, &base.CorruptionError{Path: path, Offset: offset, What: "MANIFEST edit", Err: err}
		}
		if err := fn(e, offset); err != nil {
			return nil, err
		}
	}
	tail := r.Tail()
	if tail.Kind == record.Damaged {
		// Each edit is synced before the next is written. So a whole record after the damage proves
		// that the damaged one was not the last; mere chunks may belong to the unfinished edit
		// itself.
		whole := false
		var foreign error
		err := r.Salvage(func(payload []byte, offset int64) bool {
			whole = true
			if _, err := decodeOurs(payload); errors.Is(err, base.ErrUnsupported) {
				foreign = fmt.Errorf("%s: edit at offset %d: %w", path, offset, err)
			}
			return foreign == nil
		})
		if err = errors.Join(err, foreign); err != nil {
			return nil, err
		}
		if whole {
			return nil, tail.Err
		}
	}
	return tail.Err, nil
}

// decodeOurs decodes an edit. The error matches base.ErrUnsupported if it is that of another
// program, or for another comparator.
func decodeOurs(payload []byte) (*Edit, error) {
	e, err := DecodeEdit(payload)
	if err == nil && e.Comparator != nil && *e.Comparator != comparatorName {
		err = fmt.Errorf("comparator %q instead of %q: %w", *e.Comparator, comparatorName, base.ErrUnsupported)
	}
	return e, err
}

// firstWithTables returns the name of the first MANIFEST, of the files in a directory, whose
// readable part names a table, "" if there is none. The error matches base.ErrUnsupported if
// another program has written one of the MANIFESTs. pebble, for example, keeps no CURRENT, or lets
// it name a MANIFEST that does not exist.
func firstWithTables(fsys vfs.FS, dir string, names []string) (first string, err error) {
	for _, name := range names {
		if kind, _, ok := ParseName(name); !ok || kind != KindManifest {
			continue
		}
		_, err := readEdits(fsys, filepath.Join(dir, name), func(e *Edit, _ int64) error {
			if first == "" && len(e.Added) > 0 {
				first = name
			}
			return nil
		})
		if err != nil && !errors.Is(err, base.ErrCorruption) {
			return "", err
		}
	}
	return first, nil
}
