// Processes is a replicated notebook: three processes, each with its own database, that keep the
// same lists of lines.
//
//	go run -C cluster ./examples/processes
//
// starts them, runs clients that add lines, kills the leader while they run, restarts it, and shows
// that every acknowledged line is there. A process is
//
//	processes node -id n0 -dir DIR -http ADDR -group n0=ADDR,n1=ADDR,n2=ADDR
//
// and serves HTTP: POST /key adds the line in the body and returns the list; GET /key returns the
// list. Nodes that do not lead reply 421. After 504, the line may or may not have been added.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/cluster"
)

func main() {
	err := errors.New("usage: processes [node ...]")
	switch {
	case len(os.Args) == 1:
		err = demo()
	case os.Args[1] == "node":
		err = node(os.Args[2:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// add is the state machine: a command is a key, a line feed and a line.
func add(tx *cluster.Tx, command []byte) (any, error) {
	key, line, _ := strings.Cut(string(command), "\n")
	list, err := tx.Get([]byte(key))
	if err != nil && !errors.Is(err, sift.ErrNotFound) {
		return nil, err
	}
	list = append(list, line+","...)
	return list, tx.Put([]byte(key), list)
}

// node runs one member of the group.
func node(args []string) error {
	flags := flag.NewFlagSet("node", flag.ExitOnError)
	id := flags.String("id", "", "the node's name")
	dir := flags.String("dir", "", "its directory")
	listen := flags.String("http", "", "its address for clients")
	group := flags.String("group", "", "all nodes, as name=address,...")
	snapshots := flags.Uint64("snapshots", 8192, "entries between snapshots")
	flags.Parse(args)

	var members []raft.Server
	var self string
	for _, m := range strings.Split(*group, ",") {
		name, address, _ := strings.Cut(m, "=")
		members = append(members, raft.Server{ID: raft.ServerID(name), Address: raft.ServerAddress(address)})
		if name == *id {
			self = address
		}
	}
	transport, err := cluster.ListenTCP(self, "", nil)
	if err != nil {
		return err
	}
	config := cluster.Defaults()
	if config.SnapshotThreshold = *snapshots; *snapshots < config.TrailingLogs {
		config.SnapshotInterval, config.TrailingLogs = time.Second, *snapshots
	}
	n, err := cluster.Open(cluster.Options{
		ID: *id, Dir: *dir, Apply: add, Transport: transport, Bootstrap: members, Raft: config,
	})
	if err != nil {
		return err
	}
	defer n.Close()
	return http.ListenAndServe(*listen, handler{n})
}

type handler struct{ n *cluster.Node }

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(r.URL.Path, "/")
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	var list []byte
	var err error
	if r.Method == http.MethodPost {
		var line []byte
		if line, err = io.ReadAll(r.Body); err == nil {
			var reply any
			reply, err = h.n.Propose(ctx, []byte(key+"\n"+string(line)))
			list, _ = reply.([]byte)
		}
	} else {
		err = h.n.Read(ctx, func(v *cluster.View) (err error) {
			list, err = v.Get([]byte(key))
			if errors.Is(err, sift.ErrNotFound) {
				err = nil
			}
			return err
		})
	}
	switch {
	case err == nil:
		w.Write(list)
	case errors.Is(err, cluster.ErrUnknown):
		http.Error(w, err.Error(), http.StatusGatewayTimeout)
	case errors.Is(err, cluster.ErrNotLeader):
		http.Error(w, err.Error(), http.StatusMisdirectedRequest)
	default:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}
