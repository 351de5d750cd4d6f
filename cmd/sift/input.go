package main

import (
	"context"
	"io"
)

// input returns standard input. An interrupt ends a blocked read.
func (e *env) input() io.Reader {
	return &interruptible{ctx: e.ctx, in: e.in, done: make(chan readResult, 1)}
}

type readResult struct {
	n   int
	err error
}

// interruptible is a reader that fails when ctx is canceled. The result of the read in progress is
// lost.
type interruptible struct {
	ctx  context.Context
	in   io.Reader
	buf  []byte // filled by the read in progress
	done chan readResult
	err  error
}

func (r *interruptible) Read(p []byte) (int, error) {
	if r.err == nil {
		r.err = r.ctx.Err()
	}
	if r.err != nil {
		return 0, r.err
	}
	if len(r.buf) < len(p) {
		r.buf = make([]byte, len(p))
	}
	buf := r.buf[:len(p)]
	go func() {
		n, err := r.in.Read(buf)
		r.done <- readResult{n, err}
	}()
	select {
	case <-r.ctx.Done():
		r.err = r.ctx.Err()
		return 0, r.err
	case result := <-r.done:
		return copy(p, buf[:result.n]), result.err
	}
}
