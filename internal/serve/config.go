// Package serve serves a sift database to Redis clients: strings, which are stored in it, and
// RedisBloom's BF and CF commands on filters, which are persisted in it.
//
// On Linux, clients without TLS are served by event loops, see loop; elsewhere each has a
// goroutine. The loops use the standard library's system calls directly. The best maintained
// library for this, github.com/panjf2000/gnet/v2, was considered and rejected: it buffers a
// client's unsent replies without a bound, it has no timeouts, and it has no hook between reading
// from all ready clients and sending the first reply, where one write to the store serves them all.
// Bounds and the order of commands would have to be implemented here anyway, and the library would
// do little more than four system calls.
package serve

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"time"

	"github.com/siftdb/sift/internal/memlimit"
	"github.com/siftdb/sift/internal/redisbloom"
	"github.com/siftdb/sift/internal/vfs"
)

// Fsync selects when a write is synced; the names are those of Redis. Until then a power cut may
// lose the write. A crash of the server alone never loses an acknowledged write.
type Fsync int32

const (
	// FsyncAlways syncs before the reply; writes of many clients and of one
	// pipeline share a sync.
	FsyncAlways Fsync = iota
	// FsyncEverySec syncs once a second.
	FsyncEverySec
	// FsyncNo leaves syncing to the operating system.
	FsyncNo
)

var fsyncNames = [...]string{"always", "everysec", "no"}

func (f Fsync) String() string { return fsyncNames[f] }

// ParseFsync is the inverse of Fsync.String.
func ParseFsync(s string) (Fsync, error) {
	for i, name := range fsyncNames {
		if s == name {
			return Fsync(i), nil
		}
	}
	return 0, fmt.Errorf("serve: fsync %q is none of always, everysec, no", s)
}

// longestBulk is the maximum of Config.MaxBulkBytes.
const longestBulk = 512 << 20

// Config configures a Server. Zero fields mean the defaults.
type Config struct {
	// Addr is the address to listen on. Default: 127.0.0.1:6380. A non-loopback address requires
	// Password.
	Addr string
	// HTTPAddr is the address of /metrics and the status page; empty: they are not served. A
	// non-loopback address requires Password, for HTTP basic authentication with any user name.
	// Without Password, requests whose Host is neither localhost nor a loopback address are
	// refused.
	HTTPAddr string
	// Pprof also serves /debug/pprof at HTTPAddr.
	Pprof bool
	// Password is what AUTH requires; empty: none.
	Password string
	// TLS, if not nil, is used for Addr and HTTPAddr.
	TLS *tls.Config
	// Fsync selects when writes are synced. Default: FsyncAlways.
	Fsync Fsync
	// Layout is the layout of new Bloom filters. Default: redisbloom.Redis.
	Layout redisbloom.Layout
	// FilterBytes bounds the memory of all filters. Default: that of MemoryLimits.Filters.
	FilterBytes int64
	// RequestBytes bounds the memory of requests that are being received, replies that are being
	// sent, queued transactions and their changes, and watched keys, of all clients together. The
	// first 1 KiB of each client's requests and the first 32 KiB of its replies do not count.
	// Including garbage, the process takes up to twice this. Default: 256 MiB, or an eighth of the
	// memory that the process may use, if it may use less than 1 GiB.
	RequestBytes int64
	// LimitMemory makes the server set the garbage collector's memory limit, which applies to the
	// whole process, to what filters, the store, clients and their requests and replies take, or to
	// seven eighths of the memory of the container or machine if that is less. Only one server in a
	// process may set it. Closing the server restores the previous limit.
	LimitMemory bool
	// MaxClients bounds the connections. Default: 10000. On Unix it is lowered to what the limit of
	// open files allows: half of that is for tables, and some are for logs and the status page.
	MaxClients int
	// MaxBulkBytes bounds an argument, and thus a value. Default: 64 MiB. Maximum: 512 MiB.
	MaxBulkBytes int
	// IdleTimeout closes connections that have sent nothing for this long; 0: never.
	IdleTimeout time.Duration
	// AuthTimeout is how long a connection may take to authenticate. Default: 30 seconds.
	AuthTimeout time.Duration
	// WriteTimeout closes connections that read less than 1 MiB of their replies in this time.
	// Default: 30 seconds.
	WriteTimeout time.Duration
	// NoLoops serves each client with a goroutine even where there are event loops.
	NoLoops bool
	// Group, if not nil, replicates the store; the server then writes only through it. Fsync is
	// then FsyncAlways, and NoLoops is set.
	Group Group
	// Leads means that the node leads the group as long as the server runs; other nodes redirect
	// clients to the leader.
	Leads bool
	// Pages are handlers to serve at HTTPAddr in addition to the status page, by their patterns.
	Pages map[string]http.HandlerFunc
	// Shards, if not nil, makes the server a front end without a database. Attach adds the servers
	// of the groups that the node is in, each with the front end as its Front. Group is then the
	// directory group, and Leads is true.
	Shards Shards
	// Front is the front end whose clients' commands this server executes. The server uses the
	// Config of Front, except for Group, Leads and Shard. Attach starts it.
	Front *Server
	// Shard is the server's index among the Shards.
	Shard int
	// Logger receives errors and warnings. Default: they are discarded.
	Logger *slog.Logger
}

// Validate returns the error with which New would reject the Config, or nil.
func (c Config) Validate() error {
	_, err := c.resolve()
	return err
}

// otherFiles are the descriptors for logs, compactions, event loops and the status page. At least
// leastClients connections are allowed.
const otherFiles, leastClients = 128, 32

// resolve validates the configuration and fills in defaults.
func (c Config) resolve() (Config, error) {
	if c.Front != nil {
		shard := c
		c = c.Front.cfg
		c.Group, c.Leads, c.Shard, c.Front, c.Shards = shard.Group, shard.Leads, shard.Shard, shard.Front, nil
		return c, nil
	}
	def := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	if c.Addr == "" {
		c.Addr = "127.0.0.1:6380"
	}
	memory := memlimit.Bytes()
	def(&c.FilterBytes, MemoryLimits{}.Resolve(memory).Filters)
	def(&c.RequestBytes, defaultBytes(memory, 256<<20, 4*garbageFactor))
	if c.MaxClients == 0 {
		c.MaxClients = 10000
	}
	if runtime.GOOS != "windows" { // there is no limit
		c.MaxClients = min(c.MaxClients, max(leastClients, vfs.MaxFiles()/2-otherFiles))
	}
	if c.MaxBulkBytes == 0 {
		c.MaxBulkBytes = 64 << 20
	}
	if c.AuthTimeout == 0 {
		c.AuthTimeout = 30 * time.Second
	}
	if c.WriteTimeout == 0 {
		c.WriteTimeout = 30 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Group != nil {
		c.Fsync, c.NoLoops = FsyncAlways, true
	}
	for _, limit := range []struct {
		name     string
		is, from int64
	}{
		{"FilterBytes", c.FilterBytes, 0}, {"RequestBytes", c.RequestBytes, 1 << 16}, {"MaxClients", int64(c.MaxClients), 1},
		{"MaxBulkBytes", int64(c.MaxBulkBytes), 1 << 10}, {"IdleTimeout", int64(c.IdleTimeout), 0},
		{"AuthTimeout", int64(c.AuthTimeout), 0}, {"WriteTimeout", int64(c.WriteTimeout), 0},
	} {
		if limit.is < limit.from {
			return c, fmt.Errorf("serve: %s is %d, and must be at least %d", limit.name, limit.is, limit.from)
		}
	}
	if c.MaxBulkBytes > longestBulk {
		return c, errors.New("serve: MaxBulkBytes must be at most 512 MiB")
	}
	for _, addr := range []string{c.Addr, c.HTTPAddr} {
		if addr == "" || c.Password != "" {
			continue
		}
		if local, err := isLoopback(addr); err != nil {
			return c, fmt.Errorf("serve: %w", err)
		} else if !local {
			return c, fmt.Errorf("serve: %s is not a loopback address and requires a password", addr)
		}
	}
	return c, nil
}

// isLoopback reports whether only this machine can reach an address.
func isLoopback(addr string) (bool, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false, err
	}
	if host == "localhost" {
		return true, nil
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback(), nil
}
