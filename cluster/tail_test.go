package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
)

// tailOf makes a log of five writes of one entry each, and returns its directory, its file,
// the file's contents, and where each write ends.
func tailOf(t *testing.T) (dir, path string, data []byte, ends []int) {
	t.Helper()
	dir = t.TempDir()
	l := openTail(t, dir)
	for i := range uint64(5) {
		if err := l.StoreLog(&raft.Log{Index: i + 1, Term: 1, Data: fmt.Appendf(nil, "entry %d", i+1)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil || len(paths) != 1 {
		t.Fatal(paths, err)
	}
	if data, err = os.ReadFile(paths[0]); err != nil {
		t.Fatal(err)
	}
	for at := walHeader; data[at] != 0; at += walFrame {
		if data[at] == walCommit {
			ends = append(ends, at+walFrame)
		} else {
			at += (int(binary.LittleEndian.Uint32(data[at+4:])) + 7) / 8 * 8
		}
	}
	if len(ends) != 5 {
		t.Fatal(ends)
	}
	return dir, paths[0], data, ends
}

func openTail(t *testing.T, dir string) *log {
	t.Helper()
	l, err := tryTail(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func tryTail(t *testing.T, dir string) (*log, error) {
	return openLog(dir, 4<<10, hclog.NewNullLogger(), func(most uint64) (uint64, int64) { return most, 0 }, func(err error) { t.Error(err) })
}

// TestTail: a log can be opened and appended to after an incomplete write, and if its last file is
// sealed.
func TestTail(t *testing.T) {
	frames := func(kind byte) []byte { return bytes.Repeat([]byte{kind, 0, 0, 0, 0, 0, 0, 0}, 100) }
	for name, change := range map[string]func(data []byte, ends []int) (last uint64){
		"an index is left": func(data []byte, ends []int) uint64 { copy(data[ends[4]:], frames(walIndex)); return 5 },
		"entries are left": func(data []byte, ends []int) uint64 { copy(data[ends[4]:], frames(walEntry)); return 5 },
		"ends are left":    func(data []byte, ends []int) uint64 { copy(data[ends[4]:], frames(walCommit)); return 5 },
		"entries and ends": func(data []byte, ends []int) uint64 {
			copy(data[ends[4]:], append(frames(walEntry)[:8], frames(walCommit)[:16]...))
			return 5
		},
		"the last write is cut": func(data []byte, ends []int) uint64 { clear(data[ends[4]-24:]); return 4 },
		"nothing is complete":   func(data []byte, ends []int) uint64 { clear(data[ends[0]:]); data[40] ^= 1; return 0 },
		"the file is sealed": func(data []byte, ends []int) uint64 {
			at, begin := ends[4]-walFrame, ends[3]
			copy(data[at:], []byte{walIndex, 0, 0, 0, 20, 0, 0, 0})
			for i := range 5 {
				offset := walHeader
				if i > 0 {
					offset = ends[i-1]
				}
				binary.LittleEndian.PutUint32(data[at+walFrame+4*i:], uint32(offset))
			}
			end := at + walFrame + 24
			copy(data[end:], []byte{walCommit, 0, 0, 0})
			binary.LittleEndian.PutUint32(data[end+4:], crc32.Checksum(data[begin:end], castagnoli))
			return 5
		},
		"the file is sealed without an entry": func(data []byte, ends []int) uint64 {
			at := ends[4]
			copy(data[at:], []byte{walIndex, 0, 0, 0, 20, 0, 0, 0})
			end := at + walFrame + 24
			copy(data[end:], []byte{walCommit, 0, 0, 0})
			binary.LittleEndian.PutUint32(data[end+4:], crc32.Checksum(data[at:end], castagnoli))
			return 5
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, path, data, ends := tailOf(t)
			last := change(data, ends)
			if err := os.WriteFile(path, data, 0o644); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				l := openTail(t, dir)
				if at, err := l.LastIndex(); err != nil || at != last {
					t.Fatalf("the log ends with %d (%v), want %d", at, err, last)
				}
				last++
				if err := l.StoreLog(&raft.Log{Index: last, Term: 1, Data: fmt.Appendf(nil, "entry %d", last)}); err != nil {
					t.Fatal(err)
				}
				for i := uint64(1); i <= last; i++ {
					var entry raft.Log
					if err := l.GetLog(i, &entry); err != nil || entry.Index != i || string(entry.Data) != fmt.Sprintf("entry %d", i) {
						t.Fatalf("entry %d: %+v, %v", i, entry, err)
					}
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestTailDamage: a changed byte is an error in any write but the last, where it cannot be
// distinguished from an incomplete write.
func TestTailDamage(t *testing.T) {
	dir, path, data, ends := tailOf(t)
	for at := range ends[3] {
		changed := bytes.Clone(data)
		changed[at] ^= 4
		if err := os.WriteFile(path, changed, 0o644); err != nil {
			t.Fatal(err)
		}
		if l, err := tryTail(t, dir); !errors.Is(err, wal.ErrCorrupt) {
			if err == nil {
				err = l.Close()
			}
			t.Fatalf("byte %d: %v", at, err)
		}
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, changed) {
			t.Fatalf("byte %d: the file was changed (%v)", at, err)
		}
	}
}

// TestLogFails: a node whose log has failed stops, and writes nothing more to it.
func TestLogFails(t *testing.T) {
	g := newGroup(t, 1)
	if err := g.start(0); err != nil {
		t.Fatal(err)
	}
	defer g.stop(0)
	g.propose(t, "k v")
	n := g.node(0)
	last, _ := n.log.LastIndex()
	if err := n.log.StoreLog(&raft.Log{Index: last + 7}); err == nil {
		t.Fatal("the log accepts entries with a gap")
	}
	select {
	case <-n.fsm.Failed():
	case <-time.After(10 * time.Second):
		t.Fatal("the node keeps running")
	}
	if err := n.log.StoreLog(&raft.Log{Index: last + 1}); err == nil {
		t.Error("a log that has failed accepts an entry")
	}
}
