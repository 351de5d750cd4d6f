// Package cluster replicates a sift database with Raft: every node holds all of it,
// a majority of the nodes keeps it going, and what was acknowledged is on a majority.
//
// A program says how a command changes the database, by an Apply function. Open
// starts a node, Node.Propose sends a command through the log, and Node.Read and
// Node.ReadStale read. The consensus is that of github.com/hashicorp/raft, with
// github.com/hashicorp/raft-wal as the log.
//
// FSM and SnapshotStore are the parts that know sift, for programs that set up Raft
// by themselves.
package cluster
