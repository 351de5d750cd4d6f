package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// longWork is a command with many keys or items. Before each run of it, prepare is sent for each
// key, unless it is nil.
type longWork struct {
	name    string
	args    []string // before the keys
	value   string   // after each key, if not ""
	old     bool     // the same keys in each run, otherwise new ones
	prepare []string // with KEY in place of the key
	filters bool     // redis-server has no such command
}

func longWorks() []longWork {
	set := []string{"SET", "KEY", value}
	return []longWork{
		{name: "MSET, new keys", args: []string{"MSET"}, value: value},
		{name: "MSET, existing keys", args: []string{"MSET"}, value: value, old: true, prepare: set},
		{name: "MSET, keys with an expiry", args: []string{"MSET"}, value: value, old: true, prepare: append(set, "EX", "1000")},
		{name: "DEL", args: []string{"DEL"}, old: true, prepare: set},
		{name: "UNLINK", args: []string{"UNLINK"}, old: true, prepare: set},
		{name: "EXISTS", args: []string{"EXISTS"}, old: true, prepare: set},
		{name: "MGET", args: []string{"MGET"}, old: true, prepare: set},
		{name: "BF.MADD", args: []string{"BF.MADD", "bloom"}, filters: true},
		{name: "BF.INSERT", args: []string{"BF.INSERT", "bloom", "ITEMS"}, filters: true},
		{name: "BF.MEXISTS", args: []string{"BF.MEXISTS", "bloom"}, filters: true},
		{name: "CF.INSERT", args: []string{"CF.INSERT", "cuckoo", "ITEMS"}, filters: true},
		{name: "CF.MEXISTS", args: []string{"CF.MEXISTS", "cuckoo"}, filters: true},
	}
}

// runHold measures how long a command with -items keys or items makes other clients wait. Each of
// these sends one small command after another.
func runHold(dir string) error {
	redis := redisServer("0,1", dir)
	sift := siftServer("sift", "0,1", dir)
	for _, s := range []*server{redis, sift} {
		if err := s.start(); err != nil {
			return err
		}
		defer s.stop()
	}
	for _, args := range [][]string{{"BF.RESERVE", "bloom", "0.01", "20000000"}, {"CF.RESERVE", "cuckoo", "20000000"}} {
		if err := call(sift.port, args...); err != nil {
			return err
		}
	}
	fmt.Printf("ms: the median time of the command over %d runs, and the longest wait in a run, as the median and the maximum\n\n", *rounds)
	fmt.Printf("| %d | redis: took | SET waits | sift: took | SET waits | GET waits | BF.EXISTS waits |\n", *items)
	fmt.Println("|---|---|---|---|---|---|---|")
	for _, w := range longWorks() {
		if !only.MatchString(w.name) {
			continue
		}
		row := []string{w.name, "", ""}
		if !w.filters {
			took, waits, err := w.hold(redis.port, "SET a b")
			if err != nil {
				return err
			}
			row = append(row[:1], median(took), summary(waits[0]))
		}
		took, waits, err := w.hold(sift.port, "SET a b", "GET a", "BF.EXISTS bloom x")
		if err != nil {
			return err
		}
		row = append(row, median(took))
		for _, wait := range waits {
			row = append(row, summary(wait))
		}
		fmt.Println("| " + strings.Join(row, " | ") + " |")
	}
	return nil
}

func ms(d time.Duration) string { return strconv.FormatFloat(d.Seconds()*1000, 'f', 0, 64) }

func median(of []time.Duration) string {
	slices.Sort(of)
	return ms(of[len(of)/2])
}

func summary(of []time.Duration) string { return median(of) + ", " + ms(of[len(of)-1]) }

// key returns the i-th key of a run.
func (w *longWork) key(run, i int) string {
	if w.old {
		run = 0
	}
	return fmt.Sprintf("%s:%d:%d", w.args[0], run, i*7919%1_000_003)
}

// hold runs the command, and returns how long it took in each run, and for each probe the longest
// wait in each run.
func (w *longWork) hold(port int, probes ...string) (took []time.Duration, waits [][]time.Duration, err error) {
	conn, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	r := bufio.NewReaderSize(conn, 1<<20)
	waits = make([][]time.Duration, len(probes))
	for run := range *rounds {
		if err := w.prepareRun(port, run); err != nil {
			return nil, nil, err
		}
		call := w.call(run)
		stop, ended := make(chan bool), sync.WaitGroup{}
		longest, errs := make([]time.Duration, len(probes)), make([]error, len(probes))
		for i, p := range probes {
			ended.Go(func() { longest[i], errs[i] = probe(port, strings.Fields(p), stop) })
		}
		time.Sleep(50 * time.Millisecond)
		began := time.Now()
		_, err := conn.Write(call)
		if err == nil {
			err = skipReply(r)
		}
		took = append(took, time.Since(began))
		close(stop)
		ended.Wait()
		for i := range probes {
			waits[i] = append(waits[i], longest[i])
			if err == nil {
				err = errs[i]
			}
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return took, waits, nil
}

// call returns the command of a run.
func (w *longWork) call(run int) []byte {
	args := slices.Clone(w.args)
	for i := range *items {
		args = append(args, w.key(run, i))
		if w.value != "" {
			args = append(args, w.value)
		}
	}
	return appendCall(nil, args...)
}

func (w *longWork) prepareRun(port, run int) error {
	if w.prepare == nil {
		return nil
	}
	const step = 10_000
	for from := 0; from < *items; from += step {
		var b []byte
		to := min(*items, from+step)
		for i := from; i < to; i++ {
			args := slices.Clone(w.prepare)
			args[slices.Index(args, "KEY")] = w.key(run, i)
			b = appendCall(b, args...)
		}
		if err := pipeline(port, b, to-from); err != nil {
			return err
		}
	}
	return nil
}

// probe sends a small command again and again until stop is closed, and returns the longest time
// that one took.
func probe(port int, args []string, stop <-chan bool) (longest time.Duration, err error) {
	conn, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	call := appendCall(nil, args...)
	for {
		select {
		case <-stop:
			return longest, nil
		default:
		}
		began := time.Now()
		if _, err := conn.Write(call); err != nil {
			return 0, err
		}
		if err := skipReply(r); err != nil {
			return 0, err
		}
		longest = max(longest, time.Since(began))
		time.Sleep(200 * time.Microsecond)
	}
}

// skipReply reads a reply, which must not be an error.
func skipReply(r *bufio.Reader) error {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(line[1:])))
	switch kind := line[0]; {
	case kind == '-':
		return fmt.Errorf("reply %q", line)
	case kind == '$' && n >= 0:
		_, err = io.CopyN(io.Discard, r, int64(n)+2)
	case kind == '*':
		for ; n > 0 && err == nil; n-- {
			err = skipReply(r)
		}
	}
	return err
}

// redisServer returns a redis-server with its files in dir.
func redisServer(cpus, dir string) *server {
	args := []string{"redis-server", "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "yes", "--appendfsync", "everysec", "--dir", dir}
	if *bloom != "" {
		args = append(args, "--loadmodule", *bloom)
	}
	return &server{name: "redis", cpus: cpus, args: args}
}
