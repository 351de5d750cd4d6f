// Package cluster replicates a sift database with Raft. Every node holds the whole database. It is
// available as long as a majority of the nodes are, and acknowledged commands are on disk on a
// majority of them.
//
// A program's Apply function defines how a command changes the database. Open starts a node,
// Node.Propose sends a command through the log, and Node.Read and Node.ReadStale read.
// github.com/hashicorp/raft provides consensus, github.com/hashicorp/raft-wal the log. Windows is
// not supported.
//
// FSM and SnapshotStore are for programs that set up Raft themselves.
package cluster
