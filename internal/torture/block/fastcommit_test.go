//go:build linux

package block

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

var fastCommit = flag.Bool("fast-commit", false, "run ext4's fast commits, too")

// TestFastCommit runs sift and the control on ext4 with fast_commit, which is off by default. It
// reports what is lost: if the control loses something, the file system is at fault.
func TestFastCommit(t *testing.T) {
	f := fastCommits(t)
	for _, e := range []engine{plain, siftEngine} {
		t.Run(e.name, func(t *testing.T) {
			all, first := many(t, f, e, *budget/2)
			t.Logf("%s; the first violation: %v", all, first)
		})
	}
}

// fastCommits returns ext4 with fast_commit.
func fastCommits(t *testing.T) *fileSystem {
	t.Helper()
	f := &fileSystems[len(fileSystems)-1]
	if !*fastCommit {
		t.Skip("only with -fast-commit")
	} else if why := f.missing(); why != "" {
		t.Skip(why)
	}
	return f
}

// TestFastCommitRace shows without sift what ext4 loses with fast_commit, and reports it. Two
// goroutines each write a page of a file of their own, and sync it. When both syncs have returned,
// the disk is copied as a power cut would leave it, and the copy is mounted. Pages are missing if
// both sync at the same time, and none if they take turns.
func TestFastCommitRace(t *testing.T) {
	f := fastCommits(t)
	for _, c := range []struct {
		name  string
		fs    *fileSystem
		turns bool
	}{{"without", &fileSystems[0], false}, {"turns", f, true}, {"together", f, false}} {
		t.Run(c.name, func(t *testing.T) {
			const rounds, pages = 5, 200
			lost, refused := 0, 0
			for range rounds {
				l, r := race(t, c.fs, tempDir(t), pages, c.turns)
				lost, refused = lost+l, refused+r
			}
			t.Logf("%d power cuts: %d images cannot be mounted; in the others %d of %d synced pages are missing", rounds*pages, refused, lost, 2*(rounds*pages-refused))
		})
	}
}

// race writes and syncs pages, as described above, and returns how many of them are missing, and
// how many images cannot be mounted.
func race(t *testing.T, f *fileSystem, dir string, pages int, turns bool) (lost, refused int) {
	disk, image := filepath.Join(dir, "fs"), filepath.Join(dir, "image")
	if err := f.make(disk); err != nil {
		t.Fatal(err)
	}
	m, err := f.mountFile(disk, filepath.Join(dir, "work"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.unmount()
	names := []string{"a", "b"}
	files := make([]*os.File, len(names))
	for i, name := range names {
		if files[i], err = os.Create(filepath.Join(m.dir, name)); err != nil {
			t.Fatal(err)
		}
		defer files[i].Close()
		if err := errors.Join(unix.Fallocate(int(files[i].Fd()), 0, 0, int64(pages)*pageBytes), files[i].Sync(), syncDir(m.dir)); err != nil {
			t.Fatal(err)
		}
	}
	page := bytes.Repeat([]byte("x"), pageBytes)
	for n := range pages {
		errs := make([]error, len(files))
		var turn sync.Mutex
		var wg sync.WaitGroup
		for i, file := range files {
			wg.Go(func() {
				if turns {
					turn.Lock()
					defer turn.Unlock()
				}
				_, err := file.WriteAt(page, int64(n)*pageBytes)
				errs[i] = errors.Join(err, unix.Fdatasync(int(file.Fd())))
			})
		}
		wg.Wait()
		if err := errors.Join(append(errs, copyFile(image, disk))...); err != nil {
			t.Fatal(err)
		}
		after, err := f.mountFile(image, filepath.Join(dir, "check"))
		if errors.Is(err, errMount) && f.refuses {
			refused++
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			b, err := os.ReadFile(filepath.Join(after.dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(b[n*pageBytes:][:pageBytes], page) {
				lost++
			}
		}
		if err := after.unmount(); err != nil {
			t.Fatal(err)
		}
	}
	return lost, refused
}
