package serve

import (
	"bytes"
	"errors"
	"net"
	"strconv"
	"strings"
)

// A group looks like a shard of a Redis Cluster: one node, the leader, serves its slots, and
// the others are its replicas. A node may lead one group and be a replica in another.

const numSlots = 16384

// crc16 is the table of CRC-16/XMODEM, with which Redis Cluster assigns keys to slots.
var crc16 = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()

// keySlot returns the slot of a key. If there is something between its first { and the next }, only
// that is hashed.
func keySlot(key []byte) int {
	if i := bytes.IndexByte(key, '{'); i >= 0 {
		if n := bytes.IndexByte(key[i+1:], '}'); n > 0 {
			key = key[i+1:][:n]
		}
	}
	crc := uint16(0)
	for _, b := range key {
		crc = crc<<8 ^ crc16[byte(crc>>8)^b]
	}
	return int(crc) % numSlots
}

// slotOf returns the slot of a command's keys, for EXEC of those of the queued commands; -1 if
// there are none. ok is false if there is more than one slot.
func (c *client) slotOf(cmd *command, args [][]byte) (slot int, ok bool) {
	if cmd.name != "exec" {
		return cmd.slot(args, -1)
	}
	slot = -1
	for _, queued := range c.queue {
		if slot, ok = lookup(queued[0]).slot(queued, slot); !ok {
			return slot, false
		}
	}
	return slot, true
}

// slot returns the slot of a command's keys, which must be slot unless that is -1.
func (cmd *command) slot(args [][]byte, slot int) (int, bool) {
	for key := range cmd.keys(args) {
		of := keySlot(key)
		if slot >= 0 && of != slot {
			return slot, false
		}
		slot = of
	}
	return slot, true
}

// readOnly is READONLY and READWRITE.
func readOnly(c *client, args [][]byte) {
	if c.srv.cfg.Group == nil {
		c.reply(errNoGroup)
		return
	}
	c.readsOld = len(args[0]) == len("READONLY")
	c.w.OK()
}

var errNoGroup = errors.New("ERR This instance has cluster support disabled")

func clusterCommand(c *client, args [][]byte) {
	g := c.srv.root.cfg.Group
	if g == nil {
		c.reply(errNoGroup)
		return
	}
	sub := lower(clip(args[1], 16))
	switch n := len(args); {
	case c.inExec && (sub == "failover" || sub == "join" || sub == "forget" || sub == "node"):
		// A leader that retires waits for the commands in progress, including this EXEC.
		c.w.Error("ERR CLUSTER " + strings.ToUpper(sub) + " is not allowed in transactions")
	case sub == "keyslot" && n == 3:
		c.w.Int(int64(keySlot(args[2])))
	case sub == "myid" && n == 2:
		c.w.BulkString(g.State().Self)
	case sub == "info" && n == 2:
		c.clusterInfo(c.srv.shardStates())
	case sub == "nodes" && n == 2:
		c.clusterNodes(c.srv.shardStates())
	case sub == "slots" && n == 2:
		c.clusterSlots(c.srv.shardStates())
	case sub == "shards" && n == 2:
		c.clusterShards(c.srv.shardStates())
	case sub == "node" && n > 2:
		c.manage(args)
	case sub == "join" && (n == 5 || n == 6 && is(args[5], "VOTER")):
		at, err := g.Join(GroupMember{ID: string(args[2]), Addr: string(args[3]), RaftAddr: string(args[4])}, n == 6)
		if !c.managed(err) {
			c.w.Int(int64(at))
		}
	case sub == "forget" && n == 3:
		if !c.managed(g.Forget(string(args[2]))) {
			c.w.OK()
		}
	case sub == "failover" && n <= 3:
		id := ""
		if n == 3 {
			id = string(args[2])
		} else if c.srv.follows() {
			id = g.State().Self
		}
		if !c.managed(g.Failover(id)) {
			c.w.OK()
		}
	case sub == "help" && n == 2:
		c.help("CLUSTER", "FAILOVER [<node-id>]", "    Make a node the leader: by default this one, or another one if this one leads.",
			"FORGET <node-id>", "    Remove a node.", "INFO", "JOIN <node-id> <address> <raft-address> [VOTER]", "    Add a node. A node that is started with --join sends this.",
			"KEYSLOT <key>", "MYID", "NODES", "SHARDS", "SLOTS")
	default:
		c.badSubcommand(args)
	}
}

// managed replies with err unless it is nil, and reports whether it did. If only the leader can
// execute the command, it redirects the client there.
func (c *client) managed(err error) bool {
	if err == nil {
		return false
	}
	addr := c.srv.cfg.Group.Leader(c.srv.ctx)
	if errors.Is(err, ErrNotWritten) && addr != "" && (c.srv.follows() || c.srv.shards != nil) {
		c.w.Error("MOVED 0 " + addr)
	} else {
		c.w.Error("ERR " + strings.ReplaceAll(err.Error(), "\n", " "))
	}
	return true
}

// ordered returns the nodes that clients can use, the leader first. While there is no leader,
// another node takes its place.
func (g *GroupState) ordered() (nodes []GroupMember) {
	for _, m := range g.Members {
		if m.Addr == "" || !m.Voter {
			continue
		}
		nodes = append(nodes, m)
		if last := len(nodes) - 1; m.ID == g.Leader {
			nodes[0], nodes[last] = nodes[last], nodes[0]
		}
	}
	return nodes
}

func splitAddr(addr string) (host string, port int64) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return addr, 0
	}
	port, _ = strconv.ParseInt(text, 10, 64)
	return host, port
}

func (c *client) clusterSlots(shards []shardState) {
	if !served(shards) {
		c.w.Error("CLUSTERDOWN no node of the group is known yet")
		return
	}
	c.w.Array(len(shards))
	for _, g := range shards {
		nodes := g.ordered()
		c.w.Array(2 + len(nodes))
		c.w.Int(int64(g.first))
		c.w.Int(int64(g.last))
		for _, m := range nodes {
			host, port := splitAddr(m.Addr)
			c.w.Array(4)
			c.w.BulkString(host)
			c.w.Int(port)
			c.w.BulkString(m.ID)
			c.w.Array(0)
		}
	}
}

// served reports whether a node of each group is known.
func served(shards []shardState) bool {
	for _, g := range shards {
		if len(g.ordered()) == 0 {
			return false
		}
	}
	return len(shards) > 0
}

func (c *client) clusterShards(shards []shardState) {
	c.w.Array(len(shards))
	for _, g := range shards {
		c.w.Map(2)
		c.w.BulkString("slots")
		c.w.Array(2)
		c.w.Int(int64(g.first))
		c.w.Int(int64(g.last))
		c.w.BulkString("nodes")
		nodes := g.ordered()
		c.w.Array(len(nodes))
		for i, m := range nodes {
			host, port := splitAddr(m.Addr)
			role := "replica"
			if i == 0 {
				role = "master"
			}
			c.w.Map(7)
			c.w.BulkString("id")
			c.w.BulkString(m.ID)
			c.w.BulkString("port")
			c.w.Int(port)
			c.w.BulkString("ip")
			c.w.BulkString(host)
			c.w.BulkString("endpoint")
			c.w.BulkString(host)
			c.w.BulkString("role")
			c.w.BulkString(role)
			c.w.BulkString("replication-offset")
			c.w.Int(int64(g.Applied))
			c.w.BulkString("health")
			c.w.BulkString("online")
		}
	}
}

// clusterNodes writes a line for each node. One that leads no group is shown as the replica of the
// leader of the first group that it is in; one that is in no group as a master without slots.
func (c *client) clusterNodes(shards []shardState) {
	type line struct {
		GroupMember
		master, slots string
		term          uint64
	}
	var lines []*line
	byID := map[string]*line{}
	for _, g := range shards {
		nodes := g.ordered()
		for i, m := range nodes {
			l := byID[m.ID]
			if l == nil {
				l = &line{GroupMember: m, master: nodes[0].ID}
				byID[m.ID] = l
				lines = append(lines, l)
			}
			if i == 0 {
				l.master = "-"
				l.slots += " " + g.Slots()
			}
			l.term = max(l.term, g.Term)
		}
	}
	all := c.srv.root.cfg.Group.State()
	for _, m := range all.ordered() {
		if byID[m.ID] == nil { // it is joining or leaving
			lines = append(lines, &line{GroupMember: m, master: "-"})
		}
	}
	var b strings.Builder
	for _, l := range lines {
		_, port := splitAddr(l.Addr)
		flags := "slave"
		if l.master == "-" {
			flags = "master"
		}
		if l.ID == all.Self {
			flags = "myself," + flags
		}
		b.WriteString(l.ID + " " + l.Addr + "@" + formatInt(port+10000) + " " + flags + " " + l.master + " 0 0 " + formatInt(int64(l.term)) + " connected" + l.slots + "\n")
	}
	c.w.BulkString(b.String())
}

func (c *client) clusterInfo(shards []shardState) {
	state, term := "ok", uint64(0)
	assigned, led := 0, 0
	nodes, masters := map[string]bool{}, map[string]bool{}
	for _, g := range shards {
		assigned += g.last - g.first + 1
		if g.Leader != "" {
			led += g.last - g.first + 1
			masters[g.Leader] = true
		}
		for _, m := range g.ordered() {
			nodes[m.ID] = true
		}
		term = max(term, g.Term)
	}
	all := c.srv.root.cfg.Group.State()
	for _, m := range all.ordered() {
		nodes[m.ID] = true
	}
	if led < numSlots {
		state = "fail"
	}
	var b strings.Builder
	for _, f := range []struct {
		name  string
		value int
	}{{"slots_assigned", assigned}, {"slots_ok", led}, {"slots_pfail", 0}, {"slots_fail", assigned - led}, {"known_nodes", len(nodes)}, {"size", len(masters)},
		{"current_epoch", int(term)}, {"my_epoch", int(term)}} {
		b.WriteString("cluster_" + f.name + ":" + formatInt(int64(f.value)) + "\r\n")
	}
	c.w.BulkString("cluster_enabled:1\r\ncluster_state:" + state + "\r\n" + b.String())
}
