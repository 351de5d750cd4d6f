package sift

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/vfs"
)

// FILTERKEY is the file with the secret of a database's keyed filters. Only its owner may
// read it. It has 28 bytes:
//
//	offset  size  field
//	0       8     "siftkey1"
//	8       16    the secret
//	24      4     masked CRC-32C of the bytes before it, little-endian
//
// The secret 00 01 .. 0f is stored as
//
//	73 69 66 74 6b 65 79 31  00 01 02 03 04 05 06 07
//	08 09 0a 0b 0c 0d 0e 0f  c6 cb 24 ce
//
// Any other length, magic or checksum is damage. Only the speed of lookups depends on the
// file: without it keyed filters are not probed, until compactions build new ones. A file that
// exists but may not be read is not replaced. On disk; do not change.
const (
	filterKeyMagic = "siftkey1"
	filterKeyLen   = len(filterKeyMagic) + len(filter.Secret{}) + 4
)

func appendFilterKey(dst []byte, s filter.Secret) []byte {
	start := len(dst)
	dst = append(append(dst, filterKeyMagic...), s[:]...)
	sum := base.Checksum(dst[start:])
	return append(dst, byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24))
}

var errFilterKey = errors.New("not the secret of keyed filters")

func decodeFilterKey(b []byte) (s filter.Secret, err error) {
	if len(b) != filterKeyLen {
		return s, fmt.Errorf("%w: %d bytes", errFilterKey, len(b))
	}
	copy(s[:], b[len(filterKeyMagic):])
	if string(appendFilterKey(nil, s)) != string(b) {
		return filter.Secret{}, errFilterKey
	}
	return s, nil
}

// openFilterKey reads the database's secret. If it is missing or damaged, and
// Options.KeyedFilters is set, it creates one, unless the database is opened read-only. If there
// is a secret, it replaces the policies of the options by keyed ones, where they can be keyed.
func (d *DB) openFilterKey() error {
	path := filepath.Join(d.dir, manifest.MakeName(manifest.KindFilterKey, 0))
	secret, err := readFilterKey(d.fs, path)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrPermission):
		d.filterKeyErr = err
		d.opts.Logger.Warn("the secret of keyed filters cannot be read: filters keyed with it are ignored", "err", err)
		if d.opts.KeyedFilters {
			// No filters are better than filters whose false positives an adversary can predict.
			for i := range d.opts.LevelFilters {
				d.opts.LevelFilters[i] = filter.None()
			}
			d.opts.RangeFilter = nil
		}
		return nil
	case errors.Is(err, ErrCorruption) || errors.Is(err, fs.ErrNotExist):
		if errors.Is(err, ErrCorruption) {
			d.filterKeyErr = err
			d.opts.Logger.Warn("the secret of keyed filters is damaged", "err", err)
		}
		if !d.opts.KeyedFilters || d.opts.ReadOnly {
			return nil
		}
		rand.Read(secret[:]) // never fails
		if err := writeFilterKey(d.fs, d.dir, secret); err != nil {
			return err
		}
	default:
		return err
	}
	d.secret = &secret
	d.opts.FilterReaders = slices.Concat(d.opts.FilterReaders, filter.KeyedReaders(secret))
	if p := d.opts.RangeFilter; p != nil {
		if keyed, err := filter.KeyedRange(p, secret); err == nil {
			d.opts.RangeFilter = keyed
		}
		d.opts.rangeReaders = append(d.opts.rangeReaders, d.opts.RangeFilter)
	}
	for i, p := range d.opts.LevelFilters {
		if keyed, err := filter.Keyed(p, secret); err == nil {
			d.opts.LevelFilters[i] = keyed
		}
	}
	return nil
}

func readFilterKey(fsys vfs.FS, path string) (s filter.Secret, err error) {
	f, err := fsys.Open(path)
	if err != nil {
		return s, err
	}
	b, err := io.ReadAll(io.NewSectionReader(f, 0, int64(filterKeyLen)+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return s, err
	}
	if s, err = decodeFilterKey(b); err != nil {
		err = &CorruptionError{Path: path, Offset: 0, What: "filter key", Err: err}
	}
	return s, err
}

// writeFilterKey writes a secret to FILTERKEY in a directory, atomically and durably.
func writeFilterKey(fsys vfs.FS, dir string, s filter.Secret) error {
	tmp := filepath.Join(dir, manifest.MakeName(manifest.KindTemp, 0))
	f, err := vfs.CreatePrivate(fsys, tmp)
	if err != nil {
		return err
	}
	_, err = f.Write(appendFilterKey(nil, s))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = fsys.Rename(tmp, filepath.Join(dir, manifest.MakeName(manifest.KindFilterKey, 0)))
	}
	if err != nil {
		_ = fsys.Remove(tmp) // err is more important
		return err
	}
	return fsys.SyncDir(dir)
}

// lookupKey returns a key with its hash for memtables and filters, keyed with the database's secret
// if it has one.
func lookupKey(secret *filter.Secret, key []byte) filter.Key {
	if secret != nil {
		return filter.Key{Bytes: key, Hash: secret.Hash(key)}
	}
	return filter.NewKey(key)
}

// mayContain probes a table's filter for the key.
func (l *lookup) mayContain(f filter.Reader) bool {
	if !l.keyed {
		return f.MayContain(l.key)
	}
	if k, ok := f.(interface{ MayContainHash(hash uint64) bool }); ok {
		return k.MayContainHash(l.key.Hash)
	}
	return f.MayContain(filter.NewKey(l.key.Bytes)) // the table was written before there was a secret
}
