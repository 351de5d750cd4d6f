package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
		if s := decode(t, line); s["bitsPerKey"].(float64) < 6.6 {
			t.Errorf("size %v", s)
		}
	}
}

// TestJSONOfDamage: the faults are in the output, and the status says that there are some.
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
		"completion ":               "",
		"frobnicate --nonsense=3 z": "",
		"scan -- -":                 "",
	} {
		args := append([]string{"complete", "--"}, strings.Split(words, " ")...)
		if out := mustSift(t, "", args...); out != want {
			t.Errorf("after %q may come %q, want %q", words, out, want)
		}
	}
	if out := mustSift(t, "", "complete", "--", ""); !strings.Contains(out, "get\nput\n") || strings.Contains(out, "complete\n") {
		t.Errorf("verbs: %s", out)
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

func TestVersionVerb(t *testing.T) {
	if out := mustSift(t, "", "version"); !strings.HasPrefix(out, "sift ") || out != mustSift(t, "", "--version") {
		t.Errorf("version prints %q", out)
	}
}
