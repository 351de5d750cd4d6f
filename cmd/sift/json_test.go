package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/siftdb/sift"
)

// decode reads one JSON value that a command has printed.
func decode(t *testing.T, out string) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	return v
}

func TestJSON(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	mustSift(t, "a\t1\nb<&>\\xff\t\\x00\nc\t\n", "load", db)

	if out := mustSift(t, "", "get", "--json", db, `b<&>\xff`); out != `{"key":"b<&>\\xff","value":"\\x00"}`+"\n" {
		t.Errorf("get prints %s", out)
	}
	// The key is printed as scan prints it, however it was given: JSON has no other bytes than
	// UTF-8.
	if out := mustSift(t, "", "get", "--json", db, "\\x62<&>\xff"); out != `{"key":"b<&>\\xff","value":"\\x00"}`+"\n" {
		t.Errorf("get of a key in another form prints %s", out)
	}
	if r := runSift(t, "", "get", "--json", db, "none"); r.status != statusNotFound || r.out != "" {
		t.Errorf("get of an absent key: %+v", r)
	}
	want := `{"key":"c","value":""}
{"key":"b<&>\\xff","value":"\\x00"}
`
	if out := mustSift(t, "", "scan", "--json", "--reverse", "--limit", "2", db); out != want {
		t.Errorf("scan prints\n%s\nwant\n%s", out, want)
	}
	if out := mustSift(t, "", "scan", "--json", "--keys", "--hex", "--to", "62", db); out != `{"key":"61"}`+"\n" {
		t.Errorf("scan --keys prints %s", out)
	}
	if out := mustSift(t, "", "scan", "--json", "--count", db); out != `{"keys":3}`+"\n" {
		t.Errorf("scan --count prints %s", out)
	}

	stats := decode(t, mustSift(t, "", "stats", "--json", "--tables", db))
	if levels := stats["levels"].([]any); len(levels) != 1 || levels[0].(map[string]any)["level"] != 0.0 || levels[0].(map[string]any)["keys"] != 3.0 {
		t.Errorf("levels %v", stats["levels"])
	}
	if table := stats["tables"].([]any)[0].(map[string]any); table["smallest"] != "a" || table["largest"] != "c" || table["filter"] != "ribbon(12)" {
		t.Errorf("table %v", table)
	}
	var path string
	for line := range strings.Lines(mustSift(t, "", "tables", "--json", db)) {
		table := decode(t, line)
		if path, _ = table["path"].(string); table["level"] != 0.0 || table["smallest"] != "a" || table["largest"] != "c" || table["keys"] != 3.0 {
			t.Errorf("table %v", table)
		}
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("tables has no path: %v", err)
	}
	if b := decode(t, mustSift(t, "", "filter", "build", "--json", "--filter", "bloom(10)", db)); b["rewritten"] != 1.0 || b["filterBytes"].(float64) == 0 {
		t.Errorf("filter build %v", b)
	}
	file := filepath.Join(t.TempDir(), "filter")
	if b := decode(t, mustSift(t, "a\nb\na\n", "filter", "live", "build", "--json", "bloom(items=100,fpr=0.001)", "-o", file)); b["lines"] != 3.0 || b["new"] != 2.0 || b["bytes"].(float64) == 0 {
		t.Errorf("filter live build %v", b)
	}
	if q := decode(t, mustSift(t, "a\nb\nc\n", "filter", "live", "query", "--json", file)); q["lines"] != 3.0 || q["found"] != 2.0 {
		t.Errorf("filter live query %v", q)
	}
	if m := decode(t, mustSift(t, "", "filter", "live", "merge", "--json", file, file, "-o", file+"2")); m["files"] != 2.0 || m["kind"] != "bloom" || m["count"] != 2.0 {
		t.Errorf("filter live merge %v", m)
	}
	if check := decode(t, mustSift(t, "", "check", "--json", db)); check["keys"] != 3.0 || len(check["faults"].([]any)) != 0 {
		t.Errorf("check %v", check)
	}
	if f := decode(t, mustSift(t, "", "filter", "stats", "--json", db)); f["tables"].([]any)[0].(map[string]any)["observedFPR"] == nil {
		t.Errorf("filter stats %v", f)
	}
	if p := decode(t, mustSift(t, "", "filter", "plan", "--json", "--memory", "1MiB", db)); p["wastedReadsWithoutFilters"] != 1.0 {
		t.Errorf("filter plan %v", p)
	}
	for line := range strings.Lines(mustSift(t, "", "filter", "size", "--json", "--keys", "1e6")) {
		if s := decode(t, line); s["bitsPerKey"].(float64) < 6.6 || s["bytes"].(float64) != math.Trunc(s["bytes"].(float64)) {
			t.Errorf("size %v", s)
		}
	}
}

// TestJSONNoTables: a database without tables has an empty list of them.
func TestJSONNoTables(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	mustSift(t, "", "load", db)
	if list, ok := decode(t, mustSift(t, "", "stats", "--tables", "--json", db))["tables"].([]any); !ok || len(list) != 0 {
		t.Errorf("tables: %v, %t", list, ok)
	}
	if _, ok := decode(t, mustSift(t, "", "stats", "--json", db))["tables"]; ok {
		t.Error("tables without --tables")
	}
}

// TestJSONNull checks that the objects of tables have all values: null if unknown, and 0 or an
// empty string if that is the value.
func TestJSONNull(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	mustSift(t, "\tthe empty key\n", "load", db)
	table := func(args ...string) map[string]any {
		return decode(t, mustSift(t, "", append(args, "--json", db)...))["tables"].([]any)[0].(map[string]any)
	}
	probed := table("filter", "stats", "--probes", "0")
	planned := table("filter", "plan", "--memory", "1")
	for _, c := range []struct {
		what   string
		object map[string]any
		key    string
		want   any
	}{
		{"without probes", probed, "observedFPR", nil},
		{"without probes", probed, "heldUnits", 1.0},
		{"without memory", planned, "heldUnits", 0.0},
		{"without memory", planned, "filterUnits", 1.0},
		{"tables", decode(t, mustSift(t, "", "tables", "--json", db)), "smallest", ""},
		{"stats", table("stats", "--tables"), "largest", ""},
	} {
		if value, ok := c.object[c.key]; !ok || value != c.want {
			t.Errorf("%s, %s: %v, %t; want %v", c.what, c.key, value, ok, c.want)
		}
	}
}

// typesOf counts the types of the lines of dump --json.
func typesOf(t *testing.T, out string) map[string]int {
	t.Helper()
	types := make(map[string]int)
	for line := range strings.Lines(out) {
		types[decode(t, line)["type"].(string)]++
	}
	return types
}

// TestDumpJSON: dump prints the same parts of a file as JSON and as text.
func TestDumpJSON(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	mustSift(t, lines(1000), "load", db)
	out := mustSift(t, "", "dump", "--json", "--entries", filepath.Join(db, "000005.ldb"))
	blocks := strings.Count(mustSift(t, "", "dump", filepath.Join(db, "000005.ldb")), "  data ")
	types := typesOf(t, out)
	if types["file"] != 1 || types["entry"] != 1000 || types["block"] != blocks+5 || types["filter"] != 1 || types["property"] < 10 || len(types) != 5 {
		t.Errorf("a table with %d data blocks: %v", blocks, types)
	}
	for _, want := range []string{
		`{"type":"entry","key":"key000999","sequence":1000,"kind":"put","value":"value 999"}`,
		`{"type":"property","name":"sift.filter.policy","value":"ribbon(12)"}`,
		`{"type":"property","name":"sift.filter.fpr","value":"0.0`, // a fraction, not in percent
		`"kind":"footer"`, `"kind":"meta","name":"fullfilter.sift.Ribbon"`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}

	path, _ := logFile(t, batchRecord(1, 0, ""), batchRecord(1, 2, "\x01\x01a\x02x\xff\x00\x01b"), []byte("no batch"))
	r := runSift(t, "", "dump", "--json", "--entries", path)
	want := `{"type":"file","kind":"log","path":` + quoted(path) + `,"bytes":62}
{"type":"durability marker","offset":0,"bytes":12,"first":1}
{"type":"batch","offset":19,"bytes":21,"first":1,"last":2,"puts":1,"deletes":1}
{"type":"entry","key":"a","sequence":1,"kind":"put","value":"x\\xff"}
{"type":"entry","key":"b","sequence":2,"kind":"delete"}
{"type":"bad record","offset":47,"bytes":8,"error":"header ends too early"}
{"type":"end","kind":"clean","offset":62}
{"type":"totals","records":3,"durabilityMarkers":1,"batches":1,"puts":1,"deletes":1,"first":1,"last":2}
`
	if r.status != statusFailed || r.out != want {
		t.Errorf("dump of a log: status %d, prints\n%s\nwant\n%s", r.status, r.out, want)
	}

	types = typesOf(t, mustSift(t, "", "dump", "--json", filepath.Join("testdata", "MANIFEST-000009")))
	if types["file"] != 1 || types["edit"] == 0 || types["table"] == 0 || types["end"] != 1 || len(types) != 4 {
		t.Errorf("a MANIFEST: %v", types)
	}
	if r := runSift(t, "", "dump", "--json", db); r.status != statusFailed || r.out != "" {
		t.Errorf("a directory: %+v", r)
	}
}

// quoted returns a string as JSON.
func quoted(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string can always be encoded
	}
	return string(text)
}

// TestJSONOfDamage: damage is in the output, and the exit status is 3.
func TestJSONOfDamage(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	mustSift(t, lines(1000), "load", db)
	tables, err := filepath.Glob(filepath.Join(db, "*.ldb"))
	if err != nil || len(tables) != 1 {
		t.Fatal(tables, err)
	}
	content, err := os.ReadFile(tables[0])
	if err != nil {
		t.Fatal(err)
	}
	content[100] ^= 1
	if err := os.WriteFile(tables[0], content, 0o644); err != nil {
		t.Fatal(err)
	}
	r := runSift(t, "", "check", "--json", db)
	if check := decode(t, r.out); r.status != statusFailed || len(check["faults"].([]any)) == 0 {
		t.Errorf("status %d: %s", r.status, r.out)
	}
	r = runSift(t, "", "dump", "--json", tables[0])
	if r.status != statusFailed || !strings.Contains(r.out, `"error":"checksum mismatch`) {
		t.Errorf("dump: status %d: %s", r.status, r.out)
	}

	// The status is also 3 if the reader closes the pipe after the damage was printed.
	gone := &failingWriter{err: io.ErrClosedPipe}
	e := &env{ctx: context.Background(), out: bufio.NewWriterSize(gone, 4096), err: io.Discard}
	err = (&dumpCmd{As: "auto", Entries: true, File: tables[0]}).Run(e)
	if status := e.fail(err); status != statusFailed {
		t.Errorf("dump without a reader: %v, status %d", err, status)
	}
	e.out = bufio.NewWriterSize(gone, 16)
	err = (&checkCmd{}).json(e, &sift.CheckReport{Faults: 1}, []string{"a fault of a table"}, true)
	if status := e.fail(err); status != statusFailed {
		t.Errorf("check without a reader: %v, status %d", err, status)
	}
}

func TestScanCountAndReverse(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	mustSift(t, "a\t1\nb\t2\nc\t3\n", "load", db)
	for args, want := range map[string]string{
		"--reverse":            "c\t3\nb\t2\na\t1\n",
		"--reverse --from b":   "c\t3\nb\t2\n",
		"--reverse --to c":     "b\t2\na\t1\n",
		"--reverse --limit 1":  "c\t3\n",
		"--keys --prefix b":    "b\n",
		"--count":              "3\n",
		"--count --from b":     "2\n",
		"--count --limit 2":    "2\n",
		"--count --prefix z":   "0\n",
		"--limit 0 --reverse":  "",
		"--keys-only --from c": "c\n",
	} {
		if out := mustSift(t, "", append(append([]string{"scan"}, strings.Fields(args)...), db)...); out != want {
			t.Errorf("scan %s prints %q, want %q", args, out, want)
		}
	}
}

func TestCompletion(t *testing.T) {
	for words, want := range map[string]string{
		"ge":                        "get\n",
		"filter s":                  "stats\nsize\n",
		"filter stats --p":          "--probes\n",
		"scan --prefix x --rev":     "--reverse\n",
		"dump --as t":               "table\n",
		"dump --as log --en":        "--entries\n",
		"completion ":               "bash\nzsh\nfish\n",
		"completion f":              "fish\n",
		"completion fish ":          "",
		"sh":                        "shell\n",
		"br":                        "browse\n",
		"browse --ad":               "--addr\n",
		"dump --js":                 "--json\n",
		"frobnicate --nonsense=3 z": "",
		"scan -- -":                 "",
	} {
		args := append([]string{"complete", "--"}, strings.Split(words, " ")...)
		if out := mustSift(t, "", args...); out != want {
			t.Errorf("completions of %q: %q, want %q", words, out, want)
		}
	}
	if out := mustSift(t, "", "complete", "--", ""); !strings.Contains(out, "get\nput\n") || strings.Contains(out, "complete\n") {
		t.Errorf("commands: %s", out)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if !strings.Contains(mustSift(t, "", "completion", shell), "sift complete") {
			t.Error(shell)
		}
	}
	if r := runSift(t, "", "completion", "tcsh"); r.status != statusUsage {
		t.Errorf("an unknown shell: %+v", r)
	}
}

func TestVersionCommand(t *testing.T) {
	if out := mustSift(t, "", "version"); !strings.HasPrefix(out, "sift ") || out != mustSift(t, "", "--version") {
		t.Errorf("version prints %q", out)
	}
}
