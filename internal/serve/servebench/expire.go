package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	expireLoad  = 25 * time.Second // the time to set the keys, after which they begin to expire
	expireTime  = 8 * time.Second  // from the first expiry to the last
	expireLimit = 5 * time.Minute
)

// runExpire sets -keys keys that expire within expireTime, not in the order of the keys, and gets
// keys one after the other, before that and until the server has removed all. With -cores 1 the
// server has a CPU of its own.
func runExpire(dir string) error {
	serverCPUs := "0,1"
	if *cores == "1" {
		serverCPUs = "0"
		if out, err := exec.Command("taskset", "-a", "-c", "-p", "1", strconv.Itoa(os.Getpid())).CombinedOutput(); err != nil {
			return fmt.Errorf("taskset: %w\n%s", err, out)
		}
	}
	fmt.Println("| server | sets/s | GET, µs | p99.9 | max | GET while keys expire, µs | p99.9 | max | removed/s | CPU µs a key | last removed, s late | directory, MiB | at the end |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|---|---|---|")
	for round := range *rounds {
		sub := filepath.Join(dir, strconv.Itoa(round))
		if err := os.Mkdir(sub, 0o755); err != nil {
			return err
		}
		if err := os.Mkdir(filepath.Join(sub, "redis"), 0o755); err != nil {
			return err
		}
		both := []*server{redisServer(serverCPUs, filepath.Join(sub, "redis")), siftServer("sift", serverCPUs, sub)}
		for _, s := range both {
			if err := s.expire(filepath.Join(sub, s.name)); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	return nil
}

// expire starts the server, whose files are below dir, and prints its row of the table.
func (s *server) expire(dir string) error {
	if err := s.start(); err != nil {
		return err
	}
	defer s.stop()
	began := time.Now()
	due := began.Add(expireLoad)
	const step = 10_000
	for from := 0; from < *keys; from += step {
		var b []byte
		to := min(*keys, from+step)
		for i := from; i < to; i++ {
			at := due.UnixMilli() + int64(i)*7919%expireTime.Milliseconds()
			b = appendCall(b, "SET", expireKey(i), strings.Repeat(value, 6), "PXAT", strconv.FormatInt(at, 10))
		}
		if err := pipeline(s.port, b, to-from); err != nil {
			return err
		}
	}
	set := time.Since(began)
	if set > expireLoad/2 {
		return fmt.Errorf("setting %d keys took %v", *keys, set)
	}
	if err := s.waitIdle(); err != nil {
		return err
	}
	conn, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(s.port))
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(began.Add(expireLimit))
	r := bufio.NewReader(conn)

	var before, during []time.Duration
	for time.Now().Before(due) {
		took, err := get(conn, r, len(before))
		if err != nil {
			return err
		}
		before = append(before, took)
	}
	cpu, err := cpuTime(s.cmd.Process.Pid)
	if err != nil {
		return err
	}
	var most int64
	for removed := 0; removed < *keys; {
		took, err := get(conn, r, len(during))
		if err != nil {
			return err
		}
		if during = append(during, took); len(during)%1000 == 0 {
			if removed, err = expired(conn, r); err != nil {
				return err
			}
			size, err := dirBytes(dir)
			if err != nil {
				return err
			}
			most = max(most, size)
		}
	}
	took := time.Since(due)
	after, err := cpuTime(s.cmd.Process.Pid)
	if err != nil {
		return err
	}
	if err := s.waitIdle(); err != nil {
		return err
	}
	end, err := dirBytes(dir)
	if err != nil {
		return err
	}
	fmt.Printf("| %s | %.0f | %s | %s | %.0f | %.1f | %.1f | %.0f | %.0f |\n", s.name, float64(*keys)/set.Seconds(), latencies(before), latencies(during),
		float64(*keys)/took.Seconds(), float64(after-cpu)/float64(*keys)/1e3, (took - expireTime).Seconds(), float64(most)/(1<<20), float64(end)/(1<<20))
	return nil
}

// dirBytes returns the total size of all files below dir.
func dirBytes(dir string) (sum int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			var info fs.FileInfo
			if info, err = e.Info(); err == nil {
				sum += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed in the meantime
		}
		return err
	})
	return sum, err
}

func expireKey(i int) string { return fmt.Sprintf("session:%08d", i) }

// get gets a key and returns how long that took. Each i up to *keys selects another key; their
// order is not that of the keys.
func get(conn net.Conn, r *bufio.Reader, i int) (time.Duration, error) {
	began := time.Now()
	if _, err := bulk(conn, r, "GET", expireKey(i*7919%*keys)); err != nil {
		return 0, err
	}
	return time.Since(began), nil
}

// expired returns how many keys the server has removed.
func expired(conn net.Conn, r *bufio.Reader) (int, error) {
	info, err := bulk(conn, r, "INFO", "stats")
	if err != nil {
		return 0, err
	}
	_, after, ok := strings.Cut(info, "\nexpired_keys:")
	if !ok {
		return 0, errors.New("INFO does not say how many keys have expired")
	}
	count, _, _ := strings.Cut(after, "\r")
	return strconv.Atoi(count)
}

// bulk sends a command, and returns the bulk string that it replies, "" if that is null.
func bulk(conn net.Conn, r *bufio.Reader, args ...string) (string, error) {
	if _, err := conn.Write(appendCall(nil, args...)); err != nil {
		return "", err
	}
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	n, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "$")))
	if err != nil {
		return "", fmt.Errorf("reply %q", line)
	}
	if n < 0 {
		return "", nil
	}
	text := make([]byte, n+2)
	_, err = io.ReadFull(r, text)
	return string(text), err
}

// latencies formats the median, the 99.9th percentile and the maximum in µs.
func latencies(of []time.Duration) string {
	if len(of) == 0 {
		return "- | - | -"
	}
	slices.Sort(of)
	us := func(d time.Duration) float64 { return float64(d) / 1e3 }
	return fmt.Sprintf("%.0f | %.0f | %.0f", us(of[len(of)/2]), us(of[len(of)*999/1000]), us(of[len(of)-1]))
}
