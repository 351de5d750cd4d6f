package cluster

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	throughput    = flag.Int("cluster.throughput", 0, "how many rounds TestThroughput takes; 0: it is skipped")
	throughputFor = flag.Duration("cluster.throughput-for", 2*time.Second, "how long each of its measurements takes")
)

const (
	throughputClients = 50
	throughputKeys    = 30000
	throughputValue   = 100 // bytes
)

// load is the work of the clients: a command, in pipelines of a given depth.
type load struct {
	command string
	depth   int
	wait    bool // each pipeline ends with WAIT 1
}

func (l load) String() string {
	s := fmt.Sprintf("%s, %d at once", l.command, l.depth)
	if l.wait {
		s += ", WAIT 1"
	}
	return s
}

// figure is a measurement.
type figure struct {
	perSecond float64
	p50, p99  time.Duration // of a pipeline
}

// TestThroughput measures siftd and Redis Cluster alternately, and logs the medians.
func TestThroughput(t *testing.T) {
	if *throughput == 0 {
		t.Skip("without -cluster.throughput")
	}
	redis.SetLogger(silent{})
	set := []load{{command: "SET", depth: 1}, {command: "SET", depth: 16}}
	get := []load{{command: "GET", depth: 1}, {command: "GET", depth: 16}}
	waits := []load{{command: "SET", depth: 1, wait: true}, {command: "SET", depth: 16, wait: true}}
	built := siftdRival(t, 3)
	siftdOf := func(groups string) func(*testing.T) *rival {
		return func(t *testing.T) *rival {
			r := *built
			r.t, r.dir = t, t.TempDir()
			r.command = func(i int) *exec.Cmd {
				cmd := built.command(i)
				cmd.Args = append(cmd.Args, "--data", r.data(i))
				if i == 0 {
					cmd.Args = append(cmd.Args, "--groups", groups)
				}
				return cmd
			}
			return &r
		}
	}
	rivals := []struct {
		name  string
		start func(t *testing.T) *rival
		loads []load
	}{
		{"siftd, 16 groups", siftdOf("16"), slices.Concat(set, get)},
		{"siftd, 3 groups", siftdOf("3"), slices.Concat(set, get)},
		{"Redis", func(t *testing.T) *rival { return redisRival(t, false) }, slices.Concat(set, waits, get)},
		{"Redis, appendfsync always", func(t *testing.T) *rival {
			r := redisRival(t, false)
			command := r.command
			r.command = func(i int) *exec.Cmd {
				cmd := command(i)
				cmd.Args = append(cmd.Args, "--appendfsync", "always")
				return cmd
			}
			return r
		}, slices.Concat(set, waits)},
	}
	figures := map[string][]figure{}
	var rows []string
	for round := range *throughput {
		for _, of := range rivals {
			t.Run(fmt.Sprint(of.name, round), func(t *testing.T) {
				for i, f := range of.start(t).measureAll(of.loads) {
					row := fmt.Sprintf("| %s | %v", of.name, of.loads[i])
					if figures[row] = append(figures[row], f); !slices.Contains(rows, row) {
						rows = append(rows, row)
					}
				}
			})
		}
	}
	for _, row := range rows {
		all := figures[row]
		median := func(of func(f figure) float64) float64 {
			var list []float64
			for _, f := range all {
				list = append(list, of(f))
			}
			slices.Sort(list)
			n := len(list)
			return (list[(n-1)/2] + list[n/2]) / 2
		}
		t.Logf("%s | %.0f/s | %.2f ms | %.2f ms |", row, median(func(f figure) float64 { return f.perSecond }),
			median(func(f figure) float64 { return float64(f.p50) })/1e6, median(func(f figure) float64 { return float64(f.p99) })/1e6)
	}
}

// measureAll starts a cluster and measures each load.
func (r *rival) measureAll(loads []load) (out []figure) {
	r.startAll()
	defer r.killAll()
	client := r.client()
	r.waitPlaced(client)
	owned := r.owned(client)
	all := slices.Concat(owned...)
	slices.SortFunc(all, func(a, b string) int { return slotOf(a) - slotOf(b) })
	for keys := range slices.Chunk(all, 500) {
		if _, err := client.Pipelined(r.t.Context(), func(p redis.Pipeliner) error {
			for _, k := range keys {
				p.Set(r.t.Context(), k, strings.Repeat("x", throughputValue), 0)
			}
			return nil
		}); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, l := range loads {
		f, err := r.measure(owned, l)
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Logf("%s: %v: %.0f/s, p50 %v, p99 %v", r.name, l, f.perSecond, f.p50, f.p99)
		out = append(out, f)
	}
	return out
}

// owned waits until leaders no longer change, and returns the keys of each node.
func (r *rival) owned(client *redis.ClusterClient) (keys [][]string) {
	var before string
	calm := 0
	eventually(r.t, func() error {
		slots, err := client.ClusterSlots(r.t.Context()).Result() //lint:ignore SA1019 Redis 7 has it, and it is shorter
		if err != nil {
			return err
		}
		now := fmt.Sprint(slots)
		if calm++; now != before {
			before, calm = now, 0
		}
		if calm < 20 {
			time.Sleep(50 * time.Millisecond)
			return errors.New("leaders move")
		}
		keys = make([][]string, len(r.addrs))
		for n := range throughputKeys {
			k := fmt.Sprintf("key:%d", n)
			slot := slotOf(k)
			for _, s := range slots {
				if s.Start <= slot && slot <= s.End {
					i := slices.Index(r.addrs, s.Nodes[0].Addr)
					keys[i] = append(keys[i], k)
				}
			}
		}
		return nil
	})
	return keys
}

// slotOf returns the slot of a key without braces.
func slotOf(key string) int {
	crc := uint16(0)
	for _, b := range []byte(key) {
		crc ^= uint16(b) << 8
		for range 8 {
			high := crc >> 15
			crc = crc<<1 ^ high*0x1021
		}
	}
	return int(crc % 16384)
}

func TestSlotOf(t *testing.T) {
	if got := slotOf("foo"); got != 12182 {
		t.Error(got)
	}
}

// measure runs clients that put a load on the nodes that lead the keys' groups.
func (r *rival) measure(owned [][]string, l load) (f figure, err error) {
	var nodes []int
	for i := range owned {
		if len(owned[i]) > 0 {
			nodes = append(nodes, i)
		}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var took []time.Duration
	begin := time.Now()
	for i := range throughputClients {
		node := nodes[i%len(nodes)]
		wg.Go(func() {
			mine, failed := l.put(r.addrs[node], owned[node], begin.Add(*throughputFor))
			mu.Lock()
			took, err = append(took, mine...), errors.Join(err, failed)
			mu.Unlock()
		})
	}
	wg.Wait()
	if err != nil || len(took) == 0 {
		return f, fmt.Errorf("%v: %w", l, err)
	}
	elapsed := time.Since(begin)
	slices.Sort(took)
	return figure{float64(len(took)*l.depth) / elapsed.Seconds(), took[len(took)/2], took[len(took)*99/100]}, nil
}

// put runs a client with its own connection. It returns how long each pipeline took.
func (l load) put(addr string, keys []string, until time.Time) (took []time.Duration, err error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	in := bufio.NewReaderSize(conn, 64<<10)
	value := strings.Repeat("x", throughputValue)
	var request []byte
	for time.Now().Before(until) {
		request = request[:0]
		for range l.depth {
			key := keys[rand.IntN(len(keys))]
			if l.command == "SET" {
				request = fmt.Appendf(request, "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(key), key, len(value), value)
			} else {
				request = fmt.Appendf(request, "*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n", len(key), key)
			}
		}
		replies := l.depth
		if l.wait {
			request = append(request, "*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$4\r\n1000\r\n"...)
			replies++
		}
		asked := time.Now()
		if _, err := conn.Write(request); err != nil {
			return nil, err
		}
		for range replies {
			if err := skipReply(in); err != nil {
				return nil, err
			}
		}
		took = append(took, time.Since(asked))
	}
	return took, nil
}

// skipReply reads a reply, which must be neither an error nor nil.
func skipReply(in *bufio.Reader) error {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return err
	}
	line = bytes.TrimSuffix(line, []byte("\r\n"))
	switch line[0] {
	case '+':
		return nil
	case ':':
		if string(line) == ":0" {
			return errors.New("no replica has it")
		}
		return nil
	case '$':
		if n, err := strconv.Atoi(string(line[1:])); err == nil && n > 0 {
			_, err = io.CopyN(io.Discard, in, int64(n)+2)
			return err
		}
	}
	return fmt.Errorf("the reply is %q", line)
}
