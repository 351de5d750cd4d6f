package serve

import (
	"strings"
	"sync/atomic"
)

type flag uint16

const (
	isWrite   flag = 1 << iota // rejected after the store has failed
	noAuth                     // allowed without a password
	exclusive                  // world is held for writing
	notQueued                  // executed at once within MULTI
	unlocked                   // runs without world, since it may be slow
	noMulti                    // refused within MULTI
	hasSub                     // the first argument is a subcommand
	collects                   // a SET without options or an MSET: may wait for the end of the pipeline
	long                       // may take a long time
	free                       // takes no lock but world, so other clients cannot delay it
	extends                    // may write a value that is much longer than the command
	rewrites                   // may write a value that is not in its arguments
)

// command is an entry of the table. A positive arity is the number of arguments, including the
// name; a negative one is the minimum, negated. max, if not 0, is the maximum; within MULTI it is
// checked only when the command is executed.
type command struct {
	name  string
	upper string // the name in capitals
	arity int
	max   int
	flags flag
	run   func(c *client, args [][]byte)

	calls, rejected, failed atomic.Uint64
	nanos                   atomic.Int64
}

const (
	longestName = 32
	// A command with more arguments or bytes is long.
	shortArgs  = 128
	shortBytes = 64 << 10
	// A command with this many bytes or arguments is heavy: others may have to wait for its write.
	heavyBytes, heavyArgs = 1 << 20, 10 * shortArgs
)

// isLong reports whether a command may delay others: it processes much data, waits for all others,
// or has many or large arguments.
func (cmd *command) isLong(args, bytes int) bool {
	return cmd.flags&(exclusive|unlocked|long) != 0 || args > shortArgs || bytes > shortBytes
}

// isCollected reports whether the command only adds to the batch that is written at the end of the
// pipeline.
func (cmd *command) isCollected(args [][]byte) bool {
	return cmd.flags&collects != 0 && (len(args) == 3 || cmd.name == "mset")
}

// lookup is the function lookup, except that it tries the previous command first: in a pipeline,
// commands are mostly the same.
func (c *client) lookup(name []byte) *command {
	if cmd := c.before; cmd != nil && (string(name) == cmd.upper || string(name) == cmd.name) {
		return cmd
	}
	c.before = lookup(name)
	return c.before
}

// lookup finds a command by its name in any case.
func lookup(name []byte) *command {
	if len(name) > longestName {
		return nil
	}
	var lower [longestName]byte
	for i, b := range name {
		if b >= 'A' && b <= 'Z' {
			b += 'a' - 'A'
		}
		lower[i] = b
	}
	return commands[string(lower[:len(name)])]
}

// commands are all commands by name. init fills it, because some commands refer to it.
var commands = map[string]*command{}

func init() {
	for _, c := range []*command{
		{name: "ping", arity: -1, max: 2, flags: free, run: ping},
		{name: "echo", arity: 2, flags: free, run: echo},
		{name: "select", arity: 2, run: selectDB},
		{name: "quit", arity: -1, flags: noAuth | notQueued, run: quit},
		{name: "auth", arity: -2, flags: noAuth, run: auth},
		{name: "hello", arity: -1, flags: noAuth, run: hello},
		{name: "reset", arity: 1, flags: noAuth | notQueued, run: reset},
		{name: "client", arity: -2, flags: hasSub | long, run: clientCommand},
		{name: "config", arity: -2, flags: hasSub, run: config},
		{name: "command", arity: -1, flags: hasSub | long, run: commandCommand},
		{name: "info", arity: -1, flags: unlocked, run: info},
		{name: "time", arity: 1, flags: free, run: timeCommand},
		{name: "slowlog", arity: -2, flags: hasSub | long, run: slowlogCommand},
		{name: "save", arity: 1, flags: unlocked | noMulti, run: saveCommand},
		{name: "bgsave", arity: -1, run: bgSave},
		{name: "bgrewriteaof", arity: 1, run: bgSave},
		{name: "lastsave", arity: 1, run: lastSave},
		{name: "wait", arity: 3, flags: unlocked, run: waitCommand},
		{name: "shutdown", arity: -1, flags: noMulti, run: shutdown},
		{name: "cluster", arity: -2, flags: hasSub | unlocked, run: clusterCommand},
		{name: "readonly", arity: 1, run: readOnly},
		{name: "readwrite", arity: 1, run: readOnly},
		{name: "multi", arity: 1, flags: notQueued, run: multi},
		{name: "exec", arity: 1, flags: notQueued | exclusive, run: execCommand},
		{name: "watch", arity: -2, flags: notQueued, run: watch},
		{name: "unwatch", arity: 1, run: unwatchCommand},
		{name: "discard", arity: 1, flags: notQueued, run: discard},

		{name: "get", arity: 2, flags: free, run: get},
		{name: "set", arity: -3, flags: isWrite | collects, run: set},
		{name: "setnx", arity: 3, flags: isWrite, run: setNX},
		{name: "setex", arity: 4, flags: isWrite, run: setEX},
		{name: "psetex", arity: 4, flags: isWrite, run: setEX},
		{name: "getset", arity: 3, flags: isWrite, run: getSet},
		{name: "getdel", arity: 2, flags: isWrite, run: getDel},
		{name: "mget", arity: -2, flags: free, run: mget},
		{name: "mset", arity: -3, flags: isWrite | collects, run: mset},
		{name: "strlen", arity: 2, flags: free, run: strlen},
		{name: "append", arity: 3, flags: isWrite | rewrites, run: appendCommand},
		{name: "incr", arity: 2, flags: isWrite, run: incr},
		{name: "decr", arity: 2, flags: isWrite, run: incr},
		{name: "incrby", arity: 3, flags: isWrite, run: incr},
		{name: "decrby", arity: 3, flags: isWrite, run: incr},
		{name: "getex", arity: -2, flags: isWrite | rewrites, run: getEX},
		{name: "getrange", arity: 4, flags: free, run: getRange},
		{name: "substr", arity: 4, flags: free, run: getRange},
		{name: "setrange", arity: 4, flags: isWrite | rewrites | extends, run: setRange},
		{name: "msetnx", arity: -3, flags: isWrite, run: msetNX},
		{name: "lcs", arity: -3, flags: long, run: lcsCommand},
		{name: "setbit", arity: 4, flags: isWrite | rewrites | extends, run: setBit},
		{name: "getbit", arity: 3, flags: free, run: getBit},
		{name: "bitcount", arity: -2, flags: long, run: bitCount},
		{name: "bitpos", arity: -3, flags: long, run: bitPos},
		{name: "bitop", arity: -4, flags: isWrite | rewrites | long, run: bitOp},
		{name: "incrbyfloat", arity: 3, flags: isWrite, run: incrFloat},

		{name: "del", arity: -2, flags: isWrite, run: del},
		{name: "unlink", arity: -2, flags: isWrite, run: del},
		{name: "exists", arity: -2, flags: free, run: exists},
		{name: "type", arity: 2, flags: free, run: typeCommand},
		{name: "object", arity: -2, flags: hasSub, run: object},
		{name: "ttl", arity: 2, flags: free, run: ttl},
		{name: "pttl", arity: 2, flags: free, run: ttl},
		{name: "expiretime", arity: 2, flags: free, run: ttl},
		{name: "pexpiretime", arity: 2, flags: free, run: ttl},
		{name: "expire", arity: -3, flags: isWrite | rewrites, run: expire},
		{name: "pexpire", arity: -3, flags: isWrite | rewrites, run: expire},
		{name: "expireat", arity: -3, flags: isWrite | rewrites, run: expire},
		{name: "pexpireat", arity: -3, flags: isWrite | rewrites, run: expire},
		{name: "persist", arity: 2, flags: isWrite | rewrites, run: persist},
		{name: "rename", arity: 3, flags: isWrite | rewrites, run: renameCommand},
		{name: "renamenx", arity: 3, flags: isWrite | rewrites, run: renameCommand},
		{name: "copy", arity: -3, flags: isWrite | rewrites | long, run: copyCommand},
		{name: "touch", arity: -2, flags: free, run: exists},
		{name: "move", arity: 3, flags: isWrite | rewrites, run: move},
		{name: "memory", arity: -2, flags: hasSub, run: memoryCommand},
		{name: "dump", arity: 2, flags: long, run: dump},
		{name: "restore", arity: -4, flags: isWrite | rewrites | long | extends, run: restore},
		{name: "keys", arity: 2, flags: unlocked, run: keys},
		{name: "randomkey", arity: 1, flags: unlocked, run: randomKey},
		{name: "swapdb", arity: 3, flags: isWrite | exclusive, run: swapDB},
		{name: "scan", arity: -2, flags: unlocked, run: scan},
		{name: "dbsize", arity: 1, flags: unlocked, run: dbsize},
		{name: "flushall", arity: -1, flags: isWrite | exclusive, run: flushAll},
		{name: "flushdb", arity: -1, flags: isWrite | exclusive, run: flushAll},

		{name: "bf.reserve", arity: -4, max: 7, flags: isWrite | long, run: bfReserve},
		{name: "bf.add", arity: 3, flags: isWrite, run: bfAdd},
		{name: "bf.madd", arity: -3, flags: isWrite, run: bfMAdd},
		{name: "bf.insert", arity: -4, flags: isWrite | long, run: bfInsert},
		{name: "bf.exists", arity: 3, run: bfExists},
		{name: "bf.mexists", arity: -3, run: bfMExists},
		{name: "bf.card", arity: 2, run: bfCard},
		{name: "bf.info", arity: -2, max: 3, run: bfInfo},
		{name: "bf.debug", arity: 2, run: bfDebug},
		{name: "bf.scandump", arity: 3, flags: long, run: bfScanDump},
		{name: "bf.loadchunk", arity: 4, flags: isWrite | long, run: bfLoadChunk},

		{name: "cf.reserve", arity: -3, flags: isWrite | long, run: cfReserve},
		{name: "cf.add", arity: 3, flags: isWrite, run: cfAdd},
		{name: "cf.addnx", arity: 3, flags: isWrite, run: cfAdd},
		{name: "cf.insert", arity: -4, flags: isWrite | long, run: cfInsert},
		{name: "cf.insertnx", arity: -4, flags: isWrite | long, run: cfInsert},
		{name: "cf.exists", arity: 3, run: cfExists},
		{name: "cf.mexists", arity: -3, run: cfMExists},
		{name: "cf.count", arity: 3, run: cfCount},
		{name: "cf.del", arity: 3, flags: isWrite, run: cfDel},
		{name: "cf.compact", arity: 2, flags: isWrite | long, run: cfCompact},
		{name: "cf.info", arity: 2, run: cfInfo},
		{name: "cf.debug", arity: 2, run: cfDebug},
		{name: "cf.scandump", arity: 3, flags: long, run: cfScanDump},
		{name: "cf.loadchunk", arity: 4, flags: isWrite | long, run: cfLoadChunk},
	} {
		c.upper = strings.ToUpper(c.name)
		commands[c.name] = c
	}
}
