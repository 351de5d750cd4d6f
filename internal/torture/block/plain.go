//go:build linux

package block

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/siftdb/sift/internal/torture"
)

// plain is not a database but a control: records in one file after another, each file allocated
// before it is written to, with nothing but open, pwrite, fdatasync and fsync of the directory. If
// it loses something, the fault is in the file system or in this package.
var plain = engine{"plain", openPlain, true}

type plainStore struct {
	dir  string
	file *os.File
	num  int
	at   int64 // where the next record goes
}

const plainBytes = 64 << 10

func openPlain(dir string) (store, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := syncDir(filepath.Dir(dir)); err != nil {
		return nil, err
	}
	s := &plainStore{dir: dir}
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	if len(names) > 0 {
		if _, err := fmt.Sscanf(filepath.Base(names[len(names)-1]), "%06d.log", &s.num); err != nil {
			return nil, err
		}
	}
	return s, s.next()
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (s *plainStore) names() ([]string, error) {
	names, err := filepath.Glob(filepath.Join(s.dir, "*.log"))
	slices.Sort(names)
	return names, err
}

// next begins a file after syncing the previous one.
func (s *plainStore) next() error {
	if s.file != nil {
		if err := errors.Join(unix.Fdatasync(int(s.file.Fd())), s.file.Close()); err != nil {
			return err
		}
	}
	s.num++
	s.at = 0
	var err error
	if s.file, err = os.Create(filepath.Join(s.dir, fmt.Sprintf("%06d.log", s.num))); err != nil {
		return err
	}
	if err := unix.Fallocate(int(s.file.Fd()), 0, 0, plainBytes); err != nil {
		return err
	}
	return errors.Join(s.file.Sync(), syncDir(s.dir))
}

// Write implements store. A record is the length and the checksum of what follows, as JSON.
func (s *plainStore) Write(edits []torture.Edit, sync bool) error {
	payload, err := json.Marshal(edits)
	if err != nil {
		return err
	}
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(payload)))
	b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(payload))
	b = append(b, payload...)
	if s.at+int64(len(b)) > plainBytes || s.at > plainBytes/8 {
		if err := s.next(); err != nil {
			return err
		}
	}
	if _, err := s.file.WriteAt(b, s.at); err != nil {
		return err
	}
	s.at += int64(len(b))
	if sync {
		return unix.Fdatasync(int(s.file.Fd()))
	}
	return nil
}

// Contents implements store.
func (s *plainStore) Contents([]string) (map[string]string, error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	m := map[string]string{}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for len(b) >= 8 {
			n := binary.LittleEndian.Uint32(b)
			if n == 0 || uint64(n) > uint64(len(b)-8) || crc32.ChecksumIEEE(b[8:8+n]) != binary.LittleEndian.Uint32(b[4:]) {
				break
			}
			var edits []torture.Edit
			if err := json.Unmarshal(b[8:8+n], &edits); err != nil {
				return nil, err
			}
			for _, e := range edits {
				if e.Delete {
					delete(m, e.Key)
				} else {
					m[e.Key] = e.Value
				}
			}
			b = b[8+n:]
		}
	}
	return m, nil
}

func (s *plainStore) Tidy(int) (durable bool, err error) { return true, s.next() }

func (s *plainStore) Close() error {
	return errors.Join(unix.Fdatasync(int(s.file.Fd())), s.file.Close())
}
