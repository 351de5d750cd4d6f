package vfstest

import (
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/siftdb/sift/internal/vfs"
)

// session performs at least one operation of each kind and returns the errors.
func session(fsys vfs.FS) (errs []error) {
	note := func(err error) {
		if err != nil && err != io.EOF {
			errs = append(errs, err)
		}
	}
	note(fsys.MkdirAll("d"))
	lock, err := fsys.Lock("d/LOCK", true)
	note(err)
	if f, err := fsys.Create("d/a"); err == nil {
		_, err := f.Write([]byte("0123456789"))
		note(err)
		note(f.Sync())
		note(f.Close())
	} else {
		note(err)
	}
	note(fsys.SyncDir("d"))
	note(fsys.Link("d/a", "d/b"))
	note(fsys.Rename("d/b", "d/c"))
	_, err = fsys.List("d")
	note(err)
	_, err = fsys.Size("d/a")
	note(err)
	if f, err := fsys.Open("d/a"); err == nil {
		_, err := f.ReadAt(make([]byte, 4), 2)
		note(err)
		note(f.Close())
	} else {
		note(err)
	}
	note(fsys.Remove("d/a"))
	if lock != nil {
		note(lock.Close())
	}
	return errs
}

func TestEveryOperationFails(t *testing.T) {
	clean := Inject(NewMem())
	var ops []Op
	clean.SetHook(func(o Op) error { ops = append(ops, o); return nil })
	if errs := session(clean); len(errs) > 0 || len(clean.OpenFiles()) > 0 {
		t.Fatalf("errors %v, open %v", errs, clean.OpenFiles())
	}
	n := clean.NumOps()
	kinds := map[OpKind]bool{}
	for i, o := range ops {
		kinds[o.Kind] = true
		if o.Index != i {
			t.Fatalf("operation %d is %v", i, o)
		}
	}
	if len(ops) != n || len(kinds) != int(OpClose) { // all but OpSyncLost
		t.Fatalf("%d operations of %d kinds: %v", len(ops), len(kinds), ops)
	}
	for i := range n {
		for _, cause := range []error{nil, syscall.EMFILE} {
			f := Inject(NewMem())
			f.SetFaults(Fault{Index: i, Err: cause})
			errs := session(f)
			want := cause
			if want == nil {
				want = syscall.EIO
			}
			if len(errs) == 0 || !errors.Is(errs[0], want) {
				t.Fatalf("%v: errors %v", ops[i], errs)
			}
			failed := f.Failed()
			if len(failed) != 1 || !errors.Is(failed[0].Err, want) {
				t.Fatalf("%v: failed %v", ops[i], failed)
			}
			if failed[0].Err = nil; failed[0] != ops[i] {
				t.Fatalf("%v: failed %v", ops[i], failed)
			}
			if open := f.OpenFiles(); len(open) > 0 {
				t.Fatalf("%v: open %v", ops[i], open)
			}
		}
		f := Inject(NewMem())
		f.SetFaults(Fault{Index: i, Sticky: true})
		session(f)
		if got := len(f.Failed()); got != f.NumOps()-i || got == 0 {
			t.Fatalf("%v and all after: %d failed of %d", ops[i], got, f.NumOps())
		}
	}
}

func TestFaultMatch(t *testing.T) {
	f := Inject(NewMem())
	f.SetFaults(Fault{Index: -1, Match: func(o Op) bool { return o.Kind == OpSync && strings.HasSuffix(o.Name, "/a") }})
	if errs := session(f); len(errs) != 1 || f.Failed()[0].Kind != OpSync {
		t.Fatalf("errors %v, failed %v", errs, f.Failed())
	}
	if errs := session(f); len(errs) != 0 {
		t.Fatalf("the fault occurred again: %v", errs)
	}
	f.SetFaults(Fault{Index: -1, Sticky: true, Match: func(o Op) bool { return o.Kind == OpSize }})
	if n := len(session(f)) + len(session(f)); n != 2 {
		t.Fatalf("%d errors in two sessions", n)
	}
	f.SetFaults()
	if errs := session(f); len(errs) != 0 {
		t.Fatalf("without faults: %v", errs)
	}
	f.SetHook(func(o Op) error {
		if o.Kind == OpList {
			return syscall.EACCES
		}
		return nil
	})
	if errs := session(f); len(errs) != 1 || !errors.Is(errs[0], syscall.EACCES) {
		t.Fatalf("hook: %v", errs)
	}
}

func TestFaultsThatHalfHappen(t *testing.T) {
	mem := NewMem()
	f := Inject(mem)
	file, err := f.Create("f")
	must(t, err)
	fault := func(x Fault) {
		x.Index = -1
		f.SetFaults(x)
	}
	fault(Fault{Short: true})
	if n, err := file.Write([]byte("01234567")); n != 4 || !errors.Is(err, syscall.EIO) {
		t.Errorf("short write: %d, %v", n, err)
	}
	fault(Fault{After: true})
	if n, err := file.Write([]byte("ab")); n != 2 || err == nil {
		t.Errorf("write that fails afterwards: %d, %v", n, err)
	}
	fault(Fault{})
	if n, err := file.Write([]byte("xy")); n != 0 || err == nil {
		t.Errorf("failed write: %d, %v", n, err)
	}
	if s := get(t, mem, "f"); s != "0123ab" {
		t.Errorf("file holds %q", s)
	}
	fault(Fault{After: true})
	if err := f.Rename("f", "g"); err == nil || get(t, mem, "g") != "0123ab" {
		t.Errorf("rename that fails afterwards: %v, %s", err, mem)
	}
	fault(Fault{After: true})
	if _, err := f.Create("h"); err == nil || get(t, mem, "h") != "" || len(f.OpenFiles()) != 1 {
		t.Errorf("create that fails afterwards: %v, %s, open %v", err, mem, f.OpenFiles())
	}
	inner := Inject(mem)
	outer := Inject(inner)
	outer.SetFaults(Fault{Index: -1, After: true})
	if _, err := outer.Open("h"); err == nil || len(outer.OpenFiles())+len(inner.OpenFiles()) != 0 {
		t.Errorf("open that fails afterwards: %v, open %v, %v", err, outer.OpenFiles(), inner.OpenFiles())
	}
	must(t, mem.SyncDir("/"))
	durable := func() string { return get(t, mem.CrashImage(mem.NumOps(), LoseUnsynced), "g") }
	fault(Fault{})
	if err := file.Sync(); err == nil || durable() != "" {
		t.Errorf("failed sync: %v, durable %q", err, durable())
	}
	fault(Fault{After: true})
	if err := file.Sync(); err == nil || durable() != "0123ab" {
		t.Errorf("sync that fails afterwards: %v, durable %q", err, durable())
	}
	_, err = file.Write([]byte("lost"))
	must(t, err)
	fault(Fault{DropPages: true})
	if err := file.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("sync that drops pages: %v", err)
	}
	must(t, file.Sync())
	if s := durable(); s != "0123ab" {
		t.Errorf("after a sync that dropped pages and one that succeeded: %q", s)
	}
	must(t, file.Close())
}

func TestSpace(t *testing.T) {
	mem := NewMem()
	f := Inject(mem)
	file, err := f.Create("f")
	must(t, err)
	f.SetSpace(10)
	for _, tc := range []struct {
		s  string
		n  int
		ok bool
	}{{"012345", 6, true}, {"6789ab", 4, false}, {"x", 0, false}, {"", 0, true}} {
		n, err := file.Write([]byte(tc.s))
		if n != tc.n || (err == nil) != tc.ok || err != nil && !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("Write %q: %d, %v", tc.s, n, err)
		}
	}
	must(t, file.Sync())
	f.SetSpace(-1)
	_, err = file.Write([]byte("more"))
	must(t, err)
	must(t, file.Close())
	if s := get(t, f, "f"); s != "0123456789more" {
		t.Errorf("file holds %q", s)
	}
	if n := len(f.Failed()); n != 2 {
		t.Errorf("%d failed", n)
	}
}

func TestOpenFiles(t *testing.T) {
	f := Inject(NewMem())
	a, err := f.Create("a")
	must(t, err)
	b, err := f.Open("a")
	must(t, err)
	l, err := f.Lock("L", false)
	must(t, err)
	if got := f.OpenFiles(); !slices.Equal(got, []string{"a", "a", "lock L"}) {
		t.Fatalf("open: %q", got)
	}
	f.SetFaults(Fault{Index: -1, Sticky: true})
	for _, c := range []io.Closer{a, b, l} {
		if err := c.Close(); err == nil {
			t.Fatal("Close does not fail")
		}
	}
	if got := f.OpenFiles(); len(got) != 0 {
		t.Fatalf("open: %q", got)
	}
	f.SetFaults()
	if l, err := f.Lock("L", true); err != nil {
		t.Fatalf("a lock whose release failed is still held: %v", err)
	} else {
		must(t, l.Close())
	}
}

// TestHookDelays checks that a hook can delay an operation while others continue.
func TestHookDelays(t *testing.T) {
	f := Inject(NewMem())
	put(t, f, "a", "A", true)
	reached, release := make(chan bool), make(chan bool)
	f.SetHook(func(o Op) error {
		if o.Kind == OpRemove {
			reached <- true
			<-release
		}
		return nil
	})
	var removed atomic.Bool
	done := make(chan error)
	go func() {
		err := f.Remove("a")
		removed.Store(true)
		done <- err
	}()
	<-reached
	if s := get(t, f, "a"); s != "A" || removed.Load() {
		t.Fatalf("file %q, removed %v", s, removed.Load())
	}
	close(release)
	must(t, <-done)
	if s := get(t, f, "a"); s != "-" {
		t.Fatalf("file %q", s)
	}
}
