package serve

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift/internal/serve/resp"
)

// shown is the state of a client that others see in CLIENT LIST.
type shown struct {
	db, proto, queued atomic.Int64
	cmd               atomic.Pointer[string]
}

// line describes the client for CLIENT LIST.
func (c *client) line(me *client) string {
	name := ""
	if p := c.name.Load(); p != nil {
		name = *p
	}
	cmd := "NULL"
	if p := c.shown.cmd.Load(); p != nil {
		cmd = *p
	}
	qbuf := 0
	if c == me {
		qbuf = c.r.Size()
	}
	now := time.Now()
	return fmt.Sprintf("id=%d addr=%s laddr=%s fd=-1 name=%s age=%d idle=%d flags=N db=%d sub=0 psub=0 ssub=0 multi=%d qbuf=%d qbuf-free=0 argv-mem=0 multi-mem=0 "+
		"rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=%d events=r cmd=%s user=default redir=-1 resp=%d\n",
		c.id, c.addr, c.laddr, name, int(now.Sub(c.since).Seconds()), max(0, now.UnixMilli()-c.last.Load())/1000,
		c.shown.db.Load(), c.shown.queued.Load()-1, qbuf, c.taken.Load(), cmd, max(2, c.shown.proto.Load()))
}

// show records what CLIENT LIST shows of the client.
func (c *client) show(cmd *command, args [][]byte) {
	if len(args) > 1 && cmd.flags&hasSub != 0 {
		name := cmd.name + "|" + lower(clip(args[1], 32))
		c.shown.cmd.Store(&name)
	} else if c.shown.cmd.Load() != &cmd.name {
		c.shown.cmd.Store(&cmd.name)
	}
	c.showState()
}

// showState is show for the state that a command may change.
func (c *client) showState() {
	if int64(c.db) != c.shown.db.Load() {
		c.shown.db.Store(int64(c.db))
	}
	if int64(c.w.Proto) != c.shown.proto.Load() {
		c.shown.proto.Store(int64(c.w.Proto))
	}
	if queued := int64(len(c.queue)) + count(c.queueing); queued != c.shown.queued.Load() {
		c.shown.queued.Store(queued)
	}
}

// clientFilter chooses clients for CLIENT LIST and CLIENT KILL.
type clientFilter struct {
	ids         map[uint64]bool
	addr, laddr *string // nil: any
	user, kind  string  // "": any
	skipMe      bool
	maxAge      int64
}

func (f *clientFilter) matches(c, me *client) bool {
	return (f.ids == nil || f.ids[c.id]) && (f.addr == nil || *f.addr == c.addr) && (f.laddr == nil || *f.laddr == c.laddr) &&
		(f.user == "" || f.user == "default") && (f.kind == "" || f.kind == "normal") && !(f.skipMe && c == me) &&
		(f.maxAge == 0 || int64(time.Since(c.since).Seconds()) >= f.maxAge)
}

// setKind restricts the filter to a kind of clients. All clients here are normal.
func (f *clientFilter) setKind(c *client, arg []byte) bool {
	f.kind = lower(arg)
	switch f.kind {
	case "normal", "master", "replica", "slave", "pubsub":
		return true
	}
	c.w.Error("ERR Unknown client type '" + string(clip(cString(arg), 128)) + "'")
	return false
}

// matching returns the clients that a filter chooses, in order of id.
func (s *Server) matching(f *clientFilter, me *client) (out []*client) {
	s.clientsMu.Lock()
	for _, c := range s.clients {
		if f.matches(c, me) {
			out = append(out, c)
		}
	}
	s.clientsMu.Unlock()
	sort.Slice(out, func(i, j int) bool { return out[i].id < out[j].id })
	return out
}

func clientCommand(c *client, args [][]byte) {
	sub, n := strings.ToUpper(string(clip(args[1], 16))), len(args)
	switch {
	case sub == "ID" && n == 2:
		c.w.Int(int64(c.id))
	case sub == "GETNAME" && n == 2:
		if p := c.name.Load(); p != nil && *p != "" {
			c.w.BulkString(*p)
		} else {
			c.w.Nil()
		}
	case sub == "SETNAME" && n == 3:
		if !cleanName(args[2]) {
			c.w.Error("ERR Client names cannot contain spaces, newlines or special characters.")
			return
		}
		c.setName(args[2])
		c.w.OK()
	case sub == "SETINFO" && n == 4:
		if !is(args[2], "LIB-NAME") && !is(args[2], "LIB-VER") {
			c.w.Error("ERR Unrecognized option '" + string(clip(args[2], 128)) + "'")
		} else if !cleanName(args[3]) {
			c.w.Error("ERR " + lower(args[2]) + " cannot contain spaces, newlines or special characters.")
		} else {
			c.w.OK()
		}
	case (sub == "NO-EVICT" || sub == "NO-TOUCH") && n == 3:
		if !is(args[2], "ON") && !is(args[2], "OFF") {
			c.reply(errSyntax)
			return
		}
		if sub == "NO-EVICT" { // access times are not recorded
			c.stays.Store(is(args[2], "ON"))
		}
		c.w.OK()
	case sub == "INFO" && n == 2:
		c.w.BulkString(c.line(c))
	case sub == "LIST":
		clientList(c, args[2:])
	case sub == "KILL" && n > 2:
		clientKill(c, args[2:])
	case sub == "REPLY" && n == 3:
		clientReply(c, args[2])
	case sub == "PAUSE" && (n == 3 || n == 4):
		clientPause(c, args[2:])
	case sub == "UNPAUSE" && n == 2:
		c.srv.pause.end()
		c.w.OK()
	case sub == "UNBLOCK" && (n == 3 || n == 4):
		clientUnblock(c, args[2:])
	case sub == "GETREDIR" && n == 2:
		c.w.Int(-1)
	case sub == "HELP" && n == 2:
		c.help("CLIENT", "GETNAME", "GETREDIR", "ID", "INFO", "KILL <option> ...", "LIST [TYPE <type>|ID <id> ...]", "NO-EVICT (ON|OFF)",
			"PAUSE <timeout> [WRITE|ALL]", "REPLY (ON|OFF|SKIP)", "SETINFO <option> <value>", "SETNAME <name>", "UNBLOCK <id> [TIMEOUT|ERROR]", "UNPAUSE")
	default:
		c.badSubcommand(args)
	}
}

// clientUnblock is CLIENT UNBLOCK, which finds nothing to unblock: no command here blocks.
func clientUnblock(c *client, args [][]byte) {
	if len(args) == 2 && !is(args[1], "TIMEOUT") && !is(args[1], "ERROR") {
		c.w.Error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
		return
	}
	if _, ok := resp.ParseInt(args[0]); !ok {
		c.reply(errNotInt)
		return
	}
	c.w.Int(0)
}

func clientList(c *client, args [][]byte) {
	var f clientFilter
	switch {
	case len(args) == 0:
	case is(args[0], "TYPE") && len(args) == 2:
		if !f.setKind(c, args[1]) {
			return
		}
	case is(args[0], "ID") && len(args) > 1:
		f.ids = map[uint64]bool{}
		for _, arg := range args[1:] {
			id, ok := resp.ParseInt(arg)
			if !ok {
				c.w.Error("ERR Invalid client ID")
				return
			}
			f.ids[uint64(id)] = true
		}
	default:
		c.reply(errSyntax)
		return
	}
	var b strings.Builder
	for _, o := range c.srv.matching(&f, c) {
		b.WriteString(o.line(c))
	}
	c.w.BulkString(b.String())
}

func clientKill(c *client, args [][]byte) {
	old := len(args) == 1 // CLIENT KILL addr
	f := clientFilter{skipMe: !old}
	if old {
		f.addr = new(string(args[0]))
	}
	for i := 0; !old && i < len(args); i += 2 {
		if i+1 == len(args) {
			c.reply(errSyntax)
			return
		}
		value := args[i+1]
		switch {
		case is(args[i], "ID"):
			id, ok := resp.ParseInt(value)
			if !ok || id < 1 {
				c.w.Error("ERR client-id should be greater than 0")
				return
			}
			f.ids = map[uint64]bool{uint64(id): true}
		case is(args[i], "TYPE"):
			if !f.setKind(c, value) {
				return
			}
		case is(args[i], "ADDR"):
			f.addr = new(string(value))
		case is(args[i], "LADDR"):
			f.laddr = new(string(value))
		case is(args[i], "USER"):
			if f.user = string(value); f.user != "default" {
				c.w.Error("ERR No such user '" + string(clip(value, 128)) + "'")
				return
			}
		case is(args[i], "SKIPME") && (is(value, "YES") || is(value, "NO")):
			f.skipMe = is(value, "YES")
		case is(args[i], "MAXAGE"):
			n, ok := resp.ParseInt(value)
			if !ok || n < 1 {
				c.w.Error("ERR maxage should be greater than 0")
				return
			}
			f.maxAge = n
		default:
			c.reply(errSyntax)
			return
		}
	}
	found := c.srv.matching(&f, c)
	for _, o := range found {
		o.kill(c)
	}
	c.srv.pause.wake()
	switch {
	case !old:
		c.w.Int(int64(len(found)))
	case len(found) == 0:
		c.w.Error("ERR No such client")
	default:
		c.w.OK()
	}
}

// The modes of CLIENT REPLY.
const (
	replyAll      = iota
	replySkip     // no reply to the next command
	replySkipNext // no reply to the command after the current one
	replyNone
)

func clientReply(c *client, mode []byte) {
	switch {
	case is(mode, "ON"):
		c.silence = replyAll
		c.w.OK()
	case is(mode, "OFF"):
		c.silence = replyNone
	case is(mode, "SKIP"):
		if c.silence != replyNone {
			c.silence = replySkipNext
		}
	default:
		c.reply(errSyntax)
	}
}

// pause is the state of CLIENT PAUSE. A command tests it again when it holds world. So all earlier
// writes are in the store once a client has taken world exclusively after a pause has begun.
type pause struct {
	mu     sync.Mutex    // held while the fields change
	until  atomic.Int64  // ms; 0: no pause
	writes atomic.Bool   // only writes wait
	woken  chan struct{} // closed by wake; nil: no client waits for that
}

// extend begins a pause. If one is in progress, the later end and the stricter mode hold.
func (p *pause) extend(until int64, writes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if was := p.until.Load(); was > time.Now().UnixMilli() {
		until, writes = max(until, was), writes && p.writes.Load()
	}
	p.writes.Store(writes)
	p.until.Store(until)
}

func (p *pause) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until.Store(0)
	p.wakeLocked()
}

// left returns how long the pause will last, and a channel that is closed when clients must check
// whether they still have to wait. After a pause it returns 0.
func (p *pause) left() (d time.Duration, woken <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ms := p.until.Load() - time.Now().UnixMilli()
	if ms <= 0 {
		p.until.Store(0)
		p.wakeLocked()
		return 0, nil
	}
	if p.woken == nil {
		p.woken = make(chan struct{})
	}
	return time.Duration(ms) * time.Millisecond, p.woken
}

// wake makes the clients that wait check whether they still have to.
func (p *pause) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wakeLocked()
}

func (p *pause) wakeLocked() {
	if p.woken != nil {
		close(p.woken)
		p.woken = nil
	}
}

// clientPause is CLIENT PAUSE. It replies when all earlier writes are in the store. In a
// transaction it does not wait for those of other groups, nor for commands that let others run in
// between.
func clientPause(c *client, args [][]byte) {
	ms, ok := resp.ParseInt(args[0])
	if !ok || ms < 0 {
		c.w.Error("ERR timeout is not an integer or out of range")
		return
	}
	writes := len(args) == 2 && is(args[1], "WRITE")
	if len(args) == 2 && !writes && !is(args[1], "ALL") {
		c.w.Error("ERR CLIENT PAUSE mode must be WRITE or ALL")
		return
	}
	c.srv.pause.extend(time.Now().UnixMilli()+min(ms, 1<<40), writes)
	if !c.inExec {
		if err := c.finishWrites(); err != nil {
			c.abort(err)
			return
		}
		c.srv.root.eachPart(func(s *Server) error {
			s.awaitCommands()
			return nil
		})
	}
	c.w.OK()
}

// awaitCommands returns when the commands that hold world have ended, even if they let others run
// in between. The caller holds no locks.
func (s *Server) awaitCommands() {
	s.yielding.Lock()
	defer s.yielding.Unlock()
	s.world.Lock()
	defer s.world.Unlock()
}

// paused reports whether the client has to wait before it executes cmd.
func (c *client) paused(cmd *command) bool {
	p := &c.srv.pause
	return p.until.Load() != 0 && c.trusted && !(p.writes.Load() && !c.mayWrite(cmd))
}

// mayWrite reports whether a command, or an EXEC with the commands that are queued, is a write.
func (c *client) mayWrite(cmd *command) bool {
	if cmd == nil || cmd.name != "exec" {
		return cmd != nil && cmd.flags&isWrite != 0
	}
	return slices.ContainsFunc(c.queue, func(args [][]byte) bool { return lookup(args[0]).flags&isWrite != 0 })
}

// wait waits while commands are paused. It first sends the replies so far, which a client of an
// event loop does not have at this point. After an error, the command must not run: the pause has
// not ended.
func (c *client) wait() error {
	err := c.finishWrites()
	if err != nil {
		c.abort(err)
	}
	c.useRoot()
	if c.conn != nil {
		err = errors.Join(err, c.send())
	}
	if err != nil {
		return err
	}
	return c.waitUnlocked()
}

// waitUnlocked is wait for a client that holds no locks. It sends nothing.
func (c *client) waitUnlocked() error {
	for {
		d, woken := c.srv.pause.left()
		if d == 0 {
			return nil
		}
		if c.killed.Load() { // later kills close woken
			return net.ErrClosed
		}
		select {
		case <-time.After(d):
		case <-woken:
		case <-c.srv.serving.Done():
			return net.ErrClosed
		}
	}
}
