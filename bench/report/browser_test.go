package report

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/siftdb/sift/bench/result"
)

// browser is a headless Chromium with the problems that it reported.
type browser struct {
	ctx      context.Context
	mu       sync.Mutex
	problems []string
	requests []string
}

func (b *browser) problem(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, fmt.Sprintf(format, args...))
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		t.Skip("no Chromium on this machine: apt-get install chromium to test the report's page")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WSURLReadTimeout(time.Minute),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.UserDataDir(t.TempDir()))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &browser{ctx: ctx}
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.problem("exception: %s", e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			b.problem("console.%s", e.Type)
		case *log.EventEntryAdded:
			b.problem("log: %s %s", e.Entry.Level, e.Entry.Text)
		case *network.EventRequestWillBeSent:
			b.mu.Lock()
			defer b.mu.Unlock()
			b.requests = append(b.requests, e.Request.URL)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	// A deadline for everything that follows.
	b.ctx, cancel = context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(cancel)
	return b
}

func (b *browser) do(t *testing.T, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

// value runs an action that returns something.
func value[T any](t *testing.T, b *browser, a chromedp.Action[T]) T {
	t.Helper()
	v, err := chromedp.Run(b.ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// scheme makes the browser prefer light or dark pages.
func scheme(name string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
		})
		return err
	})
}

// enable makes the browser report requests and log entries.
func enable() chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, network.Enable, network.EnableParams{})
		if err == nil {
			_, err = cdp.Call(ctx, t, log.Enable, cdp.Empty{})
		}
		return err
	})
}

// drawnScript lists the canvases with their numbers of colors and their right
// edges.
const drawnScript = `[...document.querySelectorAll('canvas')].map(c => {
	const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
	const colors = new Set();
	for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 0) colors.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);
	return {name: c.getAttribute('aria-label'), colors: colors.size, right: c.getBoundingClientRect().right};
})`

type drawn struct {
	Name   string
	Colors int
	Right  float64
}

// TestPage opens the page in a real browser, wide, narrow and dark: the browser
// must report no problems and request no other file, and the page must draw
// every plot and fit the screen.
func TestPage(t *testing.T) {
	f := sample()
	if path := os.Getenv("SIFT_BENCH_RESULT"); path != "" { // to test with a given result
		var err error
		if f, err = result.Read(path); err != nil {
			t.Fatal(err)
		}
	}
	b := newBrowser(t)
	path := filepath.Join(t.TempDir(), "report.html")
	w, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteHTML(w, f); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() > 1<<20 {
		t.Errorf("the page has %d bytes, %v", info.Size(), err)
	}
	b.do(t, enable())
	for _, screen := range []struct {
		name, scheme  string
		width, height int64
	}{{"wide", "light", 1280, 900}, {"narrow", "light", 360, 740}, {"dark", "dark", 1280, 900}} {
		b.do(t, scheme(screen.scheme), chromedp.EmulateViewport(screen.width, screen.height),
			chromedp.Navigate("file://"+path), chromedp.WaitReady(chromedp.CSS("#explored canvas")))
		canvases := value(t, b, chromedp.Evaluate[[]drawn](drawnScript))
		pageWidth := value(t, b, chromedp.Evaluate[float64](`document.documentElement.scrollWidth`))
		tables := value(t, b, chromedp.Evaluate[int](`document.querySelectorAll('table').length`))
		options := value(t, b, chromedp.Evaluate[int](`document.querySelectorAll('#unit option').length`))
		picture := value(t, b, chromedp.FullScreenshot(100))
		if want := len(Plots(f)) + 1; len(canvases) != want {
			t.Errorf("%s: %d canvases, want %d", screen.name, len(canvases), want)
		}
		for _, c := range canvases {
			if c.Colors < 8 {
				t.Errorf("%s: plot %q has only %d colors, as if it were not drawn", screen.name, c.Name, c.Colors)
			}
			if c.Right > float64(screen.width) {
				t.Errorf("%s: the right edge of plot %q is at %.0f on a screen %d wide", screen.name, c.Name, c.Right, screen.width)
			}
		}
		if pageWidth > float64(screen.width) {
			t.Errorf("%s: the page is %.0f wide on a screen %d wide", screen.name, pageWidth, screen.width)
		}
		if tables != len(Tables(f)) || options == 0 {
			t.Errorf("%s: %d tables, want %d; %d units to choose from", screen.name, tables, len(Tables(f)), options)
		}
		if dir := os.Getenv("SIFT_BENCH_PICTURES"); dir != "" { // to keep screenshots
			if err := os.WriteFile(filepath.Join(dir, "page-"+screen.name+".png"), picture, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.interact(t)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		t.Error(p)
	}
	for _, r := range b.requests {
		if r != "file://"+path && r != "data:," {
			t.Errorf("the page requested %s", r)
		}
	}
}

// interact hides a line of a plot and chooses another measurement.
func (b *browser) interact(t *testing.T) {
	t.Helper()
	hidden := value(t, b, chromedp.Evaluate[bool](`(() => {
		const chart = siftCharts.values().next().value;
		Chart.defaults.plugins.legend.onClick.call(chart.legend, {type: 'click'}, chart.legend.legendItems[0], chart.legend);
		return !chart.isDatasetVisible(0);
	})()`))
	title := chromedp.Text(chromedp.CSS("#explored-title"))
	before := value(t, b, title)
	b.do(t,
		chromedp.SetValue(chromedp.CSS("#section"), "filters"),
		chromedp.Click(chromedp.CSS("#log")))
	after := value(t, b, title)
	if !hidden {
		t.Error("a click on a legend hid nothing")
	}
	if before == "" || after == "" || before == after {
		t.Errorf("the title of the chosen plot changed from %q to %q", before, after)
	}
}
