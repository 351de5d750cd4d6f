package serve

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// page returns a server's page at a path.
func page(t *testing.T, s *Server, path string) string {
	t.Helper()
	tr := &http.Transport{DisableKeepAlives: true}
	req, err := http.NewRequest("GET", "http://"+s.HTTPAddr().String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp.Status, err)
	}
	return string(b)
}

// INFO, /metrics and the status page agree, for a server with tables, filters of both kinds, and
// nonzero counters.
func TestFiguresAgree(t *testing.T) { everyWay(t, testFiguresAgree) }

func testFiguresAgree(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo, HTTPAddr: "127.0.0.1:0", Password: ""})
	c := dial(t, s)
	c.do("BF.RESERVE", "b<i>", "0.01", "3000", "NONSCALING")
	for i := range 3000 {
		c.do("BF.ADD", "b<i>", fmt.Sprint(i))
		c.do("CF.ADD", "cuckoo", fmt.Sprint(i))
		c.do("SET", fmt.Sprint("k", i), "v")
	}
	c.do("SET", "short", "v", "PX", "1")
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	for i := range 3000 {
		c.do("GET", fmt.Sprint("k", i))
	}
	for i := range 1000 {
		c.do("GET", fmt.Sprint("k", i, "none"))
	}
	c.do("NOSUCH")
	raw(t, s, "*1\r\n$-7\r\n")
	for deadline := time.Now().Add(20 * time.Second); s.stats.expired.Load() == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing expires")
		}
	}
	for s.figures().Clients > 1 {
		time.Sleep(time.Millisecond)
	}
	find := func(text, pattern string) string {
		t.Helper()
		m := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if m == nil {
			t.Errorf("no %s in\n%s", pattern, text)
			return ""
		}
		return m[1]
	}
	number := func(s string) float64 {
		t.Helper()
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Error(err)
		}
		return v
	}
	c.do("INFO") // counts the keys, which the next INFO does not
	info, metrics, status := c.do("INFO").(string), page(t, s, "/metrics"), page(t, s, "/")
	if way == goroutines { // INFO counts the buffer that it was read into
		info = strings.Replace(info, "\nrequest_memory:65536\r", "\nrequest_memory:0\r", 1)
	}

	for _, n := range []struct {
		info, metrics string
		least         float64 // a smaller value would prove nothing
	}{
		{"connected_clients", "clients", 1},
		{"filter_memory", "filter_memory_bytes", 5000},
		{"filters", "filters", 2},
		{"request_memory", "request_memory_bytes", 0},
		{"total_connections_received", "connections_total", 2},
		{"rejected_connections", "rejected_connections_total", 0},
		{"expired_keys", "expired_keys_total", 1},
		{"keyspace_hits", "keyspace_hits_total", 3000},
		{"keyspace_misses", "keyspace_misses_total", 1000},
		{"total_error_replies", "error_replies_total", 1},
		{"protocol_errors", "protocol_errors_total", 1},
		{"auth_failures", "auth_failures_total", 0},
		{"syncs", "syncs_total", 0},
		{"checkpoints", "checkpoints_total", 0},
		{"store_gets", "store_gets_total", 3000},
		{"store_block_reads", "store_block_reads_total", 1},
		{"store_cache_hits", "store_cache_hits_total", 1},
		{"store_filter_probes", "store_filter_probes_total", 1000},
		{"store_filter_reads_saved", "store_filter_reads_saved_total", 900},
		{"store_filter_false_positives", "store_filter_false_positives_total", 0},
		{"store_table_bytes", `level_bytes{level="0"}`, 1000},
	} {
		a := number(find(info, "(?m)^"+n.info+`:(\d+)\r$`))
		b := number(find(metrics, "(?m)^sift_"+regexp.QuoteMeta(n.metrics)+` (\S+)$`))
		if a != b || a < n.least {
			t.Errorf("%s: INFO %v, metrics %v, want at least %v", n.info, a, b, n.least)
		}
	}
	var commands float64
	for _, m := range regexp.MustCompile(`(?m)^sift_commands_total\{.*\} (\S+)$`).FindAllStringSubmatch(metrics, -1) {
		commands += number(m[1])
	}
	if a := number(find(info, `total_commands_processed:(\d+)`)); a != commands || a < 10000 {
		t.Errorf("commands: INFO %v, metrics %v", a, commands)
	}

	card := func(label string) string {
		t.Helper()
		return find(status, `<b>([^<]*)</b>`+label)
	}
	value := func(name string) uint64 {
		t.Helper()
		return uint64(number(find(info, "(?m)^"+name+`:(\d+)\r$`)))
	}
	probes, saved := value("store_filter_probes"), value("store_filter_reads_saved")
	for label, want := range map[string]string{
		"clients":            formatCount(value("connected_clients")),
		"commands":           formatCount(value("total_commands_processed")),
		"of GETs found":      "75%",
		"table reads saved":  formatCount(saved),
		"in 2 filters":       formatBytes(value("filter_memory")),
		"requests and repli": formatBytes(value("request_memory")),
	} {
		if got := card(label); got != want {
			t.Errorf("the page says %q %s, INFO %q", got, label, want)
		}
	}
	if got, want := find(status, `table reads saved <span class="dim">\((.*?)\)`), formatRate(float64(saved)/float64(probes)); got != want {
		t.Errorf("share saved: %s, want %s", got, want)
	}
	// The store's memory changes by itself, so the pages are compared when INFO returns the same
	// before and after them.
	var before, after, shown, counted string
	for deadline := time.Now().Add(20 * time.Second); ; {
		before = find(c.do("INFO").(string), `(?m)^store_memory:(\d+)\r$`)
		shown = find(page(t, s, "/"), `<b>([^<]*)</b>store`)
		counted = find(page(t, s, "/metrics"), `(?m)^sift_store_memory_bytes (\S+)$`)
		after = find(c.do("INFO").(string), `(?m)^store_memory:(\d+)\r$`)
		if before == after || time.Now().After(deadline) {
			break
		}
	}
	held := uint64(number(after))
	if before != after || shown != formatBytes(held) || number(counted) != number(after) {
		t.Errorf("memory of the store: INFO %s and %s, the page %s, metrics %s", before, after, shown, counted)
	}
	// It is all memory of the store except for garbage: memtables, the table's filter and index,
	// blocks.
	m := s.db.Metrics().Memory
	if live := m.Total() - m.Garbage; max(held, live)-min(held, live) > 1<<20 || m.Memtables == 0 || m.BlockCache < 1000 || m.Filters < 1000 {
		t.Errorf("memory of the store: %d, %+v", held, m)
	}
	cells := regexp.MustCompile(`<td[^>]*>([^<]*)</td>`)
	row := func(first string) (out []string) {
		t.Helper()
		for _, m := range cells.FindAllStringSubmatch(find(status, `(<tr><td[^>]*>`+first+`</td>.*</tr>)`), -1) {
			out = append(out, m[1])
		}
		return out
	}
	if got := fmt.Sprint(row("0")[:5]); got != fmt.Sprint([]string{"0", "1", formatBytes(value("store_table_bytes")), formatCount(probes), formatCount(saved)}) {
		t.Errorf("level 0: %s", got)
	}
	for key, kind := range map[string]string{"b<i>": "bloom", "cuckoo": "cuckoo"} {
		series := func(name string) float64 {
			t.Helper()
			return number(find(metrics, "(?m)^sift_filter_"+name+regexp.QuoteMeta(`{db="0",key="`+key+`",kind="`+kind+`"}`)+` (\S+)$`))
		}
		r := row(strings.NewReplacer("<", "&lt;", ">", "&gt;").Replace(key))
		if len(r) != 12 {
			t.Fatalf("row %q", r)
		}
		items, bytes, expected, observed := series("items"), series("bytes"), series("expected_fpr"), series("observed_fpr")
		if r[1] != kind || r[2] != formatCount(uint64(items)) || r[6] != formatBytes(uint64(bytes)) || r[4] != formatRate(expected) || r[5] != formatRate(observed) {
			t.Errorf("%s: the page says %q, metrics %v items, %v bytes, %v, %v", key, r, items, bytes, expected, observed)
		}
		if items < 2900 || expected < 0.001 || observed < expected/3 || observed > 3*expected {
			t.Errorf("%s: %v items, %v expected, %v observed", key, items, expected, observed)
		}
	}
}

// Filters that a FLUSHALL has yet to remove from memory have no figures: two of the same key would
// have the same labels.
func TestFiguresDuringFlush(t *testing.T) {
	db, _ := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo})
	if err != nil {
		t.Fatal(err)
	}
	c := localClient(s)
	for _, call := range []string{"BF.ADD f x", "SELECT 1", "BF.ADD f x"} {
		args := fields(call)
		c.do(lookup(args[0]), args)
	}
	if err := c.finishWrites(); err != nil {
		t.Fatal(err)
	}
	if states, n := s.filterStates(10); n != 2 || states[0].DB != 0 || states[1].DB != 1 {
		t.Errorf("%d filters: %v", n, states)
	}
	s.gens[0].Store(100)
	s.gens[1].Store(101)
	if states, n := s.filterStates(10); n != 0 {
		t.Errorf("%d filters of old generations: %v", n, states)
	}
}

// Keys that would break a page or a series are shortened and escaped, but stay distinct.
func TestShortKey(t *testing.T) {
	for key, want := range map[string]string{
		"plain":     "plain",
		"a\xff\n\"": `a\xff\n\"`,
		"é":         `\u00e9`,
	} {
		if got := shortKey(key); got != want {
			t.Errorf("shortKey(%q) = %q, want %q", key, got, want)
		}
	}
	long := strings.Repeat("x", 1<<20)
	a, b := shortKey(long+"a"), shortKey(long+"b")
	if a == b || len(a) > 150 || len(a) < len("(1048577 bytes, )")+80+32 {
		t.Errorf("two long keys are shortened to %q and %q", a, b)
	}
}

// The number of connections to the status page is bounded. New ones are accepted again after some
// have been closed.
func TestHTTPLimit(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo, HTTPAddr: "127.0.0.1:0"})
	var conns []net.Conn
	for range maxHTTPClients {
		conn, err := net.Dial("tcp", s.HTTPAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		io.WriteString(conn, "GET / HTTP/1.1\r\n") // and no more
	}
	conn, err := net.Dial("tcp", s.HTTPAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("a connection beyond the limit reads %d bytes, %v", n, err)
	}
	conn.Close()
	for _, conn := range conns {
		conn.Close()
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", s.HTTPAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(deadline)
		io.WriteString(conn, "GET /metrics HTTP/1.0\r\n\r\n")
		b, _ := io.ReadAll(conn)
		conn.Close()
		if strings.HasPrefix(string(b), "HTTP/1.0 200") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still refused: %.100q", b)
		}
	}
}
