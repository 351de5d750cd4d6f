package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows the progress of a long operation on standard error, if that is a
// terminal. It is safe for concurrent use.
type progress struct {
	bar *progressbar.ProgressBar // nil: nothing is shown
}

// progress starts a progress display. total is in bytes, or -1 if it is unknown.
func (e *env) progress(what string, total int64) *progress {
	return e.show(what, total, progressbar.OptionShowBytes(true), progressbar.OptionUseIECUnits(true))
}

// counting is progress for operations that count items.
func (e *env) counting(what string, total int) *progress { return e.show(what, int64(total)) }

func (e *env) show(what string, total int64, options ...progressbar.Option) *progress {
	if !isTerminal(e.err) {
		return &progress{}
	}
	options = append(options,
		progressbar.OptionSetWriter(e.err),
		progressbar.OptionSetDescription(what),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetWidth(20),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetRenderBlankState(true),
		progressbar.OptionSpinnerType(14))
	if total == 0 {
		total = -1
	}
	return &progress{progressbar.NewOptions64(total, options...)}
}

// set updates the display.
func (p *progress) set(n int64) {
	if p.bar != nil {
		_ = p.bar.Set64(n) // failing to show progress does not fail the operation
	}
}

// done clears the line.
func (p *progress) done() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}

// watch shows the result of now, twice a second, until stop is called.
func (p *progress) watch(now func() int64) (stop func()) {
	if p.bar == nil {
		return func() {}
	}
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		p.set(now())
		for {
			select {
			case <-tick.C:
				p.set(now())
			case <-quit:
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-ended
		p.done()
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
