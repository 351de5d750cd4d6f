package wal

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"syscall"
	"testing"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/record"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// fixture writes logs in memory, one key per batch.
type fixture struct {
	t      *testing.T
	config Config
	w      *Writer
	seq    uint64 // of the last entry
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t}
	nums := uint64(0)
	f.config = Config{
		FS: vfs.NewRAM(), Logger: slog.New(slog.DiscardHandler),
		NextNum: func() uint64 { nums++; return nums },
		NextSeq: func() uint64 { return f.seq + 1 },
		Later:   func(task func()) { task() },
	}
	l, err := Create(&f.config, 1)
	if err != nil {
		t.Fatal(err)
	}
	f.w = NewWriter(l)
	return f
}

// write writes n batches.
func (f *fixture) write(n int, sync bool) {
	f.t.Helper()
	for range n {
		if err := f.w.Check(); err != nil {
			f.t.Fatal(err)
		}
		b := AppendBatchHeader(nil, f.seq+1, 1)
		b = fmt.Appendf(append(b, 1, 3), "k%02d", (f.seq+1)%100)
		if _, err := f.w.Write(f.seq, [][]byte{b, {1, 'v'}}, sync); err != nil {
			f.t.Fatal(err)
		}
		f.seq++
	}
}

// rotate continues in another log. No log is created ahead.
func (f *fixture) rotate() *Sealed {
	f.t.Helper()
	s, err := f.w.Rotate(f.seq, true)
	if err != nil {
		f.t.Fatal(err)
	}
	f.w.dropSpare() // its number would depend on when it is created
	return s
}

// cut removes the last n bytes of a log; with flip, it changes the byte before them instead.
func (f *fixture) cut(num uint64, n int64, flip bool) {
	f.t.Helper()
	path := f.config.path(num)
	size, err := f.config.FS.Size(path)
	if err != nil {
		f.t.Fatal(err)
	}
	in, err := f.config.FS.Open(path)
	if err != nil {
		f.t.Fatal(err)
	}
	data := make([]byte, size)
	if _, err := in.ReadAt(data, 0); err != nil && err != io.EOF {
		f.t.Fatal(err)
	}
	in.Close()
	if flip {
		data[size-n-1] ^= 1
	} else {
		data = data[:size-n]
	}
	out, err := f.config.FS.Create(path)
	if err == nil {
		_, err = out.Write(data)
		err = errors.Join(err, out.Close())
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// replay returns the sequence numbers of the entries that recovery finds.
func (f *fixture) replay() (seqs []uint64, r *Recovery, err error) {
	f.t.Helper()
	names, err := f.config.FS.List(".")
	if err != nil {
		f.t.Fatal(err)
	}
	logs, missing, err := f.config.Find(&manifest.State{LogNumber: 1}, names)
	if err != nil || missing != nil {
		f.t.Fatal(missing, err)
	}
	r = &Recovery{Config: f.config, Apply: func(payload []byte) error {
		_, _, err := DecodeBatch(payload, func(seq uint64, _ base.Kind, key, _ []byte) error {
			if want := fmt.Sprintf("k%02d", seq%100); string(key) != want {
				f.t.Errorf("key %q at sequence %d", key, seq)
			}
			seqs = append(seqs, seq)
			return nil
		})
		return err
	}}
	for _, num := range logs {
		if err := r.Replay(num); err != nil {
			return seqs, r, err
		}
	}
	return seqs, r, nil
}

func upTo(n uint64) (seqs []uint64) {
	for seq := uint64(1); seq <= n; seq++ {
		seqs = append(seqs, seq)
	}
	return seqs
}

// TestReplay checks that the writes in several logs are replayed in order.
func TestReplay(t *testing.T) {
	f := newFixture(t)
	f.write(3, false)
	f.rotate()
	f.write(3, true)
	f.rotate().Flushed()
	f.write(3, false)
	if err := f.w.Close(); err != nil {
		t.Fatal(err)
	}
	seqs, r, err := f.replay()
	if err != nil || !slices.Equal(seqs, upTo(9)) || r.LastSeq != 9 || r.Batches != 9 || r.Logs < 3 || r.Torn != nil {
		t.Errorf("entries %d, %+v, %v", seqs, r, err)
	}
}

// TestTornEnd checks that a torn end is cut off, unless a durability marker proves that it had been
// synced: then it is damage.
func TestTornEnd(t *testing.T) {
	for _, tt := range []struct {
		name          string
		before, after []bool // whether each batch of the first and of the second log is synced
		log           uint64
		lost          int64 // bytes
		flip          bool
		want          uint64 // the last entry that is found; 0: damage
	}{
		{name: "the last batch, cut", before: []bool{true, false}, log: 1, lost: 1, want: 1},
		{name: "the last batch, flipped", before: []bool{true, false}, log: 1, flip: true, want: 1},
		{name: "a batch that a marker proves", before: []bool{true, true}, log: 1, lost: 60, flip: true},
		{name: "a gap before a log that proves nothing", before: []bool{false, false}, after: []bool{false}, log: 1, lost: 1, want: 1},
		{name: "a gap before a log that was synced twice", before: []bool{false, false}, after: []bool{true, true}, log: 1, lost: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			for _, sync := range tt.before {
				f.write(1, sync)
			}
			if tt.after != nil {
				f.rotate()
				for _, sync := range tt.after {
					f.write(1, sync)
				}
			}
			f.cut(tt.log, tt.lost, tt.flip)
			seqs, r, err := f.replay()
			var damage *base.CorruptionError
			switch {
			case tt.want == 0 && !errors.As(err, &damage):
				t.Errorf("entries %d, %v; want damage", seqs, err)
			case tt.want == 0 && damage.Path == "":
				t.Errorf("no path: %v", err)
			case tt.want != 0 && (err != nil || !slices.Equal(seqs, upTo(tt.want)) || len(r.Torn) != 1):
				t.Errorf("entries %d, %d torn, %v; want %d", seqs, len(r.Torn), err, upTo(tt.want))
			}
		})
	}
}

// TestSealed checks that a log is finished by a later write that is synced, or by Flushed, and not
// before.
func TestSealed(t *testing.T) {
	f := newFixture(t)
	f.write(1, false)
	first := f.rotate()
	f.write(1, false)
	if first.finished.Load() || len(f.w.sealed) != 1 {
		t.Fatal("finished before anything was synced")
	}
	f.write(1, true)
	if !first.finished.Load() || len(f.w.sealed) != 0 {
		t.Fatal("not finished by a write that was synced")
	}
	second := f.rotate()
	second.Flushed()
	if err := f.w.Check(); err != nil || len(f.w.sealed) != 0 {
		t.Fatal("not finished by Flushed", err)
	}
	if err := f.w.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestDecodeBatch decodes the example of the format, and rejects prefixes and changes of it.
func TestDecodeBatch(t *testing.T) {
	example := []byte{7, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 1, 'a', 2, 'x', 'y', 0, 1, 'b'}
	var got []string
	first, count, err := DecodeBatch(example, func(seq uint64, kind base.Kind, key, value []byte) error {
		got = append(got, fmt.Sprintf("%d %d %s=%s", seq, kind, key, value))
		return nil
	})
	if want := []string{"7 1 a=xy", "8 0 b="}; err != nil || first != 7 || count != 2 || !slices.Equal(got, want) {
		t.Errorf("%d, %d, %q, %v", first, count, got, err)
	}
	for n := range example {
		if _, _, err := DecodeBatch(example[:n], nil); err == nil {
			t.Errorf("the first %d bytes are a batch", n)
		}
	}
	tooLarge := AppendBatchHeader(nil, base.MaxSequence+2, 0)
	if _, _, err := DecodeBatch(tooLarge, nil); err == nil {
		t.Error("a sequence number beyond the maximum is accepted")
	}
	for _, at := range []int{8, 12} { // the count, a kind
		wrong := slices.Clone(example)
		wrong[at] += 2
		if _, _, err := DecodeBatch(wrong, nil); err == nil {
			t.Errorf("byte %d changed: still a batch", at)
		}
	}
}

// flip changes a byte of a log.
func (f *fixture) flip(num uint64, at int64) {
	f.t.Helper()
	size, err := f.config.FS.Size(f.config.path(num))
	if err != nil {
		f.t.Fatal(err)
	}
	f.cut(num, size-1-at, true)
}

// TestReplayReadErrors fails each operation of the replay of logs that are longer than a block, one
// of which is torn: the error is that of the disk, and no entries are missing without one.
func TestReplayReadErrors(t *testing.T) {
	const n = 3000 // some 100 KiB
	for name, prepare := range map[string]func(f *fixture){
		"a gap before a log that proves nothing": func(f *fixture) {
			f.write(n, false)
			f.rotate()
			f.write(n, false)
			f.cut(1, 1, false)
		},
		"the same, and damage in that log": func(f *fixture) {
			f.write(n, false)
			f.rotate()
			f.write(n, false)
			f.cut(1, 1, false)
			f.flip(2, 1000)
		},
	} {
		f := newFixture(t)
		prepare(f)
		want, _, err := f.replay()
		if err != nil || len(want) != n-1 {
			t.Fatalf("%s: %d entries, %v", name, len(want), err)
		}
		failures, fs := 0, f.config.FS
		for at := range 100 {
			faulty := vfstest.Inject(fs)
			f.config.FS = faulty
			faulty.SetFaults(vfstest.Fault{Index: at, Match: func(op vfstest.Op) bool { return op.Kind == vfstest.OpReadAt }})
			seqs, _, err := f.replay()
			if len(faulty.Failed()) == 0 {
				continue
			}
			if failures++; !errors.Is(err, syscall.EIO) {
				t.Errorf("%s: operation %d fails: %d entries, %v", name, at, len(seqs), err)
			}
		}
		if failures < 6 {
			t.Errorf("%s: only %d reads", name, failures)
		}
	}
}

// foreign writes a log as LevelDB does, without a marker at its beginning, with one batch of one
// entry.
func (f *fixture) foreign() (num uint64) {
	f.t.Helper()
	f.seq++
	b := fmt.Appendf(append(AppendBatchHeader(nil, f.seq, 1), 1, 3), "k%02d", f.seq%100)
	return f.raw(append(b, 1, 'v'))
}

// raw writes a log with one record.
func (f *fixture) raw(payload []byte) (num uint64) {
	f.t.Helper()
	num = f.config.NextNum()
	out, err := f.config.FS.Create(f.config.path(num))
	if err != nil {
		f.t.Fatal(err)
	}
	if err := errors.Join(record.NewWriter(out).Append(payload), out.Close()); err != nil {
		f.t.Fatal(err)
	}
	return num
}

// TestForeignLogs checks logs of other engines: the torn end of a log is damage if a later log has
// entries, or proves that there were more.
func TestForeignLogs(t *testing.T) {
	for _, tt := range []struct {
		name    string
		prepare func(f *fixture)
		damaged uint64 // the log that the error names; 0: no error
	}{
		{"a torn log of sift, and one of LevelDB", func(f *fixture) {
			f.write(2, false)
			f.cut(1, 1, false)
			f.foreign()
		}, 1},
		{"a torn log of sift, and one that begins with no batch", func(f *fixture) {
			f.write(2, false)
			f.cut(1, 1, false)
			f.raw([]byte("this is not a batch, but long"))
		}, 1},
		{"a torn log of LevelDB, and an unused one of sift", func(f *fixture) {
			f.foreign()
			num := f.foreign()
			f.cut(num, 1, false)
			f.unused(f.seq + 1)
		}, 3},
		{"a torn log of LevelDB, and an unused one that proves nothing", func(f *fixture) {
			f.foreign()
			num := f.foreign()
			f.cut(num, 1, false)
			f.unused(f.seq)
		}, 0},
	} {
		f := newFixture(t)
		tt.prepare(f)
		seqs, _, err := f.replay()
		var damage *base.CorruptionError
		switch {
		case tt.damaged == 0 && err != nil:
			t.Errorf("%s: entries %d, %v", tt.name, seqs, err)
		case tt.damaged != 0 && (!errors.As(err, &damage) || damage.Path != f.config.path(tt.damaged)):
			t.Errorf("%s: entries %d, %v; want an error in log %d", tt.name, seqs, err, tt.damaged)
		}
	}
}

// unused creates a log whose entries would begin at a sequence number.
func (f *fixture) unused(nextSeq uint64) {
	f.t.Helper()
	l, err := Create(&f.config, nextSeq)
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// TestUnusedLogProves checks that a log without entries shows that those before its first sequence
// number are missing.
func TestUnusedLogProves(t *testing.T) {
	f := newFixture(t)
	if err := f.config.FS.Remove(f.config.path(1)); err != nil {
		t.Fatal(err)
	}
	r := &Recovery{Config: f.config}
	f.unused(5)
	var damage *base.CorruptionError
	if err := r.Replay(2); !errors.As(err, &damage) || r.Batches != 0 {
		t.Errorf("%d batches, %v", r.Batches, err)
	}
}

// TestWriteErrors checks that a write reports that the disk has failed, for the log or for an
// earlier one, and that a log that cannot be created ahead is created later.
func TestWriteErrors(t *testing.T) {
	on := func(f *fixture, kind vfstest.OpKind, num uint64) vfstest.Fault {
		return vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool {
			return op.Kind == kind && op.Name == f.config.path(num)
		}}
	}
	begin := func() (*fixture, *vfstest.Faulty) {
		f := newFixture(t)
		faulty := vfstest.Inject(f.config.FS)
		f.config.FS = faulty
		l, err := Create(&f.config, 1)
		if err != nil {
			t.Fatal(err)
		}
		f.w.Replace(l)
		return f, faulty
	}
	batch := func(f *fixture) [][]byte {
		return [][]byte{append(AppendBatchHeader(nil, f.seq+1, 1), 1, 0, 0)}
	}

	f, faulty := begin()
	faulty.SetFaults(on(f, vfstest.OpWrite, 2))
	for range 2 { // the writer does not continue after an error
		if _, err := f.w.Write(f.seq, batch(f), false); !errors.Is(err, syscall.EIO) {
			t.Errorf("a write fails: %v", err)
		}
	}
	faulty.SetFaults()

	f, faulty = begin()
	f.write(1, false)
	f.rotate()
	faulty.SetFaults(on(f, vfstest.OpSync, 2))
	if _, err := f.w.Write(f.seq, batch(f), true); !errors.Is(err, syscall.EIO) {
		t.Errorf("the sync of the previous log fails: %v", err)
	}

	f, faulty = begin()
	f.write(1, false)
	faulty.SetFaults(on(f, vfstest.OpCreate, 4))
	if _, err := f.w.Rotate(f.seq, true); err != nil {
		t.Fatal(err)
	}
	<-f.w.spare.done
	f.write(1, false)
	if _, err := f.w.Rotate(f.seq, false); err != nil {
		t.Errorf("after a log could not be created ahead: %v", err)
	}
	f.write(1, true)
	faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool { return op.Kind == vfstest.OpRemove }})
	l, err := Create(&f.config, f.seq+1)
	if err != nil {
		t.Fatal(err)
	}
	l.Discard() // only logs that it cannot remove the file
	if err := f.w.Close(); err != nil {
		t.Error(err)
	}
}

type panicFS struct {
	vfs.FS
	armed *bool
}

type panicFile struct {
	vfs.File
	armed *bool
}

func (p panicFS) Create(name string) (vfs.File, error) {
	f, err := p.FS.Create(name)
	return panicFile{f, p.armed}, err
}

func (f panicFile) Sync() error {
	if *f.armed {
		panic("sync")
	}
	return f.File.Sync()
}

// TestSyncPanics checks that no write with Sync is acknowledged after the sync of an earlier log
// panicked.
func TestSyncPanics(t *testing.T) {
	f := newFixture(t)
	armed := false
	f.config.FS = panicFS{f.config.FS, &armed}
	l, err := Create(&f.config, 1)
	if err != nil {
		t.Fatal(err)
	}
	f.w = NewWriter(l)
	f.write(1, false)
	f.rotate()
	armed = true
	func() {
		defer func() { recover() }()
		f.w.SyncSealed()
	}()
	armed = false
	err = f.w.Check()
	if err == nil {
		b := append(AppendBatchHeader(nil, f.seq+1, 1), 1, 1, 'k', 1, 'v')
		_, err = f.w.Write(f.seq, [][]byte{b}, true)
	}
	if err == nil {
		t.Error("a write with Sync is acknowledged, but the log before it is not on disk")
	}
}
