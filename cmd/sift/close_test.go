package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"syscall"
	"testing"

	"github.com/siftdb/sift"
)

var errUnlock = errors.New("the lock is stuck")

// stuckLock is a file system whose locks cannot be released without an error.
type stuckLock struct{ sift.FS }

func (s stuckLock) Lock(name string, exclusive bool) (io.Closer, error) {
	inner, err := s.FS.Lock(name, exclusive)
	return stuckCloser{inner}, err
}

type stuckCloser struct{ io.Closer }

func (s stuckCloser) Close() error { return errors.Join(s.Closer.Close(), errUnlock) }

// TestCloseFails: a command reports that its database could not be closed, even if it has failed
// itself, or the reader of its output has closed the pipe. What load stores is durable only after
// Close.
func TestCloseFails(t *testing.T) {
	bad := errors.New("line 7: no tab between key and value")
	for _, first := range []error{nil, bad, syscall.EPIPE} {
		e := &env{ctx: context.Background(), out: bufio.NewWriter(io.Discard), err: io.Discard}
		err := e.withDB("db", sift.Options{FS: stuckLock{sift.NewMemFS()}}, func(*sift.DB) error { return first })
		if !errors.Is(err, errUnlock) || first == bad && !errors.Is(err, bad) {
			t.Errorf("after %v: %v", first, err)
		}
		if status := e.fail(err); status != statusFailed {
			t.Errorf("after %v: status %d", first, status)
		}
	}
}
