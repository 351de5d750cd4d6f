package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/bytesize"
	"github.com/siftdb/sift/internal/memlimit"
	"github.com/siftdb/sift/internal/redisbloom"
	"github.com/siftdb/sift/internal/serve"
)

type serveCmd struct {
	writing
	Addr         string         `default:"127.0.0.1:6380" placeholder:"HOST:PORT" help:"Listen here (${default}). Non-loopback addresses require a password."`
	HTTP         string         `name:"http" placeholder:"HOST:PORT" help:"Serve the status page and /metrics here. Default: do not serve them."`
	Pprof        bool           `help:"Serve /debug/pprof at the --http address, too."`
	PasswordFile string         `placeholder:"FILE" help:"Require the password on the first line of this file. Default: the environment variable SIFT_PASSWORD."`
	TLSCert      string         `name:"tls-cert" placeholder:"FILE" help:"The TLS certificate, followed by its chain."`
	TLSKey       string         `name:"tls-key" placeholder:"FILE" help:"The certificate's key."`
	Fsync        string         `default:"always" enum:"always,everysec,no" help:"When writes are synced: always, everysec or no (${default})."`
	Bloom        string         `default:"redis" enum:"redis,tight" help:"Layout of new Bloom filters: redis, as in RedisBloom, or tight, which reaches the requested rate in less memory (${default})."`
	FilterMemory *bytesize.Size `placeholder:"BYTES" help:"Memory for all filters. Default: 1GiB, or an eighth of the memory where the process may use less than 1GiB."`
	CacheMemory  *bytesize.Size `placeholder:"BYTES" help:"Memory for the store's block cache. Default: 64MiB, or a sixteenth of the memory where that is less than 1GiB."`
	ClientMemory *bytesize.Size `placeholder:"BYTES" help:"Memory for requests and replies of all clients together, including garbage. Default: 256MiB, or a quarter of the memory where that is less than 1GiB."`
	MaxClients   int            `default:"10000" placeholder:"N" help:"Maximum number of connections (${default})."`
	MaxValue     bytesize.Size  `default:"64MiB" placeholder:"BYTES" help:"Maximum size of a value, up to 512MiB (${default}). Keys have at most 1MiB."`
	NoLoops      bool           `help:"Serve each client with a goroutine, even on Linux, where event loops are the default."`
	Timeout      time.Duration  `default:"0s" help:"Close connections that have been idle for this long; 0s means never (${default})."`
	Dir          string         `arg:"" help:"The database. It is created if it is missing."`
	Grace        time.Duration  `default:"5s" help:"At shutdown, how long clients have to receive their last replies (${default})."`
}

func (serveCmd) Help() string {
	return `Serves the Redis protocol, RESP2 and RESP3: strings with expiry, and RedisBloom's BF and CF
commands on filters, all stored in the database. BF.SCANDUMP and BF.LOADCHUNK copy filters from and to
RedisBloom. A crash of the server loses no acknowledged write; --fsync determines what a power failure
may lose. The database must be empty or have been written by a server.

It stops on an interrupt, SIGTERM or SHUTDOWN, once the commands in progress are done.

Examples:

    sift serve db
    redis-cli -p 6380 BF.ADD seen alice
    sift serve --http 127.0.0.1:6381 --fsync everysec db
    sift serve --addr :6380 --password-file pw --tls-cert c.pem --tls-key k db`
}

func (c *serveCmd) Run(e *env) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(e.err, nil))
	given, err := c.memoryLimits()
	if err != nil {
		return err
	}
	memory := memlimit.Bytes()
	limits := given.Resolve(memory)
	o.Logger, o.CacheBytes = log, limits.Cache
	cfg, err := c.config(limits, log)
	if err != nil {
		return err
	}
	if memory > 0 && given.Sum() > memory {
		log.Warn("--filter-memory, --cache-memory and --client-memory exceed the memory that the process may use", "sum", bytesize.Size(given.Sum()).String(), "memory", bytesize.Size(memory).String())
	}
	c.limitMemory(limits)
	return e.withDB(c.Dir, o, func(db *sift.DB) error {
		start := time.Now()
		s, err := serve.New(db, cfg)
		if err != nil {
			return err
		}
		if err := s.Listen(); err != nil {
			return err
		}
		log.Info("ready", "addr", s.Addr().String(), "fsync", c.Fsync, "bloom", c.Bloom, "filters loaded in", time.Since(start), "cpus", runtime.GOMAXPROCS(0))
		if a := s.HTTPAddr(); a != nil {
			log.Info("status page", "addr", a.String())
		}
		var closed error
		done := make(chan struct{})
		stop := context.AfterFunc(e.ctx, func() {
			log.Info("stopping")
			closed = s.Close(c.Grace)
			close(done)
		})
		err = s.Serve()
		if stop() {
			return errors.Join(err, s.Close(c.Grace))
		}
		<-done
		return errors.Join(err, closed)
	})
}

// heapFactor is the maximum ratio of the heap to the live objects in it: with GOGC=100 the garbage
// collector runs when the heap has doubled.
const heapFactor = 2

// limitMemory sets Go's memory limit, unless the user has set one, to the sum of what the parts of
// the process may take. The store sizes its memory according to that limit; the server then lowers
// the limit to what the parts actually take.
func (c *serveCmd) limitMemory(limits serve.MemoryLimits) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	const (
		perClient = 48 << 10  // a client's buffers and stack
		rest      = 256 << 20 // memtables, table filters, compactions and the program
	)
	debug.SetMemoryLimit(limits.Sum() + int64(c.MaxClients)*perClient + rest)
}

// memoryLimits returns the limits that the flags set; the others are 0.
func (c *serveCmd) memoryLimits() (limits serve.MemoryLimits, err error) {
	for _, f := range []struct {
		flag  *bytesize.Size
		limit *int64
	}{{c.FilterMemory, &limits.Filters}, {c.CacheMemory, &limits.Cache}, {c.ClientMemory, &limits.Clients}} {
		if f.flag == nil {
			continue
		}
		if *f.flag < 1<<20 || *f.flag > 1<<50 {
			return limits, usage(errors.New("--filter-memory, --cache-memory and --client-memory must be at least 1MiB, and at most 1048576GiB"))
		}
		*f.limit = int64(*f.flag)
	}
	return limits, nil
}

// config turns the flags into the server's configuration.
func (c *serveCmd) config(limits serve.MemoryLimits, log *slog.Logger) (serve.Config, error) {
	if c.MaxValue < 1<<20 || c.MaxValue > 512<<20 {
		return serve.Config{}, usage(errors.New("--max-value must be at least 1MiB, and at most 512MiB"))
	}
	if c.MaxClients < 1 || c.MaxClients > 1<<30 {
		return serve.Config{}, usage(errors.New("--max-clients must be positive, and at most 2^30"))
	}
	if c.Timeout < 0 || c.Grace < 0 {
		return serve.Config{}, usage(errors.New("--timeout and --grace must not be negative"))
	}
	if c.Pprof && c.HTTP == "" {
		return serve.Config{}, usage(errors.New("--pprof requires --http"))
	}
	cfg := serve.Config{
		Addr: c.Addr, HTTPAddr: c.HTTP, Pprof: c.Pprof, FilterBytes: limits.Filters, RequestBytes: limits.Clients / heapFactor,
		MaxClients: c.MaxClients, MaxBulkBytes: int(c.MaxValue), IdleTimeout: c.Timeout, Logger: log,
		Password: os.Getenv("SIFT_PASSWORD"), NoLoops: c.NoLoops, LimitMemory: os.Getenv("GOMEMLIMIT") == "",
	}
	if c.Bloom == "tight" {
		cfg.Layout = redisbloom.Tight
	}
	var err error
	if cfg.Fsync, err = serve.ParseFsync(c.Fsync); err != nil {
		return cfg, err
	}
	if c.PasswordFile != "" {
		text, err := os.ReadFile(c.PasswordFile)
		if err != nil {
			return cfg, fmt.Errorf("--password-file: %w", err)
		}
		line, _, _ := strings.Cut(string(text), "\n")
		if cfg.Password = strings.TrimSuffix(line, "\r"); cfg.Password == "" {
			return cfg, usage(fmt.Errorf("--password-file: the first line of %s is empty", c.PasswordFile))
		}
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return cfg, usage(errors.New("--tls-cert and --tls-key go together"))
	}
	if c.TLSCert != "" {
		cert, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
		if err != nil {
			return cfg, fmt.Errorf("--tls-cert: %w", err)
		}
		cfg.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	}
	return cfg, usage(cfg.Validate())
}
