package serve

import (
	cmdline "flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = cmdline.Bool("update", false, "write the tables of commands and libraries in docs/serve.md")

const docsPage = "../../docs/serve.md"

// generated returns the text of docs/serve.md between a comment and the next end comment, and the
// texts before and after it.
func generated(t *testing.T, begin string) (before, text, after string) {
	t.Helper()
	b, err := os.ReadFile(docsPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), begin)
	text, after, ok2 := strings.Cut(rest, "<!-- end -->")
	if !ok || !ok2 {
		t.Fatalf("docs/serve.md has no %s", begin)
	}
	return before + begin, text, "<!-- end -->" + after
}

// rowInDocs checks that the table of docs/serve.md has this row for a library, or a suite of tests,
// that has just run.
func rowInDocs(t *testing.T, row string) {
	t.Helper()
	before, table, after := generated(t, "<!-- libraries: each row written by the test that ran it -->\n")
	if strings.Contains(table, "\n"+row+"\n") {
		return
	}
	if !*update {
		t.Errorf("docs/serve.md does not have the row of what ran; run the test with -update:\n%s", row)
		return
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " |")
	var rows []string
	for line := range strings.Lines(table) {
		if line = strings.TrimSuffix(line, "\n"); line != "" && !strings.HasPrefix(line, "| "+name+" |") {
			rows = append(rows, line)
		}
	}
	table = "\n" + strings.Join(append(rows, row), "\n") + "\n\n"
	if err := os.WriteFile(docsPage, []byte(before+table+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The table of commands in docs/serve.md is up to date.
func TestCommandsInDocs(t *testing.T) {
	before, got, after := generated(t, "<!-- commands: written by TestCommandsInDocs -->\n")
	groups := []struct {
		title string
		names []string
	}{{title: "strings and bits"}, {title: "keys and databases"}, {title: "transactions"}, {title: "Bloom filters"}, {title: "cuckoo filters"}, {title: "connections and server"}}
	for _, name := range commandNames() {
		g := &groups[commandGroup(commands[name])]
		text := "`" + strings.ToUpper(name) + "`"
		if subs := slices.Sorted(maps.Keys(subcommands[name])); subs != nil {
			text += " (" + strings.Join(subs, ", ") + ")"
		}
		g.names = append(g.names, text)
	}
	var want strings.Builder
	want.WriteString("\n| | |\n|---|---|\n")
	for _, g := range groups {
		want.WriteString("| " + g.title + " | " + strings.Join(g.names, ", ") + " |\n")
	}
	want.WriteString("\n")
	if got == want.String() {
		return
	}
	if !*update {
		t.Fatal("docs/serve.md does not list the commands of the code; run the test with -update")
	}
	if err := os.WriteFile(docsPage, []byte(before+want.String()+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func commandGroup(cmd *command) int {
	switch name := cmd.name; {
	case strings.HasPrefix(name, "bf."):
		return 3
	case strings.HasPrefix(name, "cf."):
		return 4
	case name == "multi" || name == "exec" || name == "discard" || name == "watch" || name == "unwatch":
		return 2
	case cmd.noKeys() && name != "keys" && name != "scan" && name != "randomkey" && name != "dbsize" && name != "flushall" && name != "flushdb" && name != "swapdb":
		return 5
	}
	switch cmd.name {
	case "del", "unlink", "exists", "type", "object", "ttl", "pttl", "expiretime", "pexpiretime", "expire", "pexpire", "expireat", "pexpireat", "persist",
		"rename", "renamenx", "copy", "move", "touch", "memory", "dump", "restore", "keys", "randomkey", "scan", "dbsize", "flushall", "flushdb", "swapdb":
		return 1
	}
	return 0
}
