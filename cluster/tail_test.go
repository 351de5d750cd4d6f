package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
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

// TestMulCRC: the checksum of two parts together follows from the checksums of both.
func TestMulCRC(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		data := make([]byte, r.IntN(20)*walFrame)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		words := r.IntN(len(data)/walFrame + 1)
		a, b := data[:len(data)-words*walFrame], data[len(data)-words*walFrame:]
		shift := crcOne
		for range words {
			shift = mulCRC(shift, crcWord)
		}
		sum := mulCRC(crc32.Checksum(a, castagnoli), shift) ^ crc32.Checksum(b, castagnoli)
		if want := crc32.Checksum(data, castagnoli); sum != want {
			t.Fatalf("%d and %d bytes: the checksum is %08x, want %08x", len(a), len(b), sum, want)
		}
	}
}

// TestLaterWrite: a complete write after an incomplete one is found in time proportional to the
// size of the file, even if each word looks like the beginning of an entry.
func TestLaterWrite(t *testing.T) {
	words := func(n int) []byte {
		return bytes.Repeat([]byte{walEntry, 0, 0, 0, 0, 0, 0, 0}, n)
	}
	commit := func(sum uint32) []byte {
		return binary.LittleEndian.AppendUint32([]byte{walCommit, 0, 0, 0}, sum)
	}
	write := append([]byte{walEntry, 0, 0, 0, 72, 0, 0, 0}, bytes.Repeat([]byte("x"), 72)...)
	data := append(words(1<<20), commit(1)...)
	end := len(data)
	data = append(append(data, write...), commit(crc32.Checksum(write, castagnoli))...)
	began := time.Now()
	if at := laterWrite(data, 0); at != end {
		t.Errorf("the write at %d is found at %d", end, at)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("that took %v", took)
	}
	if at := laterWrite(data[:len(data)-walFrame], 0); at != 0 {
		t.Errorf("a write without an end is found at %d", at)
	}
}

// TestSealedDamage: a changed byte in a sealed file is an error when the node starts.
func TestSealedDamage(t *testing.T) {
	g := newGroup(t, 1)
	g.config = noSnapshots
	if err := g.start(0); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		g.propose(t, fmt.Sprintf("k%d token%d-%s", i, i, strings.Repeat("x", 500)))
	}
	if err := g.stop(0); err != nil {
		t.Fatal(err)
	}
	paths := g.logFiles(t, 0)
	data, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	payload, written := bytes.Index(data, []byte("token3-")), len(bytes.TrimRight(data, "\x00"))
	if payload < 0 {
		t.Fatal("the entry is not in the first file")
	}
	end, _, index := walkWrites(data)
	for name, at := range map[string]int{
		"kind of an entry": walHeader, "length of an entry": walHeader + 4, "payload": payload,
		"index": index + walFrame, "kind of the end": end - walFrame, "last byte": written - 1,
	} {
		changed := bytes.Clone(data)
		changed[at] ^= 4
		if err := os.WriteFile(paths[0], changed, 0o644); err != nil {
			t.Fatal(err)
		}
		err, file := g.start(0), filepath.Base(paths[0])
		if !errors.Is(err, wal.ErrCorrupt) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", name, err)
		}
		if err := g.stop(0); err != nil {
			t.Error(err)
		}
	}
	if err := os.WriteFile(paths[0], data, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := g.start(0); err != nil {
		t.Fatal(err)
	}
	if list := g.list(t, "k3"); !strings.HasPrefix(list, "token3-") {
		t.Errorf("k3 is %q", list)
	}
	g.stopAll(t)
}

// logFiles returns the files of a node's log, of which there must be at least three.
func (g *group) logFiles(t *testing.T, i int) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(g.dir, string(g.servers[i].ID), "raft", "*.wal"))
	if err != nil || len(paths) < 3 {
		t.Fatal(paths, err)
	}
	return paths
}

// TestLogUnreadable: a node that cannot read its log stops.
func TestLogUnreadable(t *testing.T) {
	g := newGroup(t, 2)
	g.config, g.first = noSnapshots, g.servers[:1]
	if err := g.start(0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.stopAll(t) })
	for i := range 40 {
		g.propose(t, fmt.Sprintf("k%d %s", i, strings.Repeat("x", 500)))
	}
	if err := os.Truncate(g.logFiles(t, 0)[0], walHeader); err != nil {
		t.Fatal(err)
	}
	n := g.node(0)
	n.raft.AddNonvoter(g.servers[1].ID, g.servers[1].Address, 0, 0)
	if err := g.start(1); err != nil { // needs the whole log
		t.Fatal(err)
	}
	select {
	case <-n.fsm.Failed():
	case <-time.After(10 * time.Second):
		t.Fatal("the node keeps running")
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

// TestTailCommitWords: damage is an error even if all later writes contain words that look like the
// end of a write.
func TestTailCommitWords(t *testing.T) {
	dir := t.TempDir()
	l := openTail(t, dir)
	for i := range uint64(5) {
		if err := l.StoreLog(&raft.Log{Index: i + 1, Term: 1, Data: bytes.Repeat([]byte{3, 0, 0, 0}, 10)}); err != nil {
			t.Fatal(err)
		}
	}
	l.Close()
	paths, _ := filepath.Glob(filepath.Join(dir, "*.wal"))
	data, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	data[walHeader+walFrame+12] ^= 4 // the first write, which was acknowledged, as were all others
	if err := os.WriteFile(paths[0], data, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := tryTail(t, dir); !errors.Is(err, wal.ErrCorrupt) {
		t.Errorf("the log opens: %v", err)
	}
}

// TestUnreadableClose: a leader that cannot read its log can be closed.
func TestUnreadableClose(t *testing.T) {
	var nodes [2]*Node
	var members []raft.Server
	dirs := [2]string{t.TempDir(), t.TempDir()}
	for i := range nodes {
		m, err := ListenMux("127.0.0.1:0", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		trans, err := m.Transport(7, uint64(i), nil)
		if err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprintf("n%d", i)
		members = append(members, raft.Server{ID: raft.ServerID(id), Address: trans.LocalAddr()})
		o := Options{ID: id, Dir: dirs[i], Apply: appendApply, Transport: trans, DB: small(), Raft: noSnapshots(i)}
		if i == 0 {
			o.Bootstrap = members
		}
		if nodes[i], err = Open(o); err != nil {
			t.Fatal(err)
		}
	}
	n := nodes[0]
	eventually(t, func() error {
		return n.Do(t.Context(), func(r *raft.Raft) raft.Future { return r.AddVoter("n1", members[1].Address, 0, 0) })
	})
	for i := range 20 {
		if _, err := n.Propose(t.Context(), fmt.Appendf(nil, "k%d v", i)); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(300 * time.Millisecond) // the leader replicates with a pipeline now
	paths, err := filepath.Glob(filepath.Join(dirs[0], "raft", "*.wal"))
	if err != nil || len(paths) == 0 {
		t.Fatal(err)
	}
	for _, path := range paths {
		if err := os.Truncate(path, walHeader); err != nil { // or a failing disk
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, _ = n.Propose(ctx, []byte("k x")) // with or without an error
	select {
	case <-n.fsm.Failed():
	case <-time.After(10 * time.Second):
		t.Fatal("the node keeps running")
	}
	closed := make(chan struct{})
	go func() {
		_ = n.Close() // it has failed
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Fatal("Close does not return")
	}
	if err := nodes[1].Close(); err != nil {
		t.Error(err)
	}
}
