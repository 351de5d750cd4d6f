package serve

import (
	"bufio"
	"math/rand/v2"
	"net"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// randomForms are commands, with a letter for each argument that is chosen: k a key, v a value,
// n a number, b the offset of a bit, t a time, d a database. After the bar are options.
var randomForms = strings.Split(`GET k
SET k v|NX XX GET KEEPTTL EX:t PX:t EXAT:t PXAT:t
SET k n
SETNX k v
SETEX k t v
PSETEX k t v
GETSET k v
GETDEL k
GETEX k|EX:t PX:t EXAT:t PXAT:t PERSIST
MGET k k k
MSET k v k n
MSETNX k v k v
STRLEN k
APPEND k v
INCR k
DECR k
INCRBY k n
DECRBY k n
INCRBYFLOAT k n
GETRANGE k n n
SUBSTR k n n
SETRANGE k n v
SETBIT k b b
GETBIT k n
BITCOUNT k
BITCOUNT k n n|BIT BYTE
BITPOS k b
BITPOS k b n|BIT
BITPOS k b n n|BIT BYTE
BITOP AND k k k
BITOP OR k k
BITOP XOR k k k
BITOP NOT k k
LCS k k|LEN IDX MINMATCHLEN:n WITHMATCHLEN
DEL k k
UNLINK k
EXISTS k k
TOUCH k k
TYPE k
TTL k
PTTL k
EXPIRETIME k
PEXPIRETIME k
EXPIRE k t|NX XX GT LT
PEXPIRE k t|NX XX GT LT
EXPIREAT k t|NX XX GT LT
PEXPIREAT k t|NX XX GT LT
PERSIST k
RENAME k k
RENAMENX k k
COPY k k|DB:d REPLACE
MOVE k d
SELECT d
SWAPDB d d
DBSIZE
FLUSHDB|SYNC ASYNC
DUMP absent
RESTORE k t v|REPLACE ABSTTL IDLETIME:n FREQ:n
OBJECT ENCODING absent
OBJECT REFCOUNT absent
OBJECT IDLETIME absent
OBJECT FREQ absent
MEMORY USAGE absent|SAMPLES:n
PING
PING v
ECHO v
MULTI
EXEC
DISCARD
WATCH k
UNWATCH
CLIENT SETNAME k
CLIENT GETNAME
CLIENT LIST ID n n
CLIENT LIST TYPE v
CLIENT KILL ID n
CLIENT KILL TYPE v
CLIENT NO-EVICT v
CLIENT UNBLOCK n|TIMEOUT ERROR
CONFIG GET absent
CONFIG SET absent v
COMMAND COUNT v
COMMAND GETKEYS GET k
COMMAND GETKEYS MSET k v k
COMMAND INFO none
SLOWLOG LEN
SLOWLOG RESET
SLOWLOG GET n
SCAN v|MATCH:v COUNT:n
WAIT 0 n
AUTH v
HELLO v
NOSUCH k v`, "\n")

var randomArgs = map[string][]string{
	"k": {"k1", "k2", "k3", "k4", "none"},
	"v": {"", "a", "abc", "hello world", "12", "-7", "3.5", "\x00\xff\x80", "x\x00y"},
	"n": {"0", "1", "-1", "2", "-2", "7", "100", "-1000", "536870912", "4294967295", "4294967296", "9223372036854775807",
		"-9223372036854775808", "9223372036854775808", "x", "", " 1", "1 ", "01", "+1", "-0", "1.5", "1e3", "5\x00", "nan", "0x10"},
	"b": {"0", "1", "2", "7", "100", "-1", "4294967296", "x", "", "1\x00"},
	"t": {"1000000", "100000000", "0", "-1", "4102444800", "9223372036854775", "9223372036854775807", "-9223372036854775808", "x", "", "1.5", "1000000\x00", "01"},
	"d": {"0", "0", "1", "2", "15", "16", "-1", "x", "", "4294967296", "9223372036854775808"},
	// What replaces an argument or is added after the last. The key "absent" is never set, because
	// replies would differ then.
	"any": {"k1", "none", "WHAT", "", "0", "x", "-1", "NX", "ID", "GET", "a\r\nb"},
}

// randomCall returns a command, which may be invalid.
func randomCall(rng *rand.Rand) []string {
	pick := func(class string) string { return randomArgs[class][rng.IntN(len(randomArgs[class]))] }
	form, options, _ := strings.Cut(randomForms[rng.IntN(len(randomForms))], "|")
	args := strings.Fields(form)
	for i, a := range args {
		if randomArgs[a] != nil {
			args[i] = pick(a)
		}
	}
	if list := strings.Fields(options); len(list) > 0 {
		for range rng.IntN(4) {
			name, class, ok := strings.Cut(list[rng.IntN(len(list))], ":")
			if args = append(args, name); ok {
				args = append(args, pick(class))
			}
		}
	}
	switch last := len(args) - 1; rng.IntN(12) {
	case 0:
		args = args[:max(1, last)]
	case 1:
		args = append(args, pick("any"))
	case 2:
		if last > 0 && !strings.Contains(form, "absent") {
			args[1+rng.IntN(last)] = pick("any")
		}
	}
	return args
}

// sameReply reports whether replies are the same, except for the time between two calls and for
// properties of the server itself.
func sameReply(command string, got, want any) bool {
	switch command {
	case "CLIENT":
		g, _ := got.(string)
		w, _ := want.(string)
		if strings.HasPrefix(g, "id=") || strings.HasPrefix(w, "id=") {
			return true
		}
		gid, ok := got.(int64)
		wid, ok2 := want.(int64)
		if ok && ok2 && gid > 0 && wid > 0 { // CLIENT ID
			return true
		}
	case "HELLO", "SCAN", "COMMAND", "SLOWLOG", "DBSIZE": // DBSIZE of Redis counts keys that have expired
		_, g := got.(failure)
		_, w := want.(failure)
		if !g && !w {
			return true
		}
	}
	within := map[string]int64{"TTL": 2, "PTTL": 2000, "EXPIRETIME": 2, "PEXPIRETIME": 2000}[command]
	g, ok := got.(int64)
	w, ok2 := want.(int64)
	if ok && ok2 && g > 0 && w > 0 && max(g-w, w-g) <= within {
		return true
	}
	return reflect.DeepEqual(got, want)
}

// Random commands, most of them valid, get the replies of redis-server, byte for byte. The reply to
// EXEC is not compared if it has times.
func TestRandomAsRedis(t *testing.T) {
	conn, err := net.Dial("tcp", startRedis(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	want := &caller{t, conn, bufio.NewReader(conn)}
	got := dial(t, start(t, t.TempDir(), Config{Fsync: FsyncNo, MaxBulkBytes: 512 << 20}))
	count, seed := 20_000, uint64(1)
	if os.Getenv("SIFT_LONG") != "" {
		count, seed = 200_000, uint64(time.Now().UnixNano())
	}
	rng := rand.New(rand.NewPCG(seed, 7))
	var before []string
	differ, errors, timed := 0, 0, false
	for i := range count {
		if i%1000 == 0 {
			deadline := time.Now().Add(time.Minute)
			conn.SetDeadline(deadline)
			got.conn.SetDeadline(deadline)
		}
		args := randomCall(rng)
		g, w := got.do(args...), want.do(args...)
		timed = timed || args[0] == "SLOWLOG" || args[0] == "DBSIZE" || strings.Contains(args[0], "TTL") || strings.HasSuffix(args[0], "EXPIRETIME")
		if _, ok := w.(failure); ok {
			errors++
		}
		if !sameReply(args[0], g, w) && !(args[0] == "EXEC" && timed) {
			if differ++; differ <= 40 {
				t.Errorf("seed %d, %d: %q after %q:\n  got %.200q\n want %.200q", seed, i, args, before, g, w)
			}
		}
		if args[0] == "EXEC" || args[0] == "DISCARD" {
			timed = false
		}
		before = args
	}
	if errors < count/10 || errors > count*9/10 {
		t.Errorf("%d of %d replies are errors", errors, count)
	}
	t.Logf("%d commands, %d of them refused, %d differences", count, errors, differ)
}
