package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cpuTime returns the CPU time of the threads that a process has now, in ns.
func cpuTime(pid int) (int64, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("no threads of process %d: %v", pid, err)
	}
	var total int64
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended
		}
		first, _, _ := strings.Cut(string(text), " ")
		n, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown CPU"
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.TrimSpace(strings.TrimLeft(name, "\t :"))
		}
	}
	return "unknown CPU"
}

// freePort returns an unused port.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func appendCall(b []byte, args ...string) []byte {
	b = fmt.Appendf(b, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}

// call sends one command, whose reply must be one line and not an error.
func call(port int, args ...string) error {
	return pipeline(port, appendCall(nil, args...), 1)
}

func pipeline(port int, b []byte, replies int) error {
	conn, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	done := make(chan error, 1)
	go func() {
		_, err := conn.Write(b)
		done <- err
	}()
	r := bufio.NewReader(conn)
	for range replies {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		if line[0] == '-' {
			return fmt.Errorf("reply %q", line)
		}
	}
	return <-done
}

// load sets all keys that redis-benchmark may request.
func load(port, keys int) error {
	const step = 10_000
	for from := 0; from < keys; from += step {
		var b []byte
		to := min(keys, from+step)
		for i := from; i < to; i++ {
			b = appendCall(b, "SET", fmt.Sprintf("key:%012d", i), value)
		}
		if err := pipeline(port, b, to-from); err != nil {
			return err
		}
	}
	return nil
}
