// Command servebench compares sift serve with redis-server, command by command in alternation, with
// redis-benchmark as the client of both: requests per second, and the server's CPU time per
// request. Before each row both servers finish their background work. GET after MSET is measured
// right after the MSETs.
//
//	go build -o sift ./cmd/sift
//	go run ./internal/serve/servebench -sift ./sift
//
// Filters are compared with bit commands or, with -redisbloom, with those of RedisBloom.
//
// With -goroutines it compares sift's two ways to serve clients instead: a goroutine per client,
// and event loops.
//
// With -restart it measures instead how long sift takes to start with many keys and filters, after
// a kill and after a clean shutdown.
//
// With -expire it measures instead how fast -keys keys that expire within a few seconds are
// removed, and how long GETs take meanwhile.
//
// With -hold it measures instead how long commands with -items keys make other clients wait.
//
// Both servers persist writes and sync them once a second. It needs Linux, redis-server,
// redis-benchmark and taskset.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

var (
	siftPath = flag.String("sift", "./sift", "the sift program")
	requests = flag.Int("n", 100_000, "requests per measurement; four times as many in pipelines")
	rounds   = flag.Int("rounds", 3, "measurements of each row; the median is printed")
	keys     = flag.Int("keys", 100_000, "existing keys")
	depths   = flag.String("pipeline", "1,16,100", "commands that a client sends before it waits")
	threads  = flag.Bool("goroutines", false, "measure sift serve --no-loops in place of redis-server")
	bloom    = flag.String("redisbloom", "", "a module for redis-server: compare filters with its filters instead of SETBIT, GETBIT and BITFIELD")
	restart  = flag.Bool("restart", false, "measure starts with -keys keys and -filters filters")
	filters  = flag.Int("filters", 100, "filters of 100,000 items for -restart")
	hold     = flag.Bool("hold", false, "measure how long a command with -items keys or items makes other clients wait")
	expire   = flag.Bool("expire", false, "measure how -keys keys that expire at about the same time are removed")
	items    = flag.Int("items", 300_000, "keys or items of a command for -hold")
	cores    = flag.String("cores", "1,2", "CPUs of the server: with 1 the client has the other, with 2 they share both")
)

// work is one row: the commands for redis-server and for sift.
type work struct {
	name        string
	redis, sift []string
	span        int      // of __rand_int__
	before      []string // a write that precedes each measurement
}

// only selects rows by the names of their commands.
var only regexp.Regexp

func init() {
	flag.TextVar(&only, "only", regexp.MustCompile(""), "measure only commands whose names match this regular `expression`")
}

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "servebench:", err)
		os.Exit(1)
	}
}

func run() error {
	dir, err := os.MkdirTemp("", "servebench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Printf("%s, %d CPUs, %s\n\n", cpuModel(), runtime.NumCPU(), runtime.Version())
	if *restart {
		return runRestart(dir)
	}
	if *expire {
		return runExpire(dir)
	}
	if *hold {
		return runHold(dir)
	}
	names := "redis /s | µs | sift /s"
	if *threads {
		names = "goroutines /s | µs | loops /s"
	}
	fmt.Println("| cores | pipeline | command | " + names + " | µs | rate | CPU |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	for n := range strings.SplitSeq(*cores, ",") {
		if err := runCores(filepath.Join(dir, n), n); err != nil {
			return err
		}
	}
	return nil
}

const (
	key   = "key:__rand_int__"
	value = "0123456789abcdef"
	item  = "__rand_int__"
	// redis-benchmark's numbers have leading zeros, which an offset must not have.
	bits = "bits:__rand_int__"
)

func works() []work {
	mset := []string{"MSET"}
	for range 10 {
		mset = append(mset, key, value)
	}
	madd := []string{"BF.MADD", "many"}
	for range 10 {
		madd = append(madd, item)
	}
	bitfield := []string{"BITFIELD", bits}
	for i := range 10 {
		bitfield = append(bitfield, "SET", "u1", strconv.Itoa(i), "1")
	}
	get, set := []string{"GET", key}, []string{"SET", key, value}
	const fresh = 1 << 30 // hardly any number occurs twice
	add, exists := []string{"BF.ADD", "one", item}, []string{"BF.EXISTS", "one", item}
	rows := []work{
		{name: "BF.ADD, SETBIT", redis: []string{"SETBIT", bits, "7", "1"}, sift: add, span: fresh},
		{name: "BF.EXISTS, GETBIT", redis: []string{"GETBIT", bits, "7"}, sift: exists, span: fresh},
		{name: "BF.MADD of 10, BITFIELD of 10", redis: bitfield, sift: madd, span: fresh},
	}
	for i := range rows {
		if w := &rows[i]; *bloom != "" {
			w.name, _, _ = strings.Cut(w.name, ",")
			w.redis = w.sift
		}
	}
	return append([]work{
		{name: "GET", redis: get, sift: get, span: *keys},
		{name: "GET after MSET", redis: get, sift: get, span: *keys, before: mset},
		{name: "SET", redis: set, sift: set, span: *keys},
		{name: "MSET of 10", redis: mset, sift: mset, span: *keys},
	}, rows...)
}

// runCores starts both servers, on one CPU or on both, and measures.
func runCores(dir, n string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	serverCPUs, clientCPUs := "0", "1"
	if n != "1" {
		serverCPUs, clientCPUs = "0,1", "0,1"
	}
	redis := redisServer(serverCPUs, dir)
	sift := siftServer("sift", serverCPUs, dir)
	if *threads {
		redis = siftServer("goroutines", serverCPUs, dir, "--no-loops")
	}
	both := []*server{redis, sift}
	for _, s := range both {
		if err := s.start(); err != nil {
			return err
		}
		defer s.stop()
		if err := load(s.port, *keys); err != nil {
			return err
		}
	}
	for _, s := range both {
		if s.name != "redis" {
			// After a restart sift has the keys in tables, and reads them into its cache.
			s.stop()
			if err := s.start(); err != nil {
				return err
			}
		} else if *bloom == "" {
			continue
		}
		for _, name := range []string{"one", "many"} {
			if err := call(s.port, "BF.RESERVE", name, "0.01", "20000000"); err != nil {
				return err
			}
		}
	}
	for depth := range strings.SplitSeq(*depths, ",") {
		deep, err := strconv.Atoi(depth)
		if err != nil {
			return err
		}
		count := *requests
		if deep > 1 {
			count *= 4
		}
		for _, w := range works() {
			if !only.MatchString(w.name) {
				continue
			}
			var rates, cpus [2][]float64
			for _, s := range both {
				if err := s.waitIdle(); err != nil {
					return err
				}
				if _, _, err := s.row(&w, clientCPUs, count/4, deep, nil); err != nil { // reads everything once
					return err
				}
			}
			for range *rounds {
				for i, s := range both {
					r, c, err := s.row(&w, clientCPUs, count, deep, w.before)
					if err != nil {
						return err
					}
					rates[i], cpus[i] = append(rates[i], r), append(cpus[i], c)
				}
			}
			rate := [2]float64{middle(rates[0]), middle(rates[1])}
			cpu := [2]float64{middle(cpus[0]), middle(cpus[1])}
			name := w.name
			if *threads { // without the commands for redis-server
				name, _, _ = strings.Cut(name, ",")
			}
			fmt.Printf("| %s | %d | %s | %.0f | %.2f | %.0f | %.2f | %.2f | %.2f |\n",
				n, deep, name, rate[0], cpu[0], rate[1], cpu[1], rate[1]/rate[0], cpu[1]/cpu[0])
		}
	}
	return nil
}

// row measures one row of the table on the server. If before is not nil, that is sent count times
// first, and only the first fifth of the requests after it are sent and measured.
func (s *server) row(w *work, clientCPUs string, count, depth int, before []string) (rate, cpu float64, err error) {
	args, span := w.redis, w.span
	if s.name != "redis" {
		args = w.sift
	} else if args[1] == bits {
		span = *keys
	}
	if before != nil {
		if _, _, err := s.measure(clientCPUs, count, depth, span, before); err != nil {
			return 0, 0, err
		}
		count /= 5
	}
	return s.measure(clientCPUs, count, depth, span, args)
}

func middle(of []float64) float64 {
	slices.Sort(of)
	return (of[(len(of)-1)/2] + of[len(of)/2]) / 2
}

// waitIdle waits until the server has finished its background work: until it uses hardly any CPU
// time.
func (s *server) waitIdle() error {
	last := int64(-1)
	for range 100 {
		now, err := cpuTime(s.cmd.Process.Pid)
		if err != nil {
			return err
		}
		if last >= 0 && now-last < int64(2*time.Millisecond) {
			return nil
		}
		last = now
		time.Sleep(300 * time.Millisecond)
	}
	return errors.New(s.name + " does not become idle")
}

// server is a process that is measured.
type server struct {
	name string
	cpus string
	port int
	args []string
	cmd  *exec.Cmd
}

// siftServer returns a sift serve with its database in a directory in dir.
func siftServer(name, cpus, dir string, flags ...string) *server {
	args := append([]string{*siftPath, "serve", "--fsync", "everysec"}, flags...)
	return &server{name: name, cpus: cpus, args: append(args, filepath.Join(dir, name))}
}

// start starts the server on a free port, and waits until it answers.
func (s *server) start() (err error) {
	if s.port, err = freePort(); err != nil {
		return err
	}
	port := []string{"--addr", "127.0.0.1:" + strconv.Itoa(s.port)}
	if s.name == "redis" {
		port = []string{"--port", strconv.Itoa(s.port)}
	}
	s.cmd = exec.Command("taskset", slices.Concat([]string{"-c", s.cpus}, s.args, port)...)
	if err := s.cmd.Start(); err != nil {
		return err
	}
	for range 10_000 {
		if call(s.port, "PING") == nil {
			return nil
		}
		time.Sleep(2 * time.Millisecond)
	}
	s.stop()
	return errors.New(s.name + " does not answer")
}

func (s *server) stop() {
	if s.cmd == nil {
		return
	}
	s.cmd.Process.Signal(os.Interrupt)
	s.cmd.Wait()
	s.cmd = nil
}

// measure returns the requests per second, and the server's CPU time per request in µs.
func (s *server) measure(clientCPUs string, count, depth, span int, args []string) (rate, cpu float64, err error) {
	bench := append([]string{"-c", clientCPUs, "redis-benchmark", "-p", strconv.Itoa(s.port), "-c", "50", "-n", strconv.Itoa(count),
		"-r", strconv.Itoa(span), "-P", strconv.Itoa(depth), "--csv"}, args...)
	before, err := cpuTime(s.cmd.Process.Pid)
	if err != nil {
		return 0, 0, err
	}
	out, err := exec.Command("taskset", bench...).CombinedOutput()
	if err != nil {
		return 0, 0, fmt.Errorf("%s %q: %w: %s", s.name, args, err, out)
	}
	after, err := cpuTime(s.cmd.Process.Pid)
	if err != nil {
		return 0, 0, err
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	fields := strings.Split(lines[len(lines)-1], `","`)
	if len(fields) < 2 {
		return 0, 0, fmt.Errorf("redis-benchmark printed %q", out)
	}
	rate, err = strconv.ParseFloat(fields[1], 64)
	return rate, float64(after-before) / float64(count) / 1e3, err
}
