package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows on a terminal how far long work has come. Nothing is shown
// where standard error is not a terminal. It is safe for concurrent use.
type progress struct {
	bar *progressbar.ProgressBar // nil: nothing is shown
}

// progress begins to show work. total is in bytes; -1 if it is not known.
func (e *env) progress(what string, total int64) *progress {
	return e.show(what, total, progressbar.OptionShowBytes(true), progressbar.OptionUseIECUnits(true))
}

// counting begins to show work that is counted in pieces.
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

// set says how far the work has come.
func (p *progress) set(n int64) {
	if p.bar != nil {
		_ = p.bar.Set64(n) // that progress cannot be shown stops no work
	}
}

// done takes the line off the terminal.
func (p *progress) done() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}

// watch calls now twice a second and shows what it returns, until the function
// that it returns is called.
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
