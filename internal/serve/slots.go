package serve

import (
	"bytes"
	"errors"
	"net"
	"strconv"
	"strings"
)

// A group looks like a Redis Cluster of one shard: one node, the leader, serves all
// slots, and the others are its replicas.

const numSlots = 16384

// crc16 is the table of CRC-16/XMODEM, by which Redis Cluster divides keys.
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

// keySlot is the slot of a key: of what is between its first { and the next }, if there
// is something.
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

// slotOf returns the slot of a command's keys, or of those that EXEC is about to carry
// out; -1 if there are none. It is not ok if there is more than one.
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

// slot returns the slot of a command's keys, which must be slot if that is not -1.
func (cmd *command) slot(args [][]byte, slot int) (int, bool) {
	first, last, step := cmd.keyPlaces()
	if last < 0 {
		last += len(args)
	}
	if first == 0 {
		return slot, true
	}
	for i := first; i <= min(last, len(args)-1); i += step {
		of := keySlot(args[i])
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

// clusterCommand is CLUSTER.
func clusterCommand(c *client, args [][]byte) {
	g := c.srv.cfg.Group
	if g == nil {
		c.reply(errNoGroup)
		return
	}
	sub := lower(clip(args[1], 16))
	switch n := len(args); {
	case sub == "keyslot" && n == 3:
		c.w.Int(int64(keySlot(args[2])))
	case sub == "myid" && n == 2:
		c.w.BulkString(g.State().Self)
	case sub == "info" && n == 2:
		c.clusterInfo(g.State())
	case sub == "nodes" && n == 2:
		c.clusterNodes(g.State())
	case sub == "slots" && n == 2:
		c.clusterSlots(g.State())
	case sub == "shards" && n == 2:
		c.clusterShards(g.State())
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
		c.help("CLUSTER", "FAILOVER [<node-id>]", "    Make a node the leader: this one, or from the leader another.",
			"FORGET <node-id>", "    Remove a node.", "INFO", "JOIN <node-id> <address> <raft-address> [VOTER]", "    Add a node, as a node does that is started with --join.",
			"KEYSLOT <key>", "MYID", "NODES", "SHARDS", "SLOTS")
	default:
		c.badSubcommand(args)
	}
}

// managed replies with why the group could not be changed, if err says so.
func (c *client) managed(err error) bool {
	if err == nil {
		return false
	}
	addr := c.srv.cfg.Group.Leader(c.srv.ctx)
	if errors.Is(err, ErrNotWritten) && addr != "" && c.srv.follows() {
		c.w.Error("MOVED 0 " + addr)
	} else {
		c.w.Error("ERR " + strings.ReplaceAll(err.Error(), "\n", " "))
	}
	return true
}

// ordered returns the nodes that clients can use, the leader first. While there is no
// leader, some node stands for it.
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

func (c *client) clusterSlots(g GroupState) {
	nodes := g.ordered()
	if len(nodes) == 0 {
		c.w.Error("CLUSTERDOWN no node of the group is known yet")
		return
	}
	c.w.Array(1)
	c.w.Array(2 + len(nodes))
	c.w.Int(0)
	c.w.Int(numSlots - 1)
	for _, m := range nodes {
		host, port := splitAddr(m.Addr)
		c.w.Array(4)
		c.w.BulkString(host)
		c.w.Int(port)
		c.w.BulkString(m.ID)
		c.w.Array(0)
	}
}

func (c *client) clusterShards(g GroupState) {
	c.w.Array(1)
	c.w.Map(2)
	c.w.BulkString("slots")
	c.w.Array(2)
	c.w.Int(0)
	c.w.Int(numSlots - 1)
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

func (c *client) clusterNodes(g GroupState) {
	nodes := g.ordered()
	var b strings.Builder
	for i, m := range nodes {
		_, port := splitAddr(m.Addr)
		flags, master, slots := "slave", nodes[0].ID, ""
		if i == 0 {
			flags, master, slots = "master", "-", " 0-16383"
		}
		if m.ID == g.Self {
			flags = "myself," + flags
		}
		term := formatInt(int64(g.Term))
		b.WriteString(m.ID + " " + m.Addr + "@" + formatInt(port+10000) + " " + flags + " " + master + " 0 0 " + term + " connected" + slots + "\n")
	}
	c.w.BulkString(b.String())
}

func (c *client) clusterInfo(g GroupState) {
	state := "ok"
	if g.Leader == "" {
		state = "fail"
	}
	term := formatInt(int64(g.Term))
	c.w.BulkString("cluster_enabled:1\r\ncluster_state:" + state + "\r\ncluster_slots_assigned:16384\r\ncluster_slots_ok:16384\r\n" +
		"cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:" + formatInt(int64(len(g.ordered()))) +
		"\r\ncluster_size:1\r\ncluster_current_epoch:" + term + "\r\ncluster_my_epoch:" + term + "\r\n")
}
