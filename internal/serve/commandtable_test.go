package serve

import (
	"strings"
	"testing"
)

// COMMAND GETKEYS of a command whose key comes after a subcommand.
func TestCommandGetKeysOfSubcommands(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c := dial(t, s)
	const none = "ERR The command has no key arguments"
	for call, want := range map[string]failure{
		"OBJECT HELP": none, "MEMORY HELP": none, "CONFIG HELP": none,
		"OBJECT ENCODING": "ERR Invalid number of arguments specified for command", "OBJECT NOSUCH": "ERR Invalid command specified",
	} {
		if got := c.do(append([]string{"COMMAND", "GETKEYS"}, strings.Fields(call)...)...); got != want {
			t.Errorf("%s: %v, want %v", call, got, want)
		}
	}
	got, ok := c.do("COMMAND", "GETKEYS", "OBJECT", "ENCODING", "k").([]any)
	if !ok || len(got) != 1 || got[0] != "k" {
		t.Errorf("OBJECT ENCODING k: %v", got)
	}
}
