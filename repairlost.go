package sift

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/vfs"
)

// lostDir is the directory to which Repair moves old files. It links them there, durably, before
// CURRENT names the new MANIFEST, and removes the old names afterwards: until then the old
// database needs them, and from then on the next Open removes them as orphans.
const lostDir = "lost"

// keepOld links the files that the repaired database replaces into lost.
func (r *repairer) keepOld() error {
	d := r.db
	lost := filepath.Join(d.dir, lostDir)
	if err := d.fs.MkdirAll(lost); err != nil {
		return err
	}
	for _, name := range r.old {
		to := filepath.Join(lost, name)
		for n := d.nextFile.Load(); ; n++ {
			if _, err := d.fs.Size(to); errors.Is(err, fs.ErrNotExist) {
				break
			} else if err != nil {
				return err
			}
			to = filepath.Join(lost, fmt.Sprintf("%s.%d", name, n)) // an earlier repair has used the name
		}
		from := filepath.Join(d.dir, name)
		if err := d.fs.Link(from, to); err != nil {
			// The file system may not support links.
			if cerr := copyFile(d.fs, from, to); cerr != nil {
				return errors.Join(err, cerr)
			}
		}
		r.created = append(r.created, to)
	}
	return d.fs.SyncDir(lost) // newManifest syncs the directory that lost is in, before CURRENT changes
}

// removeOld removes the old names. If it fails, the next Open removes them.
func (r *repairer) removeOld() {
	for _, name := range r.old {
		r.db.removeObsolete(filepath.Join(r.db.dir, name))
	}
}

// removeNew removes the files that a failed repair has written, including the links or copies of
// old files in lost. The next repair would read the others, and move them to lost.
func (r *repairer) removeNew() {
	for _, path := range r.created {
		r.db.removeObsolete(path)
	}
}

// copyFile copies a file durably, except for its directory entry. The copy appears under its name
// only when it is complete.
func copyFile(fsys vfs.FS, from, to string) (err error) {
	size, err := fsys.Size(from)
	if err != nil {
		return err
	}
	in, err := fsys.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	tmp := filepath.Join(filepath.Dir(to), manifest.MakeName(manifest.KindTemp, 0))
	out, err := fsys.Create(tmp)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.NewSectionReader(in, 0, size))
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err == nil {
		err = fsys.Rename(tmp, to)
	}
	if err != nil {
		_ = fsys.Remove(tmp) // err is more important
	}
	return err
}
