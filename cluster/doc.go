// Package cluster replicates a sift database with Raft: every node holds all of it, it is
// available as long as a majority of the nodes is, and what was acknowledged is on a majority.
//
// A program defines how a command changes the database, by an Apply function. Open starts a node,
// Node.Propose sends a command through the log, and Node.Read and Node.ReadStale read. Consensus
// comes from github.com/hashicorp/raft, the log from github.com/hashicorp/raft-wal.
//
// FSM and SnapshotStore are the parts that know sift, for programs that set up Raft themselves.
package cluster
