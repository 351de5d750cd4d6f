package main

import (
	"bufio"
	"context"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/siftdb/sift"
)

// startBrowse runs browse on a database and returns the address of the page. The command is
// interrupted when the test ends.
func startBrowse(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	var stderr strings.Builder
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, append([]string{"browse"}, args...), strings.NewReader(""), in, &stderr)
		in.Close()
	}()
	t.Cleanup(func() {
		cancel()
		if status := <-done; status != statusOK || stderr.Len() > 0 {
			t.Errorf("browse: status %d: %s", status, &stderr)
		}
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(address)
}

// fetch returns a page.
func fetch(t *testing.T, page string) (status int, body string) {
	t.Helper()
	response, err := http.Get(page)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

var anchor = regexp.MustCompile(`href="([^"]*)"`)

// linksOf returns the links of a page, resolved.
func linksOf(t *testing.T, page, body string) []string {
	t.Helper()
	base, err := url.Parse(page)
	if err != nil {
		t.Fatal(err)
	}
	var links []string
	for _, m := range anchor.FindAllStringSubmatch(body, -1) {
		u, err := base.Parse(html.UnescapeString(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		if u.Scheme == "http" {
			links = append(links, u.String())
		}
	}
	return links
}

// oddKeys are keys and values that must neither break a page nor be changed by it.
const oddKeys = "<script>alert(1)</script>\t\"><img src=x>\n\\x00\\xff&amp;\t\\xc3\n../../x?y=z#w\t1\n a b+c%20\t2\n{{.}}\t3\né\t4\n\t5\n"

// TestBrowseCrawl follows every link: all pages can be read, all keys are reached, and no
// page contains markup from the database.
func TestBrowseCrawl(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	mustSift(t, lines(1200)+oddKeys, "load", db)
	mustSift(t, "", "delete", db, "key000003")
	mustSift(t, "", "compact", db)
	mustSift(t, "key000007\tnew\n", "load", db)
	root := startBrowse(t, db)
	seen := map[string]bool{root: true}
	for queue := []string{root}; len(queue) > 0; queue = queue[1:] {
		page := queue[0]
		status, body := fetch(t, page)
		if status != http.StatusOK {
			t.Fatalf("%s: %d\n%s", page, status, body)
		}
		if strings.Contains(body, "<script") || strings.Contains(body, "<img") || strings.Contains(body, "ZgotmplZ") {
			t.Errorf("%s has markup from the database:\n%s", page, body)
		}
		for _, link := range linksOf(t, page, body) {
			// Read the pages of one key in a hundred, and of all odd keys.
			if strings.Contains(link, "key?key=key") && !strings.HasSuffix(link, "00") {
				seen[link] = true
				continue
			}
			if !seen[link] {
				seen[link] = true
				queue = append(queue, link)
			}
		}
	}
	keys := 0
	for link := range seen {
		if strings.Contains(link, "key?key=") {
			keys++
		}
	}
	if want := 1199 + strings.Count(oddKeys, "\n"); keys != want { // one is deleted
		t.Errorf("%d keys are linked to, want %d", keys, want)
	}
}

// TestBrowsePages checks the contents of the pages.
func TestBrowsePages(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	mustSift(t, lines(1200)+oddKeys, "load", db)
	mustSift(t, "key000007\tnew\n", "load", db)
	mustSift(t, "", "delete", db, "key000007")
	root := startBrowse(t, db)
	for _, c := range []struct {
		page   string
		status int
		want   []string
		absent string
	}{
		{page: "", want: []string{"<h1>Overview</h1>", "1,209", "tombstones", " in 1 log."}},
		{page: "keys?prefix=key&from=key000100", want: []string{"<code>key000100</code>", "<code>value 149</code>", `rel="next"`, `rel="prev"`, `value="key000100"`}, absent: "key000150</code>"},
		{page: "keys?prefix=key&before=key000100", want: []string{"<code>key000099</code>", "<code>key000050</code>"}, absent: "<code>key000100</code>"},
		{page: "keys?prefix=key&from=key001180", want: []string{"<code>key001199</code>"}, absent: `rel="next"`},
		{page: "keys?prefix=nothing", want: []string{"no keys"}},
		{page: "keys?from=%5Cq", status: http.StatusBadRequest, want: []string{"unknown escape"}},
		{page: "key?key=key000008", want: []string{"<pre>value 8</pre>", "put #", "positive"}},
		{page: "key?key=key000007", want: []string{"There is no such key", "delete #"}},
		{page: "key?key=key0000081", want: []string{"There is no such key", "excluded", "not searched"}},
		{page: "key?key=%5Cx00%5Cxff%26amp%3B", want: []string{`<code>\x00\xff&amp;amp;</code>`, `<pre>\xc3</pre>`}},
		{page: "key?key=a;b", status: http.StatusBadRequest},
		{page: "key?key=", want: []string{"<pre>5</pre>"}},
		{page: "tables", want: []string{"000005", "ribbon(12)", "<code>é</code>"}},
		{page: "tables?first=9", status: http.StatusNotFound},
		{page: "tables?first=-1", status: http.StatusBadRequest},
		{page: "filters", want: []string{"ribbon(12)", "%"}},
		{page: "table?number=5", want: []string{"filter of the family", "meta block", "sift.filter.policy", "separator"}},
		{page: "table?number=99", status: http.StatusNotFound},
		{page: "block?number=5&block=1", want: []string{"Table 000005", `rel="prev"`}},
		{page: "block?number=5&block=99999", status: http.StatusNotFound},
		{page: "nowhere", status: http.StatusNotFound, want: []string{"no such page"}},
	} {
		status, body := fetch(t, root+c.page)
		if c.status == 0 {
			c.status = http.StatusOK
		}
		if status != c.status {
			t.Errorf("%s: status %d, want %d", c.page, status, c.status)
		}
		for _, want := range c.want {
			if !strings.Contains(body, want) {
				t.Errorf("%s: no %q in\n%s", c.page, want, body)
			}
		}
		if c.absent != "" && strings.Contains(body, c.absent) {
			t.Errorf("%s contains %q", c.page, c.absent)
		}
	}
}

// TestBrowseBlocks: the pages of all blocks together show each entry of a table once.
func TestBrowseBlocks(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	mustSift(t, lines(1200), "load", db)
	root := startBrowse(t, "--hex", db)
	var keys []string
	for i := 0; ; i++ {
		_, body := fetch(t, fmt.Sprintf("%sblock?number=5&block=%d", root, i))
		for _, m := range regexp.MustCompile(`key\?key=([0-9a-f]*)"`).FindAllStringSubmatch(body, -1) {
			keys = append(keys, m[1])
		}
		if !strings.Contains(body, `rel="next"`) {
			break
		}
	}
	if len(keys) != 1200 {
		t.Errorf("%d entries", len(keys))
	}
	for i, key := range keys {
		if want := fmt.Sprintf("%x", fmt.Sprintf("key%06d", i)); key != want {
			t.Fatalf("entry %d is %s, want %s", i, key, want)
		}
	}
}

// TestBrowseDamage: a damaged block is reported on its page; the other blocks are still shown.
func TestBrowseDamage(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	mustSift(t, lines(1200), "load", db)
	path := filepath.Join(db, "000005.ldb")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content[10] ^= 1
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	root := startBrowse(t, db)
	for page, want := range map[string]string{
		"table?number=5":         "checksum mismatch",
		"block?number=5&block=0": "checksum mismatch",
		"block?block=0&number=5": "block=1",
		"block?number=5&block=1": "value ",
		"key?key=key000000":      "checksum mismatch",
		"keys":                   "checksum mismatch",
		"key?key=key001199":      "value 1199",
	} {
		if _, body := fetch(t, root+page); !strings.Contains(body, want) {
			t.Errorf("%s: no %q in\n%s", page, want, body)
		}
	}
}

// TestBrowseDefaultPort: browsers leave out port 80, and no other port.
func TestBrowseDefaultPort(t *testing.T) {
	for _, c := range []struct {
		ip   net.IP
		port int
		host string
		want bool
	}{
		{net.IPv4(127, 0, 0, 1), 80, "127.0.0.1", true},
		{net.IPv4(127, 0, 0, 1), 80, "127.0.0.1:80", true},
		{net.IPv4(127, 0, 0, 1), 80, "localhost", true},
		{net.IPv6loopback, 80, "[::1]", true},
		{net.IPv4(127, 0, 0, 1), 80, "attacker.example", false},
		{net.IPv4(127, 0, 0, 1), 8080, "127.0.0.1", false},
		{net.IPv4(127, 0, 0, 1), 8080, "localhost", false},
	} {
		b := &browser{addr: &net.TCPAddr{IP: c.ip, Port: c.port}}
		if got := b.isHost(c.host); got != c.want {
			t.Errorf("%v: isHost(%q) is %v", b.addr, c.host, got)
		}
	}
}

// TestBrowseRejects: requests without the secret path or with another host name are refused,
// and so is anything that writes.
func TestBrowseRejects(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	mustSift(t, "secret\tvalue\n", "load", db)
	root := startBrowse(t, db)
	u, err := url.Parse(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, host, path string
		status             int
	}{
		{"GET", u.Host, u.Path + "keys", http.StatusOK},
		{"HEAD", u.Host, u.Path, http.StatusOK},
		{"GET", "localhost:" + u.Port(), u.Path, http.StatusOK},
		{"GET", "attacker.example:" + u.Port(), u.Path, http.StatusMisdirectedRequest},
		{"GET", "127.0.0.1", u.Path, http.StatusMisdirectedRequest},
		{"GET", "", u.Path, http.StatusMisdirectedRequest},
		{"POST", u.Host, u.Path + "keys", http.StatusMethodNotAllowed},
		{"DELETE", u.Host, u.Path, http.StatusMethodNotAllowed},
		{"GET", u.Host, "/", http.StatusNotFound},
		{"GET", u.Host, "/keys", http.StatusNotFound},
		{"GET", u.Host, "/guess/keys", http.StatusNotFound},
		{"GET", u.Host, strings.ToLower(u.Path) + "keys", http.StatusNotFound},
	} {
		request, err := http.NewRequest(c.method, "http://"+u.Host+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if request.Host = c.host; c.host == "" {
			request.Host = "-"
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != c.status {
			t.Errorf("%s %s at %q: %d, %v; want %d", c.method, c.path, c.host, response.StatusCode, err, c.status)
		}
		if c.status != http.StatusOK && strings.Contains(string(body), "secret") {
			t.Errorf("%s %s at %q shows data: %s", c.method, c.path, c.host, body)
		}
		for name, want := range map[string]string{"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"} {
			if got := response.Header.Get(name); got != want {
				t.Errorf("%s %s: %s is %q", c.method, c.path, name, got)
			}
		}
	}
	if _, err := sift.Open(db, nil); err == nil {
		t.Error("the database can be written to")
	}
	for _, addr := range []string{"0.0.0.0:0", ":0", "192.0.2.1:80", "example.com:80", "127.0.0.1"} {
		if r := runSift(t, "", "browse", "--addr", addr, db); r.status != statusUsage || !strings.Contains(r.err, "--addr") {
			t.Errorf("--addr %s: %+v", addr, r)
		}
	}
	if r := runSift(t, "", "browse", db+"-none"); r.status != statusFailed {
		t.Errorf("without a database: %+v", r)
	}
}
