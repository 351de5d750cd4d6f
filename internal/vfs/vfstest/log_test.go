package vfstest

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/siftdb/sift/internal/vfs"
)

// TestLog writes all lengths to a log. At any moment another reader must find what was written,
// followed only by zeros; after Close the log must end with it.
func TestLog(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys vfs.FS, dir string) {
		r := rand.New(rand.NewPCG(1, 2))
		for round := range 4 {
			name := filepath.Join(dir, "log")
			f, err := vfs.CreateLog(fsys, name)
			must(t, err)
			var want []byte
			for i := range 400 {
				n := r.IntN(300)
				switch r.IntN(50) {
				case 0:
					n = 1 << r.IntN(18)
				case 1:
					n = 100_000 + r.IntN(100_000)
				}
				p := bytes.Repeat([]byte{byte(i) | 1}, n)
				got, err := f.Write(p)
				if must(t, err); got != n {
					t.Fatalf("write of %d bytes: %d", n, got)
				}
				want = append(want, p...)
				if r.IntN(20) == 0 {
					must(t, f.Sync())
				}
				if r.IntN(20) > 0 {
					continue
				}
				if b := []byte(get(t, fsys, name)); len(b) < len(want) || !bytes.Equal(b[:len(want)], want) ||
					len(bytes.TrimLeft(b[len(want):], "\x00")) > 0 {
					t.Fatalf("round %d, after %d bytes: the file holds %d, or wrong ones", round, len(want), len(b))
				}
			}
			tail := make([]byte, 10)
			if _, err := f.ReadAt(tail, int64(len(want)-10)); err != nil || !bytes.Equal(tail, want[len(want)-10:]) {
				t.Fatalf("ReadAt: %x, %v", tail, err)
			}
			must(t, f.Close())
			if b := []byte(get(t, fsys, name)); !bytes.Equal(b, want) {
				t.Fatalf("after Close the file holds %d bytes, not %d, or wrong ones", len(b), len(want))
			}
			if _, err := f.Write([]byte("x")); !errors.Is(err, fs.ErrClosed) {
				t.Fatalf("write after Close: %v", err)
			}
			if err := f.Close(); !errors.Is(err, fs.ErrClosed) {
				t.Fatalf("second Close: %v", err)
			}
		}
	})
}

// TestLogBeforeSync checks that a log is no longer than its contents before its first sync.
func TestLogBeforeSync(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys vfs.FS, dir string) {
		name := filepath.Join(dir, "log")
		f, err := vfs.CreateLog(fsys, name)
		must(t, err)
		for range 3 {
			_, err := f.Write([]byte("mark"))
			must(t, err)
		}
		if n, err := fsys.Size(name); err != nil || n != 12 {
			t.Errorf("%d bytes, %v", n, err)
		}
		must(t, f.Sync())
		must(t, f.Close())
	})
}

// TestLogZeroTail checks that a power cut may leave zeros after the contents of a log, but only if
// the log was written to after its first sync.
func TestLogZeroTail(t *testing.T) {
	m := NewMem()
	f, err := vfs.CreateLog(m, "log")
	must(t, err)
	write := func(s string) {
		_, err := f.Write([]byte(s))
		must(t, err)
	}
	write("mark")
	must(t, f.Sync())
	must(t, m.SyncDir("/"))
	zeros := func() (none, some, full int) {
		for s := range Survival(200) {
			b := []byte(get(t, m.CrashImage(m.NumOps(), s), "log"))
			switch rest := len(b) - len(bytes.TrimRight(b, "\x00")); {
			case len(b) == logWindow:
				full++
			case rest > len("record"):
				some++
			default:
				none++
			}
			if !strings.HasPrefix(string(b), "mark") {
				t.Fatalf("survival %d: %q", s, b[:min(len(b), 10)])
			}
		}
		return none, some, full
	}
	if none, some, full := zeros(); some+full > 0 || none == 0 {
		t.Errorf("not written to since the first sync: %d without zeros, %d with some, %d with all", none, some, full)
	}
	write("record")
	if none, some, full := zeros(); none == 0 || some == 0 || full == 0 {
		t.Errorf("%d without zeros, %d with some, %d with all", none, some, full)
	}
	must(t, f.Sync())
	if none, some, full := zeros(); none == 0 || some == 0 || full == 0 {
		t.Errorf("synced: %d without zeros, %d with some, %d with all", none, some, full)
	}
}
