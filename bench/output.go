package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/schollz/progressbar/v3"
	"github.com/siftdb/sift/bench/report"
	"github.com/siftdb/sift/bench/result"
	"golang.org/x/term"
)

// temporary is the directory that is removed when the process ends.
var temporary struct {
	mu  sync.Mutex
	dir string
}

// directory returns the directory for the databases; it creates one if --db is not
// given.
func (c *runCmd) directory() (string, error) {
	if c.DB != "" {
		return c.DB, os.MkdirAll(c.DB, 0o755)
	}
	if c.Keep || c.UseExistingDB {
		return "", fmt.Errorf("--keep and --use_existing_db need --db")
	}
	dir, err := os.MkdirTemp("", "sift-bench-")
	temporary.mu.Lock()
	temporary.dir = dir
	temporary.mu.Unlock()
	return dir, err
}

func removeTemporary() {
	temporary.mu.Lock()
	defer temporary.mu.Unlock()
	if temporary.dir != "" {
		os.RemoveAll(temporary.dir)
		temporary.dir = ""
	}
}

func directoryOf(path string) string { return filepath.Dir(path) }

// writeReport writes the HTML page, the plots, the CSV file and the file for benchstat.
func writeReport(f *result.File, dir string, out io.Writer) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	files := []struct {
		name  string
		write func(io.Writer) error
	}{
		{"report.html", func(w io.Writer) error { return report.WriteHTML(w, f) }},
		{"result.csv", func(w io.Writer) error { return report.WriteCSV(w, f) }},
		{"benchstat.txt", func(w io.Writer) error { return report.WriteBenchstat(w, f) }},
	}
	for _, p := range report.Plots(f) {
		files = append(files, struct {
			name  string
			write func(io.Writer) error
		}{p.Name + ".svg", func(w io.Writer) error { return report.WriteSVG(w, p) }})
	}
	for _, file := range files {
		path := filepath.Join(dir, file.name)
		w, err := os.Create(path)
		if err != nil {
			return err
		}
		if err := cmp.Or(file.write(w), w.Close()); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	full, err := filepath.Abs(filepath.Join(dir, "report.html"))
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "\nreport:", full)
	return nil
}

// busyWarnings warns if other processes kept the machine busy during a tenth of the
// measurements or more.
func busyWarnings(f *result.File) []string {
	busy, all := f.Busy()
	if all == 0 || busy*10 < all {
		return nil
	}
	return []string{fmt.Sprintf("the machine was busy: in %d of %d measurements other processes used more than %.0f%% of its CPU time, so trust the ratios, not the times",
		busy, all, 100*result.BusyShare)}
}

// progress shows the progress of a run on a terminal.
type progress struct{ bar *progressbar.ProgressBar }

func newProgress(w io.Writer, steps int, off bool) *progress {
	f, ok := w.(*os.File)
	if off || !ok || !term.IsTerminal(int(f.Fd())) {
		return &progress{}
	}
	return &progress{progressbar.NewOptions(steps,
		progressbar.OptionSetWriter(w), progressbar.OptionSetWidth(20), progressbar.OptionShowCount(),
		progressbar.OptionSetElapsedTime(true), progressbar.OptionSetPredictTime(true), progressbar.OptionFullWidth(),
		progressbar.OptionClearOnFinish(), progressbar.OptionSetRenderBlankState(true),
	)}
}

// above returns a writer to w that keeps the bar below the lines written.
func (p *progress) above(w io.Writer) io.Writer {
	if p.bar == nil {
		return w
	}
	return aboveBar{p.bar, w}
}

type aboveBar struct {
	bar *progressbar.ProgressBar
	w   io.Writer
}

func (a aboveBar) Write(b []byte) (int, error) {
	a.bar.Clear()
	return a.w.Write(b)
}

// step advances the bar and shows what is done next.
func (p *progress) step(what string) {
	if p.bar != nil {
		p.bar.Describe(what)
		p.bar.Add(1)
	}
}

func (p *progress) done() {
	if p.bar != nil {
		p.bar.Finish()
	}
}
