package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/vfs"
)

// A snapshot is sent as the files of a database, numbers little-endian:
//
//	size  field
//	8     "siftsnp1"
//	8     index of the snapshot in the log; 0 if the sender does not know
//	8     index of the last command in it
//	8     index that the database holds
//	4     CRC-32C of all of the above
//
// and for each file
//
//	2     length of the name
//	n     name
//	8     length of the file
//	m     the file
//	4     CRC-32C of name and file
//
// A name length of 0 ends the stream. A reader rejects any other magic number, a wrong checksum,
// a name that a database's file cannot have, and missing or extra bytes.
//
// On the wire and in backups; do not change.
const (
	streamMagic     = "siftsnp1"
	streamHeaderLen = len(streamMagic) + 3*8 + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errStream is wrapped by every error about an invalid stream.
var errStream = errors.New("the snapshot is damaged")

// streamHeader identifies the part of the log that a snapshot represents.
type streamHeader struct {
	index   uint64 // the log index at which the snapshot ends; 0 if unknown
	applied uint64 // the last command in the snapshot
	held    uint64 // the index that the database holds; it differs from applied after a backup was restored
}

func appendHeader(dst []byte, h streamHeader) []byte {
	dst = append(dst, streamMagic...)
	for _, n := range []uint64{h.index, h.applied, h.held} {
		dst = binary.LittleEndian.AppendUint64(dst, n)
	}
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst, castagnoli))
}

func decodeHeader(src []byte) (h streamHeader, err error) {
	if len(src) != streamHeaderLen || string(src[:len(streamMagic)]) != streamMagic {
		return h, fmt.Errorf("%w: it does not begin with %s", errStream, streamMagic)
	}
	body, sum := src[:streamHeaderLen-4], binary.LittleEndian.Uint32(src[streamHeaderLen-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return h, fmt.Errorf("%w: wrong checksum of the header", errStream)
	}
	body = body[len(streamMagic):]
	h.index, h.applied, h.held = binary.LittleEndian.Uint64(body), binary.LittleEndian.Uint64(body[8:]), binary.LittleEndian.Uint64(body[16:])
	return h, nil
}

// streamSize returns how many bytes writeStream writes.
func streamSize(dir string) (int64, error) {
	names, err := dbFiles(dir)
	if err != nil {
		return 0, err
	}
	total := int64(streamHeaderLen) + 2
	for _, name := range names {
		size, err := vfs.OS.Size(filepath.Join(dir, name))
		if err != nil {
			return 0, err
		}
		total += 2 + int64(len(name)) + 8 + size + 4
	}
	return total, nil
}

// writeStream writes a database that is not open.
func writeStream(w io.Writer, h streamHeader, dir string) error {
	names, err := dbFiles(dir)
	if err != nil {
		return err
	}
	if _, err := w.Write(appendHeader(nil, h)); err != nil {
		return err
	}
	for _, name := range names {
		if err := writeStreamFile(w, dir, name); err != nil {
			return err
		}
	}
	_, err = w.Write([]byte{0, 0})
	return err
}

func writeStreamFile(w io.Writer, dir, name string) error {
	path := filepath.Join(dir, name)
	size, err := vfs.OS.Size(path)
	if err != nil {
		return err
	}
	f, err := vfs.OS.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	head := binary.LittleEndian.AppendUint16(nil, uint16(len(name)))
	head = append(head, name...)
	head = binary.LittleEndian.AppendUint64(head, uint64(size))
	if _, err := w.Write(head); err != nil {
		return err
	}
	sum := crc32.New(castagnoli)
	io.WriteString(sum, name)
	n, err := io.Copy(io.MultiWriter(w, sum), io.NewSectionReader(f, 0, size))
	if err != nil {
		return err
	}
	if n != size {
		return fmt.Errorf("%s has %d bytes of %d", path, n, size)
	}
	_, err = w.Write(binary.LittleEndian.AppendUint32(nil, sum.Sum32()))
	return err
}

// readStream writes the files of a stream to dir, which is empty, and syncs them.
func readStream(r io.Reader, dir string) (h streamHeader, err error) {
	var head [streamHeaderLen]byte
	if err := readFull(r, head[:]); err != nil {
		return h, err
	}
	if h, err = decodeHeader(head[:]); err != nil {
		return h, err
	}
	for {
		more, err := readStreamFile(r, dir)
		if err != nil {
			return h, err
		}
		if !more {
			break
		}
	}
	var extra [1]byte
	if n, err := r.Read(extra[:]); n > 0 || err != io.EOF {
		if n > 0 || err == nil {
			err = fmt.Errorf("%w: it has trailing bytes", errStream)
		}
		return h, err
	}
	return h, vfs.OS.SyncDir(dir)
}

func readStreamFile(r io.Reader, dir string) (more bool, err error) {
	var length [8]byte
	if err := readFull(r, length[:2]); err != nil {
		return false, err
	}
	n := binary.LittleEndian.Uint16(length[:])
	if n == 0 {
		return false, nil
	}
	name := make([]byte, n)
	if err := readFull(r, name); err != nil {
		return false, err
	}
	if !isDBFile(string(name)) {
		return false, fmt.Errorf("%w: %q is not a database file", errStream, name)
	}
	if err := readFull(r, length[:]); err != nil {
		return false, err
	}
	size := binary.LittleEndian.Uint64(length[:])
	if size > 1<<62 {
		return false, fmt.Errorf("%w: %s has %d bytes", errStream, name, size)
	}
	path := filepath.Join(dir, string(name))
	if _, err := vfs.OS.Size(path); err == nil {
		return false, fmt.Errorf("%w: %s occurs twice", errStream, name)
	}
	f, err := createDBFile(path)
	if err != nil {
		return false, err
	}
	sum := crc32.New(castagnoli)
	sum.Write(name)
	copied, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(r, int64(size)))
	if err == nil && uint64(copied) != size {
		err = fmt.Errorf("%w: it ends within %s", errStream, name)
	}
	if err == nil {
		err = readFull(r, length[:4])
	}
	if err == nil && binary.LittleEndian.Uint32(length[:]) != sum.Sum32() {
		err = fmt.Errorf("%w: wrong checksum of %s", errStream, name)
	}
	if err == nil {
		err = f.Sync()
	}
	return true, errors.Join(err, f.Close())
}

func readFull(r io.Reader, p []byte) error {
	_, err := io.ReadFull(r, p)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%w: it ends early", errStream)
	}
	return err
}

// isDBFile reports whether a file of that name is part of a database.
func isDBFile(name string) bool {
	kind, _, ok := manifest.ParseName(name)
	return ok && kind != manifest.KindLock && kind != manifest.KindInfoLog && kind != manifest.KindTemp
}

// dbFiles returns the names of a database's files.
func dbFiles(dir string) ([]string, error) {
	names, err := vfs.OS.List(dir)
	return slices.DeleteFunc(names, func(name string) bool { return !isDBFile(name) }), err
}

// createDBFile creates a file of a database; only the owner may read the secret of keyed filters.
func createDBFile(path string) (vfs.File, error) {
	f, err := vfs.OS.Create(path)
	if err != nil {
		return nil, err
	}
	if kind, _, _ := manifest.ParseName(filepath.Base(path)); kind == manifest.KindFilterKey {
		if err := os.Chmod(path, 0o600); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// linkDB copies a database that is not open. Tables, which never change, become hard links where
// the file system supports them.
func linkDB(from, to string) error {
	names, err := dbFiles(from)
	if err != nil {
		return err
	}
	for _, name := range names {
		kind, _, ok := manifest.ParseName(name)
		if ok && kind == manifest.KindTable && vfs.OS.Link(filepath.Join(from, name), filepath.Join(to, name)) == nil {
			continue
		}
		if err := copyFile(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return err
		}
	}
	return vfs.OS.SyncDir(to)
}

func copyFile(from, to string) error {
	size, err := vfs.OS.Size(from)
	if err != nil {
		return err
	}
	src, err := vfs.OS.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := createDBFile(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, io.NewSectionReader(src, 0, size))
	if err == nil {
		err = dst.Sync()
	}
	return errors.Join(err, dst.Close())
}
