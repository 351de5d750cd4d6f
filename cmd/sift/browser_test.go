package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// chromium is a headless Chromium with one page, driven by the DevTools protocol over pipes.
type chromium struct {
	t       *testing.T
	in      *os.File
	out     *bufio.Reader
	session string
	id      int
	logged  []string // what the browser logged about the page
}

// newChromium starts a browser. It skips the test if none is installed.
func newChromium(t *testing.T) *chromium {
	t.Helper()
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil && path == "" {
			path = p
		}
	}
	if path == "" || runtime.GOOS == "windows" {
		t.Skip("no Chromium on this machine: apt-get install chromium to test the pages in a browser")
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	// Every read ends when the browser does, so nothing hangs.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	cmd := exec.CommandContext(ctx, path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--disable-component-update", "--disable-background-networking", "--disable-sync", "--no-first-run",
		"--user-data-dir="+t.TempDir(), "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	c := &chromium{t: t, in: in, out: bufio.NewReader(out)}
	t.Cleanup(func() {
		c.call("Browser.close", nil)
		_ = cmd.Wait() // its exit status does not matter
		cancel()
		in.Close()
		out.Close()
	})
	target := c.call("Target.createTarget", map[string]any{"url": "about:blank"})
	c.session = c.call("Target.attachToTarget", map[string]any{"targetId": target["targetId"], "flatten": true})["sessionId"].(string)
	c.call("Page.enable", nil)
	c.call("Log.enable", nil)
	return c
}

type devToolsMessage struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result map[string]any  `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// call sends a command that must succeed and returns its result.
func (c *chromium) call(method string, params map[string]any) map[string]any {
	c.t.Helper()
	m := c.send(method, params)
	if m.Error != nil {
		c.t.Fatalf("%s: %s", method, m.Error)
	}
	return m.Result
}

// send sends a command and returns the answer.
func (c *chromium) send(method string, params map[string]any) devToolsMessage {
	c.t.Helper()
	c.id++
	message := map[string]any{"id": c.id, "method": method, "params": params}
	if params == nil {
		message["params"] = struct{}{}
	}
	if c.session != "" && method != "Browser.close" {
		message["sessionId"] = c.session
	}
	text, err := json.Marshal(message)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.in.Write(append(text, 0)); err != nil {
		c.t.Fatal(err)
	}
	for {
		if m := c.read(); m.ID == c.id {
			return m
		}
	}
}

// read returns the next message, and records what the browser logs about the page.
func (c *chromium) read() (m devToolsMessage) {
	c.t.Helper()
	text, err := c.out.ReadBytes(0)
	if err == nil {
		err = json.Unmarshal(text[:len(text)-1], &m)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	if m.Method == "Log.entryAdded" {
		c.logged = append(c.logged, string(m.Params))
	}
	return m
}

// open shows a page on a screen of the given width.
func (c *chromium) open(address string, width int) {
	c.t.Helper()
	c.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false})
	c.call("Page.navigate", map[string]any{"url": address})
	c.until("location.href === " + fmt.Sprintf("%q", address))
}

// until waits until a condition holds and the page has been loaded.
func (c *chromium) until(condition string) {
	c.t.Helper()
	for {
		// The command fails while one page replaces another.
		m := c.send("Runtime.evaluate", map[string]any{"expression": "document.readyState === 'complete' && " + condition, "returnByValue": true})
		if result, ok := m.Result["result"].(map[string]any); ok && result["value"] == true {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// do runs a script that navigates to another page.
func (c *chromium) do(script string) {
	c.t.Helper()
	c.call("Runtime.evaluate", map[string]any{"expression": "window.before = true; " + script})
	c.until("window.before === undefined")
}

// value returns the value of a script.
func (c *chromium) value(script string) any {
	c.t.Helper()
	result := c.call("Runtime.evaluate", map[string]any{"expression": script, "returnByValue": true})["result"].(map[string]any)
	return result["value"]
}

// TestBrowseInBrowser opens every kind of page in a real browser, wide and narrow: it fits the
// screen, its style applies, it shows what it should, and the browser logs no errors.
func TestBrowseInBrowser(t *testing.T) {
	c := newChromium(t)
	db := filepath.Join(t.TempDir(), "db")
	long := strings.Repeat("long", 100)
	mustSift(t, lines(1200)+oddKeys+long+"\t"+long+"\n", "load", db)
	root := startBrowse(t, db)
	for _, width := range []int{360, 1280} {
		for _, page := range []string{"", "keys", "keys?from=l", "key?key=key000100", "key?key=" + long, "tables", "filters", "table?number=5", "block?number=5&block=1", "nowhere"} {
			c.open(root+page, width)
			where := fmt.Sprintf("%q at %d px", page, width)
			if w := c.value("document.documentElement.scrollWidth").(float64); w > float64(width) || w < float64(width)/2 {
				t.Errorf("%s: the page is %v px wide", where, w)
			}
			if font := c.value("getComputedStyle(document.querySelector('h1')).fontSize"); font != "22px" {
				t.Errorf("%s: the heading has a font of %v", where, font)
			}
			if n := c.value("document.querySelectorAll('h1, header a').length"); n != 5.0 {
				t.Errorf("%s: %v headings and links in the page header, want 5", where, n)
			}
			c.picture(fmt.Sprintf("%d-%s", width, strings.Map(func(r rune) rune {
				if r == '?' || r == '&' {
					return '-'
				}
				return r
			}, page[:min(len(page), 20)])))
			if page == "nowhere" {
				c.logged = nil // the browser logs the 404
			}
		}
		// Look for keys, as a user would.
		c.open(root, width)
		c.do("document.querySelector('[name=prefix]').value = 'key'; document.querySelectorAll('button')[1].click()")
		c.do("document.querySelector('a[rel=next]').click()")
		if key := c.value("document.querySelector('td a').textContent"); key != "key000050" {
			t.Errorf("the second page begins with %v", key)
		}
		c.do("document.querySelector('a[rel=prev]').click()")
		c.do("document.querySelectorAll('td a')[3].click()")
		if value := c.value("document.querySelector('pre').textContent"); value != "value 3" {
			t.Errorf("the fourth key has the value %v", value)
		}
		c.open(root+"keys", width)
		c.do("[...document.querySelectorAll('td a')].find(a => a.textContent.startsWith('<script>')).click()")
		if value := c.value("document.querySelector('pre').textContent"); value != `"><img src=x>` {
			t.Errorf("the key with markup has the value %v", value)
		}
	}
	for _, entry := range c.logged {
		t.Error(entry)
	}
}

// picture saves a screenshot of the page if SIFT_TEST_PICTURES names a directory.
func (c *chromium) picture(name string) {
	dir := os.Getenv("SIFT_TEST_PICTURES")
	if dir == "" {
		return
	}
	var picture []byte // of base64
	data, err := json.Marshal(c.call("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true})["data"])
	if err == nil {
		err = json.Unmarshal(data, &picture)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644)
	}
	if err != nil {
		c.t.Error(err)
	}
}
