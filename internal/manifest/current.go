package manifest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/vfs"
)

// CURRENT holds the base name of the current MANIFEST and a newline, nothing else. LevelDB and
// pebble accept no other form. On disk; do not change.
//
// Example: 4d 41 4e 49 46 45 53 54 2d 30 30 30 30 31 30 0a is MANIFEST-000010.

// maxCurrentLen exceeds the length of every valid CURRENT.
const maxCurrentLen = 64

func decodeCurrent(b []byte) (num uint64, err error) {
	name, ok := strings.CutSuffix(string(b), "\n")
	if !ok {
		return 0, errors.New("it does not end in a newline")
	}
	kind, num, ok := ParseName(name)
	if !ok || kind != KindManifest || name != MakeName(kind, num) {
		return 0, fmt.Errorf("%q names no MANIFEST", name)
	}
	return num, nil
}

// ErrNoDatabase reports a directory without a database: CURRENT is missing, and no other file
// holds data; see ReadCurrent.
var ErrNoDatabase = errors.New("no database in the directory")

// ReadCurrent returns the number of the MANIFEST that CURRENT names.
//
// If CURRENT is missing, the error matches ErrNoDatabase if the directory is missing, too, or holds
// no data: no table, no log with a byte in it, no MANIFEST that names a table. Otherwise it is a
// *base.CorruptionError: a new database must not be created over the remains of an old one. If
// CURRENT is missing or damaged, and another program has written a MANIFEST in the directory, the
// error matches base.ErrUnsupported.
func ReadCurrent(fsys vfs.FS, dir string) (num uint64, err error) {
	path := filepath.Join(dir, MakeName(KindCurrent, 0))
	b, err := readAll(fsys, path, maxCurrentLen)
	if errors.Is(err, fs.ErrNotExist) {
		found, err := findData(fsys, dir)
		if err != nil {
			return 0, err
		}
		if found == "" {
			return 0, fmt.Errorf("%s: %w", dir, ErrNoDatabase)
		}
		return 0, &base.CorruptionError{Path: path, Offset: -1, What: "CURRENT",
			Err: fmt.Errorf("the file is missing and %s exists; Repair can bring the database back", found)}
	}
	if damage := (*base.CorruptionError)(nil); errors.As(err, &damage) { // of the file system's own CURRENT
		return 0, badCurrent(fsys, dir, damage.Err)
	}
	if err != nil {
		return 0, err
	}
	num, err = decodeCurrent(b)
	if err != nil {
		return 0, badCurrent(fsys, dir, err)
	}
	return num, nil
}

// ErrNothingToRepair reports that CURRENT is damaged and that Repair finds no other file.
var ErrNothingToRepair = errors.New("there is nothing to repair: remove CURRENT to create a new database")

// badCurrent returns the error for a CURRENT that names no existing MANIFEST.
func badCurrent(fsys vfs.FS, dir string, cause error) error {
	names, err := fsys.List(dir)
	if err != nil {
		return err
	}
	if _, err := firstWithTables(fsys, dir, names); err != nil {
		return err
	}
	if slices.ContainsFunc(names, func(name string) bool { kind, _, ok := ParseName(name); return ok && kind.Repairable() }) {
		cause = fmt.Errorf("%w; Repair can bring the database back", cause)
	} else {
		cause = fmt.Errorf("%w; %w", cause, ErrNothingToRepair)
	}
	return &base.CorruptionError{Path: filepath.Join(dir, MakeName(KindCurrent, 0)), Offset: 0, What: "CURRENT", Err: cause}
}

// findData returns the name of a file in dir that holds data, or "". An interrupted creation of
// a database leaves a MANIFEST without tables and an empty log; these do not prevent another
// attempt.
func findData(fsys vfs.FS, dir string) (string, error) {
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	named, err := firstWithTables(fsys, dir, names)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		kind, _, ok := ParseName(name)
		if !ok {
			continue
		}
		switch kind {
		case KindTable, KindTableSST:
			return name, nil
		case KindLog:
			size, err := fsys.Size(filepath.Join(dir, name))
			if err != nil {
				return "", err
			}
			if size > 0 {
				return name, nil
			}
		}
	}
	return named, nil
}

// SetCurrent makes CURRENT name the MANIFEST, durably and atomically: it writes and syncs a
// temporary file, renames it, and syncs the directory. The MANIFEST and its directory entry
// must already be durable.
//
// After an error, switched is false if CURRENT is unchanged. If it is true, either name may
// be found after a crash, so both MANIFESTs must be kept.
func SetCurrent(fsys vfs.FS, dir string, num uint64) (switched bool, err error) {
	tmp := filepath.Join(dir, MakeName(KindTemp, num))
	if err := writeFile(fsys, tmp, MakeName(KindManifest, num)+"\n"); err != nil {
		_ = fsys.Remove(tmp) // the write's error is what matters
		return false, err
	}
	if err := fsys.Rename(tmp, filepath.Join(dir, MakeName(KindCurrent, 0))); err != nil {
		return true, err
	}
	return true, fsys.SyncDir(dir)
}

func writeFile(fsys vfs.FS, path, content string) error {
	f, err := fsys.Create(path)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, content)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// readAll returns the contents of a file, at most limit bytes.
func readAll(fsys vfs.FS, path string, limit int64) ([]byte, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.NewSectionReader(f, 0, limit))
	return b, errors.Join(err, f.Close())
}
