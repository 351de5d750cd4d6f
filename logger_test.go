package sift

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// TestMain keeps warnings about intentionally damaged databases out of the tests'
// output.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// logged collects the output of a logger, for several goroutines.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// editFile replaces the bytes of the longest file of a kind.
func editFile(t *testing.T, fs vfs.FS, kind manifest.FileKind, edit func(b []byte) []byte) {
	t.Helper()
	names, err := fs.List("db")
	if err != nil {
		t.Fatal(err)
	}
	var path string
	var size int64
	for _, name := range names {
		if k, _, ok := manifest.ParseName(name); !ok || k != kind {
			continue
		}
		n, err := fs.Size(filepath.Join("db", name))
		if err != nil {
			t.Fatal(err)
		}
		if n > size {
			path, size = filepath.Join("db", name), n
		}
	}
	f, err := fs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(io.NewSectionReader(f, 0, size))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	w, err := fs.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(edit(b)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestNilLoggerWarns checks that a database without a logger is not silent about damage:
// slog.Default() gets the warnings and errors, and nothing else. A discard logger silences them.
func TestNilLoggerWarns(t *testing.T) {
	cut := func(b []byte) []byte { return b[:len(b)-1] }
	torn := func(b []byte) []byte { return cut(bytes.TrimRight(b, "\x00")) } // the zeros after the last record are allocated space
	begun := func(b []byte) []byte { return append(b, 1, 2, 3) }             // the beginning of a record
	flip := func(b []byte) []byte { b[len(b)/2] ^= 1; return b }
	for _, c := range []struct {
		name  string
		kind  manifest.FileKind
		edit  func(b []byte) []byte
		fault vfstest.Fault
		level string
		want  string // "" if nothing is logged
	}{
		{name: "nothing wrong"},
		{name: "a log without its end", kind: manifest.KindLog, edit: torn, level: "WARN", want: "the end of a log was left out"},
		{name: "an incomplete edit", kind: manifest.KindManifest, edit: begun, level: "WARN", want: "the end of the MANIFEST was cut off"},
		{name: "a shorter table", kind: manifest.KindTable, edit: cut, level: "ERROR", want: "a table cannot be read"},
		{name: "a damaged secret", kind: manifest.KindFilterKey, edit: flip, level: "WARN", want: "the secret of keyed filters"},
		{name: "a flush that fails", fault: vfstest.Fault{Index: -1, Err: syscall.EIO, Match: func(op vfstest.Op) bool {
			return op.Kind == vfstest.OpCreate && filepath.Ext(op.Name) == ".ldb"
		}}, level: "ERROR", want: "flush failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem := vfstest.NewMem()
			o := keyedOptions(mem)
			o.cleanNow = true
			db := mustOpen(t, "db", o)
			loadKeys(t, db, 1000)
			if err := db.Flush(); err != nil {
				t.Fatal(err)
			}
			if err := db.Put([]byte("k"), []byte("v"), NoSync); err != nil {
				t.Fatal(err)
			}
			img := mem.CrashImage(mem.NumOps(), vfstest.KeepUnsynced)
			mustClose(t, db)
			if c.edit != nil {
				editFile(t, img, c.kind, c.edit)
			}
			for _, silent := range []bool{true, false} {
				var out logged
				before := slog.Default()
				slog.SetDefault(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
				o := keyedOptions(nil)
				again := img.CrashImage(img.NumOps(), vfstest.KeepUnsynced)
				faulty := vfstest.Inject(again)
				o.FS = faulty
				if silent {
					o.Logger = slog.New(slog.DiscardHandler)
				}
				db := mustOpen(t, "db", o)
				if c.fault.Match != nil {
					faulty.SetFaults(c.fault)
				}
				// The results do not matter here.
				_ = db.Put([]byte("k"), []byte("w"), nil)
				_ = db.Flush()
				_ = db.Compact(context.Background(), nil, nil)
				_ = db.Close()
				slog.SetDefault(before)
				want := c.want
				if silent {
					want = ""
				}
				got := out.String()
				if strings.Count(got, "err=\"db/MANIFEST-") > 1 {
					t.Errorf("silent %v: logged twice: %q", silent, got)
				}
				if want == "" && got != "" || want != "" && (!strings.Contains(got, want) || !strings.Contains(got, "level="+c.level)) || strings.Contains(got, "level=INFO") {
					t.Errorf("silent %v: logged %q, want %q", silent, got, want)
				}
			}
		})
	}
}
