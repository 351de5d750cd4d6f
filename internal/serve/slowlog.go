package serve

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift/internal/serve/resp"
)

// slowlog keeps the most recent slow commands.
type slowlog struct {
	slower atomic.Int64 // the minimum duration of a command that is kept, in µs; negative: none is kept
	most   atomic.Int64 // maximum number of entries

	mu      sync.Mutex
	next    int64
	entries []slowEntry // the newest last
	bytes   int         // of their strings
}

type slowEntry struct {
	id, unix, micros int64
	args             []string
	addr, name       string
}

const (
	// How many arguments of a command are kept, and how many bytes of each.
	slowArgs, slowArgBytes = 32, 128
	// maxSlowlog bounds slowlog-max-len, and maxSlowBytes the size of the strings of all entries.
	maxSlowlog   = 1 << 16
	maxSlowBytes = 16 << 20
)

// took records how long a command took and whether it failed.
func (s *Server) took(c *client, cmd *command, args [][]byte, start, d time.Duration) {
	cmd.nanos.Add(int64(d))
	s.stats.latency.observe(d)
	if c.w.Errors != c.errorsSeen {
		cmd.failed.Add(c.w.Errors - c.errorsSeen)
		c.countErrors()
	}
	if c.queueing && cmd.flags&notQueued == 0 {
		return // EXEC will execute it
	}
	if slower := s.slowlog.slower.Load(); slower >= 0 && d.Microseconds() >= slower && cmd.flags&noAuth == 0 && cmd.name != "exec" {
		s.slowlog.add(c, withoutPassword(cmd, args), d)
	}
}

// withoutPassword returns a command's arguments, without the password that CONFIG SET may set.
func withoutPassword(cmd *command, args [][]byte) [][]byte {
	if cmd.name != "config" || !is(args[1], "SET") {
		return args
	}
	shown := slices.Clone(args)
	for i := 2; i+1 < len(args); i += 2 {
		if is(args[i], "requirepass") {
			shown[i+1] = []byte("(redacted)")
		}
	}
	return shown
}

func (l *slowlog) add(c *client, args [][]byte, d time.Duration) {
	e := slowEntry{unix: time.Now().Unix(), micros: d.Microseconds(), addr: c.addr}
	if p := c.name.Load(); p != nil {
		e.name = *p
	}
	for i, a := range args {
		if i == slowArgs-1 && len(args) > slowArgs {
			e.args = append(e.args, fmt.Sprintf("... (%d more arguments)", len(args)-i))
			break
		}
		text := string(clip(a, slowArgBytes))
		if more := len(a) - slowArgBytes; more > 0 {
			text += fmt.Sprintf("... (%d more bytes)", more)
		}
		e.args = append(e.args, text)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.id = l.next
	l.next++
	l.entries = append(l.entries, e)
	l.bytes += e.size()
	l.trim()
}

func (e *slowEntry) size() int {
	n := len(e.addr) + len(e.name)
	for _, a := range e.args {
		n += len(a) + 16 // and the string itself
	}
	return n
}

// trim removes the oldest entries; mu is held.
func (l *slowlog) trim() {
	more := max(0, len(l.entries)-int(l.most.Load()))
	for i := range l.entries {
		if i >= more && l.bytes <= maxSlowBytes {
			break
		}
		l.bytes -= l.entries[i].size()
		more = max(more, i+1)
	}
	if more > 0 {
		clear(l.entries[:more]) // append copies the others only from time to time
		l.entries = l.entries[more:]
	}
}

func slowlogCommand(c *client, args [][]byte) {
	l := &c.srv.slowlog
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case is(args[1], "LEN") && len(args) == 2:
		c.w.Int(int64(len(l.entries)))
	case is(args[1], "RESET") && len(args) == 2:
		l.entries, l.bytes = nil, 0
		c.w.OK()
	case is(args[1], "GET") && len(args) <= 3:
		n := int64(10)
		if len(args) == 3 {
			var ok bool
			if n, ok = resp.ParseInt(args[2]); !ok || n < -1 {
				c.w.Error("ERR count should be greater than or equal to -1")
				return
			}
		}
		if n == -1 || n > int64(len(l.entries)) {
			n = int64(len(l.entries))
		}
		c.w.Array(int(n))
		for i := range n {
			e := l.entries[len(l.entries)-1-int(i)]
			c.w.Array(6)
			c.w.Int(e.id)
			c.w.Int(e.unix)
			c.w.Int(e.micros)
			c.w.Array(len(e.args))
			for _, a := range e.args {
				c.w.BulkString(a)
			}
			c.w.BulkString(e.addr)
			c.w.BulkString(e.name)
		}
	case is(args[1], "HELP") && len(args) == 2:
		c.help("SLOWLOG", "GET [<count>]", "    The newest entries: id, time, µs, arguments, address and name of the client.", "LEN", "    How many entries there are.", "RESET", "    Remove them.")
	default:
		c.badSubcommand(args)
	}
}

// latency counts commands by how long they took, in powers of two.
type latency struct {
	counts [latencyBuckets]atomic.Uint64 // below 1 µs, 2 µs, 4 µs and so on; the last: all others
}

const latencyBuckets = 24

func (l *latency) observe(d time.Duration) {
	i := 0
	for us := d.Microseconds(); us > 0 && i < latencyBuckets-1; us >>= 1 {
		i++
	}
	l.counts[i].Add(1)
}

// countErrors adds the client's new error replies to the server's counters.
func (c *client) countErrors() {
	n := c.w.Errors - c.errorsSeen
	c.errorsSeen = c.w.Errors
	c.srv.stats.errors.Add(n)
	word, _, _ := strings.Cut(c.w.LastError, " ")
	if word == "" || len(word) > 32 || strings.ToUpper(word) != word {
		word = "ERR"
	}
	c.srv.stats.countError(word, n)
}

// errorCounts are INFO's Errorstats, by the first word of an error.
type errorCounts struct {
	mu     sync.Mutex
	byWord map[string]uint64
}

// maxErrorWords bounds the words that are counted.
const maxErrorWords = 128

func (e *errorCounts) countError(word string, n uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.byWord == nil {
		e.byWord = map[string]uint64{}
	}
	if _, ok := e.byWord[word]; ok || len(e.byWord) < maxErrorWords {
		e.byWord[word] += n
	}
}

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }
