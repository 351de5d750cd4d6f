package serve

import (
	cmdline "flag"
	"os"
	"strings"
	"testing"
)

var update = cmdline.Bool("update", false, "write the table of commands in docs/serve.md")

// The table of commands in docs/serve.md is that of the code.
func TestCommandsInDocs(t *testing.T) {
	const name, begin, end = "../../docs/serve.md", "<!-- commands: written by TestCommandsInDocs -->\n", "<!-- end -->"
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), begin)
	got, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("docs/serve.md has no place for the commands")
	}
	groups := []struct {
		title string
		names []string
	}{{title: "strings and bits"}, {title: "keys and databases"}, {title: "transactions"}, {title: "Bloom filters"}, {title: "cuckoo filters"}, {title: "connections and server"}}
	for _, name := range commandNames() {
		g := &groups[commandGroup(commands[name])]
		text := "`" + strings.ToUpper(name) + "`"
		if subs := subcommands[strings.ToUpper(name)]; subs != nil {
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
		t.Fatal("docs/serve.md does not have the commands that there are; run the test with -update")
	}
	if err := os.WriteFile(name, []byte(before+begin+want.String()+end+after), 0o644); err != nil {
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
