package serve

import (
	"iter"
	"slices"
	"sort"
	"strings"
)

// subcommands lists the subcommands of each command that has any, with their arity, which counts
// both names.
var subcommands = map[string]map[string]int{
	"client": {"getname": 2, "getredir": 2, "help": 2, "id": 2, "info": 2, "kill": -3, "list": -2, "no-evict": 3, "no-touch": 3, "pause": -3,
		"reply": 3, "setinfo": 4, "setname": 3, "unblock": -3, "unpause": 2},
	"cluster": {"failover": -2, "forget": 3, "help": 2, "info": 2, "join": -5, "keyslot": 3, "myid": 2, "node": -3, "nodes": 2, "shards": 2, "slots": 2},
	"command": {"count": 2, "docs": -2, "getkeys": -4, "help": 2, "info": -2, "list": -2},
	"config":  {"get": -3, "help": 2, "resetstat": 2, "rewrite": 2, "set": -4},
	"memory":  {"help": 2, "usage": -3},
	"object":  {"encoding": 3, "freq": 3, "help": 2, "idletime": 3, "refcount": 3},
	"slowlog": {"get": -2, "help": 2, "len": 2, "reset": 2},
}

// fits reports whether a number of arguments, including the name, matches an arity.
func fits(arity, args int) bool { return args == arity || arity < 0 && args >= -arity }

// misfit returns the error for a wrong subcommand or number of arguments, "" if both are right. It
// is checked even within MULTI.
func (cmd *command) misfit(args [][]byte) string {
	if !fits(cmd.arity, len(args)) {
		return wrongArgs(cmd.name)
	}
	if cmd.flags&hasSub == 0 || len(args) == 1 {
		return ""
	}
	sub := lower(clip(args[1], longestName))
	switch arity, ok := subcommands[cmd.name][sub]; {
	case !ok:
		return "ERR unknown subcommand '" + string(clip(cString(args[1]), 128)) + "'. Try " + cmd.upper + " HELP."
	case !fits(arity, len(args)):
		return wrongArgs(cmd.name + "|" + sub)
	}
	return ""
}

func wrongArgs(name string) string {
	return "ERR wrong number of arguments for '" + name + "' command"
}

// commandNames returns the names of all commands, sorted.
func commandNames() []string {
	names := make([]string, 0, len(commands))
	for name := range commands {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func commandCommand(c *client, args [][]byte) {
	sub := func(name string) bool { return len(args) > 1 && is(args[1], name) }
	switch {
	case len(args) == 1, sub("INFO") && len(args) == 2:
		c.w.Array(len(commands))
		for _, name := range commandNames() {
			c.describe(commands[name])
		}
	case sub("COUNT") && len(args) == 2:
		c.w.Int(int64(len(commands)))
	case sub("LIST"):
		commandList(c, args[2:])
	case sub("DOCS"):
		c.w.Map(0)
	case sub("INFO"):
		c.w.Array(len(args) - 2)
		for _, name := range args[2:] {
			if cmd := lookup(name); cmd != nil {
				c.describe(cmd)
			} else {
				c.w.NilArray()
			}
		}
	case sub("GETKEYS") && len(args) > 3:
		commandGetKeys(c, args[2:])
	case sub("HELP") && len(args) == 2:
		c.help("COMMAND", "(no subcommand)", "COUNT", "DOCS [<command> ...]", "GETKEYS <command> <args>", "INFO [<command> ...]", "LIST [FILTERBY (MODULE <name>|ACLCAT <category>|PATTERN <pattern>)]")
	default:
		c.badSubcommand(args)
	}
}

func commandList(c *client, args [][]byte) {
	wanted := func(string) bool { return true }
	switch {
	case len(args) == 0:
	case len(args) != 3 || !is(args[0], "FILTERBY"):
		c.reply(errSyntax)
		return
	case is(args[1], "PATTERN"):
		wanted = func(name string) bool { return glob([]byte(lower(args[2])), []byte(name)) }
	case is(args[1], "MODULE"):
		wanted = func(name string) bool {
			return is(args[2], "bf") && (strings.HasPrefix(name, "bf.") || strings.HasPrefix(name, "cf."))
		}
	case is(args[1], "ACLCAT"):
		wanted = func(name string) bool { return commands[name].flags&isWrite != 0 && is(args[2], "write") }
	default:
		c.reply(errSyntax)
		return
	}
	var names []string
	for _, name := range commandNames() {
		if wanted(name) {
			names = append(names, name)
		}
	}
	c.w.Array(len(names))
	for _, name := range names {
		c.w.BulkString(name)
	}
}

// keyPlaces returns the positions of the first and the last key among the arguments and the step
// between keys. A negative position counts from the end. If there are no keys, all are 0.
func (cmd *command) keyPlaces() (first, last, step int) {
	switch cmd.name {
	case "del", "unlink", "exists", "mget", "touch", "watch":
		return 1, -1, 1
	case "mset", "msetnx":
		return 1, -1, 2
	case "rename", "renamenx", "copy", "lcs":
		return 1, 2, 1
	case "object", "memory":
		return 2, 2, 1
	case "bitop":
		return 2, -1, 1
	}
	if cmd.noKeys() {
		return 0, 0, 0
	}
	return 1, 1, 1
}

// maxKeyBytes is the maximum length of the keys that commands can create. Of each table the store
// keeps the first and the last key in memory, and it copies these for each flush and compaction:
// with 16 keys of 16 MiB it took 5 GB.
const maxKeyBytes = 1 << 20

// hasLongKey reports whether the command might create a key that is too long.
func (cmd *command) hasLongKey(args [][]byte) bool {
	if !slices.ContainsFunc(args, func(a []byte) bool { return len(a) > maxKeyBytes }) || cmd.name == "del" || cmd.name == "unlink" {
		return false
	}
	for key := range cmd.keys(args) {
		if len(key) > maxKeyBytes {
			return true
		}
	}
	return false
}

// keys returns the keys among the arguments of a call.
func (cmd *command) keys(args [][]byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		first, last, step := cmd.keyPlaces()
		if last < 0 {
			last += len(args)
		}
		for i := first; first > 0 && i <= min(last, len(args)-1); i += step { // HELP, a subcommand, has no keys
			if !yield(args[i]) {
				return
			}
		}
	}
}

// noKeys reports whether a command has no key arguments.
func (cmd *command) noKeys() bool {
	switch cmd.name {
	case "ping", "echo", "select", "quit", "auth", "hello", "reset", "client", "config", "command", "info", "time", "multi", "exec", "discard", "unwatch",
		"scan", "keys", "randomkey", "dbsize", "flushall", "flushdb", "swapdb", "slowlog", "save", "bgsave", "bgrewriteaof", "lastsave", "wait", "shutdown",
		"cluster", "readonly", "readwrite":
		return true
	}
	return false
}

func commandGetKeys(c *client, args [][]byte) {
	cmd := lookup(args[0])
	if cmd == nil {
		c.w.Error("ERR Invalid command specified")
		return
	}
	switch text := cmd.misfit(args); {
	case strings.HasPrefix(text, "ERR unknown subcommand"):
		c.w.Error("ERR Invalid command specified")
		return
	case text != "":
		c.w.Error("ERR Invalid number of arguments specified for command")
		return
	}
	keys := slices.Collect(cmd.keys(args))
	if len(keys) == 0 {
		c.w.Error("ERR The command has no key arguments")
		return
	}
	c.w.Array(len(keys))
	for _, key := range keys {
		c.w.Bulk(key)
	}
}

// describe writes name, arity, flags, the first and last key and the step between keys, and empty
// arrays for categories, tips, key specifications and subcommands, which newer versions of Redis
// add.
func (c *client) describe(cmd *command) {
	first, last, step := cmd.keyPlaces()
	arity := int64(cmd.arity)
	if cmd.max > 0 {
		arity = -max(arity, -arity)
	}
	kind := "readonly"
	if cmd.flags&isWrite != 0 {
		kind = "write"
	}
	c.w.Array(10)
	c.w.BulkString(cmd.name)
	c.w.Int(arity)
	c.w.Array(1)
	c.w.Simple(kind)
	c.w.Int(int64(first))
	c.w.Int(int64(last))
	c.w.Int(int64(step))
	for range 4 {
		c.w.Array(0)
	}
}
