package sift

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// wantKind checks that an error matches want, but no other error that tells callers what to do,
// and that it wraps its cause.
func wantKind(t *testing.T, what string, err, want, cause error) {
	t.Helper()
	for _, e := range []error{ErrReadOnly, ErrTryAgain, ErrReopen} {
		if errors.Is(err, e) != (e == want) {
			t.Errorf("%s: %v; want %v alone", what, err, want)
		}
	}
	if cause != nil && !errors.Is(err, cause) {
		t.Errorf("%s: %v does not wrap its cause", what, err)
	}
}

// TestErrorKinds checks that callers can distinguish errors after which they can try again, errors
// after which they have to reopen the database, and writes to a read-only database.
func TestErrorKinds(t *testing.T) {
	isTable := func(op vfstest.Op) bool { return op.Kind == vfstest.OpCreate && strings.HasSuffix(op.Name, ".ldb") }
	isLog := func(op vfstest.Op) bool { return op.Kind == vfstest.OpCreate && strings.HasSuffix(op.Name, ".log") }
	logSync := func(op vfstest.Op) bool { return op.Kind == vfstest.OpSync && strings.HasSuffix(op.Name, ".log") }
	manifestSync := func(op vfstest.Op) bool { return op.Kind == vfstest.OpSync && strings.Contains(op.Name, "MANIFEST") }
	for _, tc := range []struct {
		what  string
		match func(vfstest.Op) bool
		fails func(*DB) error
		want  error
	}{
		{"a flush", isTable, (*DB).Flush, ErrTryAgain},
		{"the flush of Compact", isTable, func(db *DB) error { return db.Compact(context.Background(), nil, nil) }, ErrTryAgain},
		{"the creation of a log", isLog, (*DB).Flush, ErrTryAgain},
		{"the sync of the log", logSync, func(db *DB) error { return db.Put([]byte("a"), nil, Sync) }, ErrReopen},
		{"the MANIFEST", manifestSync, (*DB).Flush, ErrReopen},
	} {
		mem := vfstest.NewMem()
		fs := vfstest.Inject(mem)
		o := uncached(fs)
		o.retryDelay = time.Millisecond
		db := mustOpen(t, "db", o)
		if err := db.Put([]byte("k"), nil, NoSync); err != nil {
			t.Fatal(err)
		}
		fs.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: tc.match, Err: syscall.ENOSPC})
		wantKind(t, tc.what, tc.fails(db), tc.want, syscall.ENOSPC)
		fs.SetFaults()
		again := tc.fails(db)
		for begin := time.Now(); tc.want == ErrTryAgain && again != nil && time.Since(begin) < 30*time.Second; again = tc.fails(db) {
			wantKind(t, tc.what, again, tc.want, syscall.ENOSPC)
			time.Sleep(time.Millisecond)
		}
		if tc.want == ErrTryAgain {
			if again != nil {
				t.Errorf("%s, tried again: %v", tc.what, again)
			}
		} else {
			wantKind(t, tc.what+", the next call", again, tc.want, syscall.ENOSPC)
		}
		if err := db.Close(); (err == nil) != (tc.want == ErrTryAgain) {
			t.Errorf("%s: Close: %v", tc.what, err)
		}
		db = mustOpen(t, "db", uncached(mem))
		if err := db.Put([]byte("k"), nil, Sync); err != nil {
			t.Errorf("%s, reopened: %v", tc.what, err)
		}
		mustClose(t, db)
		o = uncached(mem)
		o.ReadOnly = true
		db = mustOpen(t, "db", o)
		wantKind(t, "a read-only database", db.Put([]byte("k"), nil, nil), ErrReadOnly, nil)
		mustClose(t, db)
	}
}
