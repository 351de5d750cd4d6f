package filecache

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// newFiles returns a cache over n files in memory, each of which contains its number.
func newFiles(t *testing.T, n, most int) (*Cache, []*File, *vfstest.Faulty) {
	t.Helper()
	faulty := vfstest.Inject(vfstest.NewMem())
	c := New(faulty, most, 1<<20)
	files := make([]*File, n)
	for i := range files {
		name := fmt.Sprintf("%03d", i)
		f, err := faulty.Create(name)
		if err == nil {
			_, err = f.Write([]byte(name))
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		files[i] = c.Add(name, 3)
	}
	return c, files, faulty
}

func mustRead(t *testing.T, files []*File, i int) {
	t.Helper()
	p := make([]byte, 3)
	if n, err := files[i].ReadAt(p, 0); n != 3 || err != nil || string(p) != fmt.Sprintf("%03d", i) {
		t.Errorf("file %d: %q, %v", i, p, err)
	}
}

// numOpen returns the number of files that are open.
func numOpen(c *Cache) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// checkClosed closes all files and checks that nothing is left open.
func checkClosed(t *testing.T, c *Cache, files []*File, faulty *vfstest.Faulty) {
	t.Helper()
	before := processFiles.Load() - int64(numOpen(c))
	for _, f := range files {
		if err := errors.Join(f.Close(), f.Close()); err != nil {
			t.Error(err)
		}
		if _, err := f.ReadAt(make([]byte, 1), 0); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("a read after Close: %v", err)
		}
	}
	if numOpen(c) != 0 || c.bytes != 0 || c.hand != nil || processFiles.Load() != before || len(faulty.OpenFiles()) != 0 {
		t.Errorf("%d files are open, %d bytes, %v", numOpen(c), c.bytes, faulty.OpenFiles())
	}
}

// TestBound checks that no more files are open than allowed, and that a closed one is opened again
// when it is read.
func TestBound(t *testing.T) {
	const most = 8
	c, files, faulty := newFiles(t, 50, most)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		mustRead(t, files, rng.IntN(len(files)))
		if n := len(faulty.OpenFiles()); n > most || n != numOpen(c) {
			t.Fatalf("%d files are open, and %d are counted", n, numOpen(c))
		}
	}
	// A file that is read often stays open.
	opens := 0
	faulty.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.OpOpen && op.Name == "007" {
			opens++
		}
		return nil
	})
	for i := range 400 {
		mustRead(t, files, 7)
		mustRead(t, files, i%len(files))
	}
	if opens > 1 {
		t.Errorf("a file that is read constantly was opened %d times", opens)
	}
	faulty.SetHook(nil)
	checkClosed(t, c, files, faulty)
}

// TestManyReaders checks that every read of a file that is not closed returns its bytes, with
// concurrent calls of Close.
func TestManyReaders(t *testing.T) {
	const most, readers = 4, 8
	c, files, faulty := newFiles(t, 60, most)
	var wg sync.WaitGroup
	for g := range readers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 3))
			for range 2000 {
				mustRead(t, files, rng.IntN(40))
				if n := numOpen(c); n > most+readers {
					t.Errorf("%d files are open", n)
				}
				if i := 40 + rng.IntN(20); g == 0 {
					if err := files[i].Close(); err != nil {
						t.Error(err)
					}
				} else if _, err := files[i].ReadAt(make([]byte, 3), 0); err != nil && !errors.Is(err, fs.ErrClosed) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	checkClosed(t, c, files, faulty)
}

// TestNoDescriptor checks that other files are closed when the process is out of descriptors.
func TestNoDescriptor(t *testing.T) {
	c, files, faulty := newFiles(t, 20, 0)
	faulty.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.OpOpen && len(faulty.OpenFiles()) >= 3 {
			return syscall.EMFILE
		}
		return nil
	})
	for i := range 200 {
		mustRead(t, files, i%len(files))
	}
	// While all open files are being read, opening another fails; afterwards it succeeds.
	for i := range 3 {
		mustRead(t, files, i)
		files[i].mu.RLock()
	}
	if _, err := files[5].ReadAt(make([]byte, 3), 0); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("without a descriptor: %v", err)
	}
	for i := range 3 {
		files[i].mu.RUnlock()
	}
	mustRead(t, files, 5)
	faulty.SetHook(nil)
	checkClosed(t, c, files, faulty)
}

// TestHungRead checks that a read that hangs blocks neither reads of the same file and others, nor
// Close.
func TestHungRead(t *testing.T) {
	c, files, faulty := newFiles(t, 5, 1)
	hung, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	faulty.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.OpReadAt && op.Name == "000" {
			wait := false
			once.Do(func() { wait = true })
			if wait {
				close(hung)
				<-release
			}
		}
		return nil
	})
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = files[0].ReadAt(make([]byte, 3), 0) })
	<-hung
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 20 {
			mustRead(t, files, i%len(files))
		}
		if err := files[0].Close(); err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("a hung read blocks others")
	}
	close(release)
	wg.Wait()
	mustRead(t, files, 1)
	mustRead(t, files, 2)
	if n := numOpen(c); n > 1 {
		t.Errorf("%d files are open when nobody reads", n)
	}
	checkClosed(t, c, files, faulty)
}

// TestConcurrent adds, opens, reads and closes files from several goroutines, with few descriptors,
// and with mappings that must be given up: every file that is not closed is read, and nothing is
// left open. The race detector checks that each method takes its locks.
func TestConcurrent(t *testing.T) {
	_, _, faulty := newFiles(t, 30, 1)
	c := New(faulty, 2, 12) // up to four files are mapped
	hot := []*File{c.Add("000", 3), c.Add("001", 3), c.Add("002", 3)}
	var opens atomic.Int64
	faulty.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.OpOpen && opens.Add(1)%2 == 0 {
			return syscall.EMFILE
		}
		return nil
	})
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 4))
			for range 1000 {
				i := 3 + rng.IntN(27)
				f := c.Add(fmt.Sprintf("%03d", i), 3)
				var both sync.WaitGroup
				both.Go(func() {
					if _, err := f.ReadAt(make([]byte, 3), 0); err != nil && !errors.Is(err, fs.ErrClosed) && !errors.Is(err, syscall.EMFILE) {
						t.Error(err)
					}
				})
				f.Prefetch(0, 3)
				p := make([]byte, 3)
				i = rng.IntN(len(hot))
				if n, err := hot[i].ReadAt(p, 0); !errors.Is(err, syscall.EMFILE) && (n != 3 || err != nil || string(p) != fmt.Sprintf("%03d", i)) {
					t.Errorf("file %d: %q, %v", i, p, err)
				}
				if err := f.Close(); err != nil {
					t.Error(err)
				}
				both.Wait()
			}
		})
	}
	wg.Wait()
	faulty.SetHook(nil)
	checkClosed(t, c, hot, faulty)
}

// TestMapsAgain checks that files are opened again, and then mapped, once all of them fit again.
func TestMapsAgain(t *testing.T) {
	c, files, faulty := newFiles(t, 3, 0)
	large := c.Add("large", 2<<20) // more than may be mapped
	for i := range files {
		mustRead(t, files, i)
	}
	opens := 0
	faulty.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.OpOpen {
			opens++
		}
		return nil
	})
	if mustRead(t, files, 0); opens != 0 {
		t.Errorf("an open file was opened %d times", opens)
	}
	if err := large.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range files {
		mustRead(t, files, i)
	}
	if opens != len(files) {
		t.Errorf("%d of %d files were opened again", opens, len(files))
	}
	faulty.SetHook(nil)
	checkClosed(t, c, files, faulty)
}
