package serve

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/siftdb/sift/internal/redisbloom"
	"github.com/siftdb/sift/internal/serve/resp"
)

// go-redis works over both protocols, including its methods for filters.
func TestGoRedis(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	for _, proto := range []int{2, 3} {
		ctx := context.Background()
		r := redis.NewClient(&redis.Options{Addr: s.Addr().String(), Protocol: proto})
		if err := r.FlushAll(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		check := func(name string, got, want any, err error) {
			t.Helper()
			if err != nil || got != want {
				t.Errorf("RESP%d %s = %v, %v; want %v", proto, name, got, err, want)
			}
		}
		v1, err := r.Set(ctx, "k", "v", time.Minute).Result()
		check("Set", v1, "OK", err)
		v2, err := r.Get(ctx, "k").Result()
		check("Get", v2, "v", err)
		v3, err := r.TTL(ctx, "k").Result()
		check("TTL", v3, time.Minute, err)
		if err := r.Get(ctx, "none").Err(); err != redis.Nil {
			t.Errorf("Get of an absent key: %v", err)
		}
		check("BFReserve", r.BFReserve(ctx, "b", 0.001, 1000).Val(), "OK", nil)
		v4, err := r.BFAdd(ctx, "b", "x").Result()
		check("BFAdd", v4, true, err)
		v5, err := r.BFMAdd(ctx, "b", "x", "y").Result()
		check("BFMAdd", len(v5) == 2 && !v5[0] && v5[1], true, err)
		v6, err := r.BFExists(ctx, "b", "y").Result()
		check("BFExists", v6, true, err)
		v7, err := r.BFMExists(ctx, "b", "y", "z").Result()
		check("BFMExists", len(v7) == 2 && v7[0] && !v7[1], true, err)
		v8, err := r.BFInsert(ctx, "bi", &redis.BFInsertOptions{Capacity: 10, Error: 0.1}, "a").Result()
		check("BFInsert", len(v8) == 1 && v8[0], true, err)
		v9, err := r.BFInfo(ctx, "b").Result()
		check("BFInfo", v9, redis.BFInfo{Capacity: 1000, Size: 2080, Filters: 1, ItemsInserted: 2, ExpansionRate: 2}, err)
		v10, err := r.BFCard(ctx, "b").Result()
		check("BFCard", v10, int64(2), err)
		for iter := int64(0); ; {
			d, err := r.BFScanDump(ctx, "b", iter).Result()
			if err != nil {
				t.Fatal(err)
			}
			if iter = d.Iter; iter == 0 {
				break
			}
			if err := r.BFLoadChunk(ctx, "b2", iter, d.Data).Err(); err != nil {
				t.Fatal(err)
			}
		}
		v11, err := r.BFExists(ctx, "b2", "y").Result()
		check("BFExists of a loaded dump", v11, true, err)
		check("CFReserve", r.CFReserveWithArgs(ctx, "c", &redis.CFReserveOptions{Capacity: 100, BucketSize: 4, MaxIterations: 10, Expansion: 2}).Val(), "OK", nil)
		v12, err := r.CFAdd(ctx, "c", "x").Result()
		check("CFAdd", v12, true, err)
		v13, err := r.CFAddNX(ctx, "c", "x").Result()
		check("CFAddNX", v13, false, err)
		v14, err := r.CFInsert(ctx, "c", &redis.CFInsertOptions{Capacity: 100}, "x", "y").Result()
		check("CFInsert", len(v14) == 2 && v14[0] && v14[1], true, err)
		v15, err := r.CFInsertNX(ctx, "c", &redis.CFInsertOptions{NoCreate: true}, "x", "z").Result()
		check("CFInsertNX", len(v15) == 2 && v15[0] == 0 && v15[1] == 1, true, err)
		v16, err := r.CFCount(ctx, "c", "x").Result()
		check("CFCount", v16, int64(2), err)
		v17, err := r.CFDel(ctx, "c", "x").Result()
		check("CFDel", v17, true, err)
		v18, err := r.CFMExists(ctx, "c", "x", "nope").Result()
		check("CFMExists", len(v18) == 2 && v18[0] && !v18[1], true, err)
		v19, err := r.CFInfo(ctx, "c").Result()
		check("CFInfo", v19.NumItemsInserted == 3 && v19.BucketSize == 4, true, err)
		_, err = r.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, "n", 1, 0)
			p.Incr(ctx, "n")
			return nil
		})
		v20, _ := r.Get(ctx, "n").Result()
		check("TxPipelined", v20, "2", err)
		n := 0
		for it := r.Scan(ctx, 0, "b*", 1).Iterator(); it.Next(ctx); n++ {
		}
		check("Scan", n, 3, nil)
		r.Close()
	}
}

func TestPassword(t *testing.T) { everyWay(t, testPassword) }

func testPassword(t *testing.T) {
	s := start(t, t.TempDir(), Config{Password: "right", HTTPAddr: "127.0.0.1:0", Pprof: true})
	c := dial(t, s)
	for _, step := range []struct {
		args []string
		want any
	}{
		{[]string{"GET", "k"}, failure("NOAUTH Authentication required.")},
		{[]string{"AUTH", "wrong"}, failure("WRONGPASS invalid username-password pair or user is disabled.")},
		{[]string{"AUTH", "other", "right"}, failure("WRONGPASS invalid username-password pair or user is disabled.")},
		{[]string{"AUTH", "default", "right"}, simple("OK")},
		{[]string{"GET", "k"}, null{2}},
		{[]string{"RESET"}, simple("RESET")},
		{[]string{"GET", "k"}, failure("NOAUTH Authentication required.")},
		{[]string{"AUTH", "right"}, simple("OK")},
	} {
		if got := c.do(step.args...); got != step.want {
			t.Errorf("%v: %v, want %v", step.args, got, step.want)
		}
	}
	for text, want := range map[string]string{
		"*11\r\n":            "-ERR Protocol error: unauthenticated multibulk length\r\n",
		"*1\r\n$16385\r\n":   "-ERR Protocol error: unauthenticated bulk length\r\n",
		"*1\r\n$999999\r\nx": "-ERR Protocol error: unauthenticated bulk length\r\n",
	} {
		if got := raw(t, s, text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for _, c := range []struct {
		password string
		status   int
	}{{"right", 200}, {"wrong", 401}, {"", 401}} {
		for _, path := range []string{"/", "/metrics", "/debug/pprof/"} {
			req, _ := http.NewRequest("GET", "http://"+s.HTTPAddr().String()+path, nil)
			if c.password != "" {
				req.SetBasicAuth("any", c.password)
			}
			tr := &http.Transport{DisableKeepAlives: true}
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != c.status {
				t.Errorf("%s with the password %q: status %d, want %d", path, c.password, resp.StatusCode, c.status)
			}
		}
	}
}

// raw sends bytes, and returns everything that the server sends until it closes the connection.
func raw(t testing.TB, s *Server, text string) string {
	t.Helper()
	c := dial(t, s)
	io.WriteString(c.conn, text)
	b, err := io.ReadAll(c.r)
	if err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("%q: %v", text, err)
	}
	return string(b)
}

func TestOnlyLoopbackWithoutPassword(t *testing.T) {
	for addr, ok := range map[string]bool{
		"127.0.0.1:0": true, "[::1]:0": true, "localhost:0": true,
		"0.0.0.0:0": false, ":0": false, "192.0.2.1:1": false, "[::]:0": false, "example.com:1": false,
	} {
		if _, err := (Config{Addr: addr}).resolve(); (err == nil) != ok {
			t.Errorf("%s: %v", addr, err)
		}
		if _, err := (Config{HTTPAddr: addr}).resolve(); (err == nil) != ok {
			t.Errorf("status page at %s: %v", addr, err)
		}
		if _, err := (Config{Addr: addr, Password: "p"}).resolve(); err != nil {
			t.Errorf("%s with a password: %v", addr, err)
		}
	}
}

// Without a password, only requests to localhost and loopback addresses are answered: another name
// may be that of a web site that wants to read the pages (DNS rebinding).
func TestOnlyLocalHostWithoutPassword(t *testing.T) {
	open := Config{HTTPAddr: "127.0.0.1:0", Pprof: true, Pages: map[string]http.HandlerFunc{"GET /page": func(http.ResponseWriter, *http.Request) {}}}
	closed := open
	closed.Password = "secret"
	status := func(s *Server, host, path string) int {
		t.Helper()
		req, err := http.NewRequest("GET", "http://"+s.HTTPAddr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		req.SetBasicAuth("", "secret")
		tr := &http.Transport{DisableKeepAlives: true}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	s, withPassword := start(t, t.TempDir(), open), start(t, t.TempDir(), closed)
	for host, want := range map[string]int{
		"127.0.0.1:7200": 200, "127.0.0.1": 200, "127.1.2.3:80": 200, "[::1]:7200": 200, "[::1]": 200, "localhost:7200": 200, "localhost": 200,
		"evil.example:7200": 421, "evil.example": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example:7200": 421, "192.0.2.1:7200": 421,
		"0.0.0.0:7200": 421, "[::]:7200": 421, "localhost:7200:80": 421,
	} {
		for _, path := range []string{"/", "/metrics", "/page", "/debug/pprof/"} {
			if got := status(s, host, path); got != want {
				t.Errorf("%s of %s: status %d, want %d", path, host, got, want)
			}
			if got := status(withPassword, host, path); got != 200 {
				t.Errorf("%s of %s with a password: status %d", path, host, got)
			}
		}
	}
}

func TestTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	s := start(t, t.TempDir(), Config{TLS: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}})
	r := redis.NewClient(&redis.Options{Addr: s.Addr().String(), TLSConfig: &tls.Config{RootCAs: pool}})
	defer r.Close()
	if v, err := r.Ping(context.Background()).Result(); err != nil || v != "PONG" {
		t.Errorf("PING = %q, %v", v, err)
	}
}

func TestLimits(t *testing.T) { everyWay(t, testLimits) }

func testLimits(t *testing.T) {
	s := start(t, t.TempDir(), Config{MaxClients: 3, MaxBulkBytes: 1 << 20, RequestBytes: 4 << 20, FilterBytes: 1 << 20, Fsync: FsyncNo})
	for text, want := range map[string]string{
		"*1048577\r\n":                           "-ERR Protocol error: invalid multibulk length\r\n",
		"*9223372036854775808\r\n":               "-ERR Protocol error: invalid multibulk length\r\n",
		"*x\r\n":                                 "-ERR Protocol error: invalid multibulk length\r\n",
		"*1\r\n+x\r\n":                           "-ERR Protocol error: expected '$', got '+'\r\n",
		"*1\r\n$9223372036854775800\r\nabc\r\n":  "-ERR Protocol error: invalid bulk length\r\n",
		"*1\r\n$-1\r\n":                          "-ERR Protocol error: invalid bulk length\r\n",
		"*1\r\n$1048577\r\n":                     "-ERR Protocol error: invalid bulk length\r\n",
		"*" + strings.Repeat("1", 70000):         "-ERR Protocol error: too big mbulk count string\r\n",
		"*1\r\n$" + strings.Repeat("1", 70000):   "-ERR Protocol error: too big bulk count string\r\n",
		strings.Repeat("a", 70000):               "-ERR Protocol error: too big inline request\r\n",
		"GET \"a\r\n":                            "-ERR Protocol error: unbalanced quotes in request\r\n",
		"*0\r\n*-1\r\n\r\nPING\r\nQUIT\r\nPING":  "+PONG\r\n+OK\r\n",
		"SET q 'a b'\r\nget \"\\x71\"\r\nQUIT\n": "+OK\r\n$3\r\na b\r\n+OK\r\n",
	} {
		if got := raw(t, s, text); got != want {
			t.Errorf("%.40q: %q, want %q", text, got, want)
		}
	}
	c := dial(t, s)
	oom := failure(errOOM.Error())
	if got := c.do("BF.RESERVE", "big", "0.01", "1000000"); got != oom {
		t.Errorf("a filter beyond the limit: %v", got)
	}
	if got := c.do("CF.RESERVE", "big", "1073741824"); got != oom {
		t.Errorf("a filter beyond the limit: %v", got)
	}
	if got := c.do("BF.RESERVE", "big", "1e-300", "1073741824", "EXPANSION", "32768"); got != oom {
		t.Errorf("a filter beyond the limit: %v", got)
	}
	// Adds to a filter fail when it would grow beyond the limit, and it keeps its items.
	full := false
	for i := 0; i < 200 && !full; i++ {
		args := []string{"BF.MADD", "grows"}
		for j := range 10000 {
			args = append(args, string(appendUint(nil, uint64(i*10000+j))))
		}
		list := c.do(args...).([]any)
		full = list[len(list)-1] == any(oom)
	}
	if got := s.filterBytes.Load(); !full || got > 1<<20 {
		t.Errorf("an add failed for lack of memory: %v, want true; the filter takes %d bytes", full, got)
	}
	if got := c.do("BF.EXISTS", "grows", "77"); got != any(int64(1)) {
		t.Errorf("the full filter has lost item 77: %v", got)
	}
	c.do("DEL", "grows")
	if got := s.filterBytes.Load(); got != 0 {
		t.Errorf("%d bytes are counted without a filter", got)
	}
	// A client beyond MaxClients is rejected, even while a request of another is incomplete.
	a, b := dial(t, s), dial(t, s)
	half := append([]byte("*2\r\n$4\r\nECHO\r\n$1048576\r\n"), make([]byte, 1000000)...)
	for i, who := range []*caller{a, b} {
		who.do("PING")
		if i == 0 {
			who.conn.Write(half)
		}
	}
	if got := raw(t, s, "PING\r\n"); got != "-ERR max number of clients reached\r\n" {
		t.Errorf("a fourth client: %q", got)
	}
}

// Filters of the tight layout, which Config.Layout requests, can be dumped and loaded.
func TestTightLayout(t *testing.T) { everyWay(t, testTightLayout) }

func testTightLayout(t *testing.T) {
	s := start(t, t.TempDir(), Config{Layout: redisbloom.Tight, Fsync: FsyncNo})
	c := dial(t, s)
	for i := range 2000 {
		c.do("BF.ADD", "b", string(appendUint(nil, uint64(i))))
	}
	for iter := int64(0); ; {
		part := c.do("BF.SCANDUMP", "b", string(appendUint(nil, uint64(iter)))).([]any)
		if iter = part[0].(int64); iter == 0 {
			break
		}
		if got := c.do("BF.LOADCHUNK", "c", string(appendUint(nil, uint64(iter))), part[1].(string)); got != simple("OK") {
			t.Fatal(got)
		}
	}
	for i := range 2000 {
		if got := c.do("BF.EXISTS", "c", string(appendUint(nil, uint64(i)))); got != any(int64(1)) {
			t.Fatalf("%d: %v", i, got)
		}
	}
}

// FuzzInput sends any input to three servers: one with event loops, one whose loops hand everything
// over, to which it sends the input in two parts, and one with goroutines. Their replies must be
// the same.
func FuzzInput(f *testing.F) {
	f.Add([]byte("*2\r\n$3\r\nGET\r\n$1\r\na\r\n"))
	f.Add([]byte("*3\r\n$6\r\nBF.ADD\r\n$1\r\na\r\n$1\r\nb\r\nBF.SCANDUMP a 0\r\nBF.INFO a\r\n"))
	f.Add([]byte("MULTI\r\nSET a b\r\nINCR a\r\nEXEC\r\nHELLO 3\r\nCF.ADD c x\r\nCF.INFO c\r\nSCAN 0 MATCH [a-\r\n"))
	f.Add([]byte("BF.LOADCHUNK x 1 \"\\x00\"\r\nCF.LOADCHUNK y 1 abc\r\nEXPIRE a 9223372036854775807\r\nSET a b PX 1\r\n"))
	f.Add([]byte("*1\r\n$9223372036854775800\r\nabc\r\n"))
	cfg := Config{MaxBulkBytes: 1 << 16, RequestBytes: 1 << 20, FilterBytes: 1 << 20, Fsync: FsyncNo}
	var servers []*Server
	defer func() { way = loops }()
	for _, way = range []serving{loops, handedOn, goroutines} {
		servers = append(servers, start(f, f.TempDir(), cfg))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		var said [3]string
		for i, s := range servers {
			conn, err := net.Dial("tcp", s.Addr().String())
			if err != nil {
				t.Skip(err) // no port is left
			}
			conn.SetDeadline(time.Now().Add(20 * time.Second))
			go func() {
				io.WriteString(conn, "FLUSHALL\r\n")
				cut := i % 2 * len(input) / 2
				conn.Write(input[:cut])
				conn.Write(input[cut:])
				io.WriteString(conn, "\r\nQUIT\r\n")
				conn.(*net.TCPConn).CloseWrite() // the input may have begun something large
			}()
			b, err := io.ReadAll(conn)
			conn.Close()
			if e, ok := err.(net.Error); ok && e.Timeout() {
				t.Fatalf("%q: server %d keeps the connection after %q", input, i, b)
			}
			if err == nil {
				said[i] = varies.ReplaceAllString(string(b), "")
			}
		}
		for i := range said {
			if said[0] != "" && said[i] != "" && said[i] != said[0] && !asksForVaried(input) {
				t.Errorf("%q: the replies are\n%q, from server %d\n%q", input, said[0], i, said[i])
			}
		}
	})
}

// varies matches the parts of replies that differ from one connection to the next.
var varies = regexp.MustCompile(`:\d+\r\n|(id|age|idle)=\d+|l?addr=\S+`)

// asksForVaried reports whether replies to the input may vary in other ways.
func asksForVaried(input []byte) bool {
	lower := bytes.ToLower(input)
	for _, word := range []string{"info", "time", "command", "client", "scan", "px", "ex", "at", "hello"} {
		if bytes.Contains(lower, []byte(word)) {
			return true
		}
	}
	return false
}

// Replies of numbers count as memory, too.
func TestNumbersCountAsReplies(t *testing.T) {
	db, _ := faultyStore(t)
	for _, most := range []int64{64 << 20, 1 << 20} {
		s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo, RequestBytes: most})
		if err != nil {
			t.Fatal(err)
		}
		c := localClient(s)
		c.w.Reserve = c.reserve
		args := fields("BF.MEXISTS none")
		for range maxArgs - 2 {
			args = append(args, []byte("x"))
		}
		c.do(lookup(args[0]), args)
		if got, size := s.requestBytes.Load(), int64(cap(c.w.Buf)); size > resp.FreeReply && got < size {
			t.Errorf("a reply takes %d bytes, of which %d count", size, got)
		}
		if small := most == 1<<20; small != strings.HasPrefix(string(c.w.Buf), "-OOM") {
			t.Errorf("with %d bytes: %.40s", most, c.w.Buf)
		}
		c.w.Reset()
	}
}

// RESET gives a client that has not authenticated no more time to do so.
func TestAuthTimeoutDespiteReset(t *testing.T) {
	everyWay(t, func(t *testing.T) {
		s := start(t, t.TempDir(), Config{Password: "p", AuthTimeout: 200 * time.Millisecond, Fsync: FsyncNo})
		c := dial(t, s)
		go func() {
			for {
				if _, err := io.WriteString(c.conn, "RESET\r\n"); err != nil {
					return
				}
				time.Sleep(50 * time.Millisecond)
			}
		}()
		c.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.Copy(io.Discard, c.r); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("a client without the password is still connected")
		}
	})
}

// A client that reads nothing is disconnected at once, also with TLS: other clients may be waiting.
func TestKillDoesNotWaitForTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe() // without buffers
	defer far.Close()
	go tls.Client(far, &tls.Config{InsecureSkipVerify: true}).Handshake() // and reads nothing afterwards
	conn := tls.Server(near, &tls.Config{SessionTicketsDisabled: true,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	if err := conn.Handshake(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	(&client{conn: conn}).kill(nil)
	if d := time.Since(begin); d > 2*time.Second {
		t.Errorf("a kill took %v", d)
	}
}

// A filter keeps nothing of a client whose changes have been written.
func TestFilterForgetsClient(t *testing.T) {
	db, _ := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo})
	if err != nil {
		t.Fatal(err)
	}
	c := localClient(s)
	for range 2 {
		c.do(lookup([]byte("bf.add")), fields("BF.ADD f x"))
		if err := c.finishWrites(); err != nil {
			t.Fatal(err)
		}
		if filterOf(s, "f").toucher != nil {
			t.Fatal("the filter keeps the client's buffers")
		}
	}
}

// The slow log is bounded in bytes, too.
func TestSlowlogIsBounded(t *testing.T) {
	var l slowlog
	l.most.Store(maxSlowlog)
	args := make([][]byte, 32)
	for i := range args {
		args[i] = bytes.Repeat([]byte("x"), 129)
	}
	for range 10_000 {
		l.add(&client{}, args, time.Second)
	}
	size := 0
	for _, e := range l.entries {
		size += e.size()
	}
	if size != l.bytes || size > maxSlowBytes || size < maxSlowBytes/2 {
		t.Errorf("%d entries with %d bytes, %d by its own count", len(l.entries), size, l.bytes)
	}
	l.most.Store(3)
	l.trim()
	if len(l.entries) != 3 || l.bytes != 3*l.entries[0].size() {
		t.Errorf("%d entries with %d bytes", len(l.entries), l.bytes)
	}
}
