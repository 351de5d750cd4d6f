// Siftd runs a node of a replicated sift serve.
//
//	siftd --data DIR --init --listen HOST:PORT --raft HOST:PORT
//	siftd --data DIR --join HOST:PORT --listen HOST:PORT --raft HOST:PORT
//	siftd backup --http HOST:PORT,HOST:PORT --to DIR
//	siftd demo
//
// The exit status is 0 if a node is stopped by SIGTERM, SIGINT or a client's SHUTDOWN, or if backup
// or demo succeeds; 2 if the command line is wrong; and 3 after any other error. docs/cluster.md
// describes siftd.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/cluster"
	"github.com/siftdb/sift/cluster/siftd"
	"github.com/siftdb/sift/internal/bytesize"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "demo":
		err = demo(ctx)
	case len(os.Args) > 1 && os.Args[1] == "backup":
		err = backup(ctx, os.Args[2:])
	default:
		err = run(ctx, os.Args[1:])
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "siftd:", strings.TrimPrefix(err.Error(), "siftd: "))
		os.Exit(exitStatus(err))
	}
}

// usageError is an error of the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// exitStatus returns the exit status for an error, as in cmd/sift: 2 if the command line is wrong,
// otherwise 3.
func exitStatus(err error) int {
	if errors.As(err, new(usageError)) {
		return 2
	}
	return 3
}

// minSnapshotInterval is the shortest interval at which a group checks whether to take a snapshot.
const minSnapshotInterval = 10 * time.Millisecond

// minElectionTimeout is the shortest time after which a silent leader is replaced.
const minElectionTimeout = 100 * time.Millisecond

// options are the values of the flags.
type options struct {
	siftd.Config
	join, passwordFile                      string
	clientCert, clientKey, clientCA         string
	peerCert, peerKey, peerCA               string
	filterMemory, clientMemory, cacheMemory bytesize.Size
	snapshots                               int
	snapshotInterval, electionTimeout       time.Duration
}

func (o *options) flags() *flag.FlagSet {
	f := flag.NewFlagSet("siftd", flag.ContinueOnError)
	f.StringVar(&o.Dir, "data", "", "keep everything in this directory")
	f.StringVar(&o.Addr, "listen", "127.0.0.1:6380", "listen for clients here; non-loopback addresses require a password")
	f.StringVar(&o.Announce, "announce", "", "where clients and other nodes reach the node; default: --listen; required if that is 0.0.0.0")
	f.StringVar(&o.RaftAddr, "raft", "127.0.0.1:7380", "listen for other nodes here; non-loopback addresses require --peer-cert")
	f.StringVar(&o.RaftAnnounce, "raft-announce", "", "where other nodes reach the node; default: --raft; required if that is 0.0.0.0")
	f.BoolVar(&o.Init, "init", false, "create a cluster, if the directory is empty")
	f.StringVar(&o.Restore, "restore", "", "with --init: start from a backup in this directory, with the number of groups that it has; --groups is ignored")
	f.IntVar(&o.Shape.Groups, "groups", 16, "with --init: the number of groups that share the keys; it cannot be changed")
	f.IntVar(&o.Shape.Replicas, "replicas", 3, "with --init: the number of nodes in each group, or all if there are fewer")
	f.StringVar(&o.join, "join", "", "join the cluster of these nodes, if the directory is empty: their addresses for clients, separated by commas")
	f.StringVar(&o.HTTPAddr, "http", "", "serve the status page, /metrics and backups here; default: do not serve them")
	f.StringVar(&o.passwordFile, "password-file", "", "require clients to send the password on the first line of this file; default: the environment variable SIFT_PASSWORD")
	f.StringVar(&o.clientCert, "tls-cert", "", "the certificate for clients, with its chain")
	f.StringVar(&o.clientKey, "tls-key", "", "the private key of --tls-cert")
	f.StringVar(&o.clientCA, "tls-ca", "", "the authority that signs the certificates for clients; nodes connect to each other as clients, so all need it; default: the system's")
	f.StringVar(&o.peerCert, "peer-cert", "", "the certificate for other nodes")
	f.StringVar(&o.peerKey, "peer-key", "", "the private key of --peer-cert")
	f.StringVar(&o.peerCA, "peer-ca", "", "the authority that signs the nodes' certificates and no others")
	f.TextVar(&o.filterMemory, "filter-memory", bytesize.Size(1<<30), "`memory` for all filters, such as 512MiB")
	f.TextVar(&o.clientMemory, "client-memory", bytesize.Size(256<<20), "`memory` for requests and replies, garbage included")
	f.TextVar(&o.cacheMemory, "cache-memory", bytesize.Size(64<<20), "`memory` for the block cache")
	f.IntVar(&o.MaxClients, "max-clients", 10000, "the maximum number of connections")
	f.IntVar(&o.snapshots, "snapshot-entries", 8192, "the minimum number of log entries between two snapshots")
	f.DurationVar(&o.snapshotInterval, "snapshot-interval", 2*time.Minute, "the minimum time between two snapshots")
	f.DurationVar(&o.electionTimeout, "election-timeout", siftd.Raft().ElectionTimeout, "elect another leader if the leader is silent for this long; must be the same on all nodes")
	return f
}

// run runs a node until it receives a signal.
func run(ctx context.Context, args []string) error {
	var o options
	f := o.flags()
	if err := f.Parse(args); err != nil {
		return usageError{err}
	}
	if f.NArg() > 0 {
		return usageError{fmt.Errorf("unexpected argument %q", f.Arg(0))}
	}
	err := o.resolve()
	if err == nil {
		err = o.Config.Validate()
	}
	if err != nil {
		return usageError{err}
	}
	n, err := siftd.Start(o.Config)
	if err != nil {
		return err
	}
	o.Logger.Info("started", "id", n.ID(), "addr", n.Addr(), "status page", n.HTTPAddr())
	select {
	case <-ctx.Done():
	case <-n.Done():
	}
	o.Logger.Info("stopping")
	return n.Close()
}

// resolve validates the flags, and completes the configuration with the files that they name.
func (o *options) resolve() (err error) {
	if min(o.MaxClients, o.snapshots, o.Shape.Groups, o.Shape.Replicas) < 1 {
		return errors.New("--max-clients, --snapshot-entries, --groups and --replicas must be positive")
	}
	if min(o.filterMemory, o.clientMemory, o.cacheMemory) < 1<<20 {
		return errors.New("--filter-memory, --client-memory and --cache-memory must be at least 1MiB")
	}
	if o.snapshotInterval < minSnapshotInterval {
		return fmt.Errorf("--snapshot-interval must be at least %v", minSnapshotInterval)
	}
	if o.electionTimeout < minElectionTimeout {
		return fmt.Errorf("--election-timeout must be at least %v", minElectionTimeout)
	}
	o.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	o.FilterBytes, o.RequestBytes = int64(o.filterMemory), int64(o.clientMemory)/2
	o.DB = &sift.Options{CacheBytes: int64(o.cacheMemory), Logger: o.Logger}
	o.Raft = siftd.Raft()
	o.Raft.SnapshotInterval, o.Raft.SnapshotThreshold = o.snapshotInterval, uint64(o.snapshots)
	o.Raft.HeartbeatTimeout, o.Raft.ElectionTimeout, o.Raft.LeaderLeaseTimeout = o.electionTimeout, o.electionTimeout, o.electionTimeout/2
	o.Raft.TrailingLogs = min(o.Raft.TrailingLogs, uint64(o.snapshots))
	if o.join != "" {
		o.Join = strings.Split(o.join, ",")
	}
	o.Password = os.Getenv("SIFT_PASSWORD")
	if o.passwordFile != "" {
		if o.Password, err = readPassword(o.passwordFile); err != nil {
			return err
		}
	}
	if o.clientCA != "" && o.clientCert == "" {
		return errors.New("--tls-ca requires --tls-cert")
	}
	if o.clientCert != "" || o.clientKey != "" {
		cert, err := tls.LoadX509KeyPair(o.clientCert, o.clientKey)
		if err != nil {
			return fmt.Errorf("--tls-cert: %w", err)
		}
		o.ClientTLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
		o.JoinTLS = &tls.Config{MinVersion: tls.VersionTLS12}
		if o.clientCA != "" {
			if o.JoinTLS.RootCAs, err = authority(o.clientCA); err != nil {
				return fmt.Errorf("--tls-ca: %w", err)
			}
		}
	}
	if o.peerCert != "" || o.peerKey != "" || o.peerCA != "" {
		o.Peers = new(cluster.TLS)
		if o.Peers.Certificate, err = tls.LoadX509KeyPair(o.peerCert, o.peerKey); err != nil {
			return fmt.Errorf("--peer-cert: %w", err)
		}
		if o.Peers.Authority, err = authority(o.peerCA); err != nil {
			return fmt.Errorf("--peer-ca: %w", err)
		}
	}
	return nil
}

func readPassword(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	password := strings.TrimSuffix(line, "\r")
	if password == "" {
		return "", fmt.Errorf("the first line of %s is empty", path)
	}
	return password, nil
}

// authority reads the certificates of CAs.
func authority(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate", path)
	}
	return pool, nil
}
