package siftd

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/siftdb/sift/cluster"
	"github.com/siftdb/sift/internal/serve"
)

func isID(s string) bool {
	return len(s) == 40 && strings.Trim(s, "0123456789abcdef") == ""
}

func checkMember(m serve.GroupMember) error {
	if !isID(m.ID) {
		return errors.New("a node's id has 40 hex digits")
	}
	at, replica, err := cluster.CutReplica(raft.ServerAddress(m.RaftAddr))
	if err != nil || replica != directoryReplica(m.ID) {
		return fmt.Errorf("%.100q is not the address of node %s", m.RaftAddr, m.ID)
	}
	for _, addr := range []string{m.Addr, string(at)} {
		if _, _, err := net.SplitHostPort(addr); err != nil || len(addr) > 300 || strings.ContainsAny(addr, "\x00 \r\n") {
			return fmt.Errorf("%.100q is not an address", addr)
		}
	}
	return nil
}

func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// isUnspecified reports whether an address stands for all addresses of a machine.
func isUnspecified(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "" || ip != nil && ip.IsUnspecified())
}

// nearEnough is how many entries behind a node may be to count as up to date, and to get a vote.
const nearEnough = 1000

// announce records the node's addresses in the directory group, and retries until it has succeeded.
// A node that joins becomes a member: first a nonvoter, then a voter once it has nearly all of the
// log.
func (n *Node) announce() {
	var lastErr error
	join := n.joins()
	for ; n.ctx.Err() == nil; pause(n.ctx, 200*time.Millisecond) {
		self := serve.GroupMember{ID: n.id, Addr: n.announced(), RaftAddr: string(n.directoryAddr())}
		known, voter := false, false
		newest := servers(n.node)
		for _, server := range newest {
			if string(server.ID) == n.id {
				known, voter = string(server.Address) == self.RaftAddr, server.Suffrage == raft.Voter
			}
		}
		if addr, err := n.address(n.id); err == nil && addr == self.Addr && known && (voter || !join) {
			if committed, _ := n.node.FSM().Members(); !slices.Equal(newest, committed) {
				continue // the next leader may drop the newest change
			}
			if !join {
				return
			}
			if err = n.endFirst(); err == nil {
				return
			}
			n.cfg.Logger.Warn("the node has joined, but its first start is not complete", "err", err)
			continue
		}
		if !join && !n.knows(n.id) {
			return // the node was removed, or does not know yet that it was added
		}
		at, err := n.register(self, false)
		if err == nil && join && n.node.FSM().Applied()+nearEnough >= at && n.knows(n.id) {
			_, err = n.register(self, true)
		}
		if err != nil && (lastErr == nil || err.Error() != lastErr.Error()) {
			lastErr = err
			n.cfg.Logger.Warn("the directory group does not have this node's address yet", "err", err)
		}
	}
}

// register makes the leader of the directory group record a node, and returns the commit index.
func (n *Node) register(m serve.GroupMember, vote bool) (uint64, error) {
	if n.leadsDirectory() {
		return directory{n}.Join(m, vote)
	}
	args := []string{"CLUSTER", "JOIN", m.ID, m.Addr, m.RaftAddr}
	if vote {
		args = append(args, "VOTER")
	}
	_, leader := n.node.Leader()
	addrs := n.cfg.Join
	for _, server := range servers(n.node) {
		addr, err := n.address(string(server.ID))
		switch {
		case err != nil || addr == "" || string(server.ID) == n.id:
		case server.ID == leader:
			addrs = append([]string{addr}, addrs...)
		default: // no leader may be known: if this node has moved, none can reach it
			addrs = append(addrs[:len(addrs):len(addrs)], addr)
		}
	}
	err := errors.New("siftd: no node of the group is known")
	for _, addr := range addrs {
		if err = n.sameCluster(addr); err != nil {
			continue
		}
		var reply string
		for range 3 {
			if reply, err = n.ask(addr, args, 2*manageTimeout); err != nil {
				break
			}
			if at, ok := strings.CutPrefix(reply, ":"); ok {
				return strconv.ParseUint(at, 10, 64)
			}
			err = fmt.Errorf("siftd: %s replied %q", addr, reply)
			fields := strings.Fields(reply)
			if len(fields) != 3 || fields[0] != "-MOVED" {
				break
			}
			addr = fields[2]
		}
	}
	return 0, err
}

// maxAnswer bounds the length in bytes of a node's reply about its groups.
const maxAnswer = 4 << 20

// ask sends a command to a node as a client, and returns the reply, a line.
func (n *Node) ask(addr string, args []string, most time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(n.ctx, most)
	defer cancel()
	dialed, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer dialed.Close()
	defer context.AfterFunc(ctx, func() { dialed.SetDeadline(time.Unix(1, 0)) })()
	conn := dialed
	if n.cfg.JoinTLS != nil {
		o := n.cfg.JoinTLS.Clone()
		if o.ServerName == "" {
			o.ServerName, _, _ = net.SplitHostPort(addr)
		}
		conn = tls.Client(dialed, o)
	}
	r := bufio.NewReader(io.LimitReader(conn, maxAnswer))
	if n.cfg.Password != "" {
		if line, err := call(conn, r, []string{"AUTH", n.cfg.Password}); err != nil || line != "+OK" {
			return "", errors.Join(err, fmt.Errorf("siftd: %s rejects the password: %s", addr, line))
		}
	}
	return call(conn, r, args)
}

func call(w io.Writer, r *bufio.Reader, args []string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return "", err
	}
	line, err := r.ReadString('\n')
	return strings.TrimRight(line, "\r\n"), err
}
