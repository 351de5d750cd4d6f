package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/schollz/progressbar/v3"
	"github.com/siftdb/sift/bench/report"
	"github.com/siftdb/sift/bench/result"
	"golang.org/x/term"
)

// temporary is the directory to remove in the end.
var temporary struct {
	mu  sync.Mutex
	dir string
}

// directory returns where the databases go.
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

// writeReport writes the page, the pictures, CSV and benchstat's lines.
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

// busyShare is the share of the machine that others may use before a
// measurement is in doubt.
const busyShare = 0.05

// busyWarnings says how many measurements were made while others kept the machine busy.
func busyWarnings(f *result.File) []string {
	var shares []float64
	busy := 0
	for _, r := range f.Rows {
		for _, share := range r.Values[result.Others] {
			shares = append(shares, share)
			if share > busyShare {
				busy++
			}
		}
	}
	if len(shares) == 0 || busy*10 < len(shares) {
		return nil
	}
	slices.Sort(shares)
	return []string{fmt.Sprintf("the machine was busy: in %d of %d measurements others used more than %.0f %% of its processors (half of the time %.0f %% or more), so trust the ratios and not the times",
		busy, len(shares), 100*busyShare, 100*shares[len(shares)/2])}
}

// progress shows on a terminal how far a run has come.
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

// above returns a writer whose lines stand above the bar.
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

// step says what is done next.
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
