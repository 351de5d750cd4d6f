package compat

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/siftdb/sift"
)

var (
	geth       = flag.Bool("geth", false, "build geth with goleveldb and with the module, and run TestGeth")
	gethBlocks = flag.Int("geth.blocks", 20, "the number of blocks that geth adds in each turn, at least")
)

// gethVersion is the version of go-ethereum, here and in programs.
const gethVersion = "v1.15.11"

// How often a node is polled, and for how long.
const (
	gethPoll     = 10 * time.Millisecond
	gethPatience = 2 * time.Minute
)

// archive makes geth write the state of each block, so that it survives a kill. Without it
// geth keeps the newest states in memory and writes them when it is stopped.
var archive = []string{"--state.scheme", "hash", "--gcmode", "archive"}

// turn is one run of geth on a directory.
type turn struct {
	replaced bool
	kill     bool // end it with SIGKILL while it makes blocks
}

// TestGeth checks that geth with goleveldb and geth with the module continue with each
// other's directories, after a stop and after a kill, and find all blocks, receipts and
// states.
func TestGeth(t *testing.T) {
	if !*geth {
		t.Skip("without -geth, which builds two geths")
	}
	proxy(t)
	bins := map[bool]string{false: buildGeth(t, false), true: buildGeth(t, true)}
	for _, c := range []struct {
		name  string
		first bool // whether the module creates the directory
		kill  bool
		args  []string
	}{
		{"kill/goleveldb first", false, true, archive},
		{"kill/sift first", true, true, archive},
		{"stop/goleveldb first", false, false, nil},
		{"stop/sift first", true, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := c.first, !c.first
			ch := &chain{dir: t.TempDir(), args: c.args, states: c.kill, r: rand.New(rand.NewSource(1))}
			for _, turn := range []turn{{a, false}, {a, c.kill}, {a, c.kill}, {b, c.kill}, {a, c.kill}, {b, false}, {a, false}, {b, false}} {
				ch.turn(t, bins[turn.replaced], turn)
			}
		})
	}
}

// buildGeth builds geth with goleveldb, or with the module. It builds from a module that
// requires go-ethereum, so that the go command can cache the result.
func buildGeth(t *testing.T, replaced bool) string {
	dir := newModule(t, lastVersion, replaced)
	edit(t, dir, "-require", "github.com/ethereum/go-ethereum@"+gethVersion)
	bin := filepath.Join(dir, "geth")
	start := time.Now()
	if out, err := goCommand(dir, "build", "-o", bin, "github.com/ethereum/go-ethereum/cmd/geth").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	out, err := exec.Command("go", "version", "-m", bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Contains(string(out), "github.com/siftdb/sift\t"); got != replaced {
		t.Fatalf("linked with sift: %t\n%s", got, out)
	}
	t.Logf("geth %s, built with sift: %t, in %.0f s", gethVersion, replaced, time.Since(start).Seconds())
	return bin
}

// chain is a development chain in a directory, and what is known to be in it.
type chain struct {
	dir    string
	args   []string
	states bool // whether the state of each block is kept, not only of the last one
	r      *rand.Rand
	blocks []block
	logs   bool // whether geth with the module was killed last, and may have left several logs
}

// block is what a node returned about a block when it was new.
type block struct {
	header   string // with its transactions, as JSON
	receipts string
	balance  string            // of the account that pays, after the block
	stored   map[string]string // what each contract stored when it was created
}

// turn starts a node, checks everything that is known, lets the node add blocks, and ends it.
func (c *chain) turn(t *testing.T, bin string, turn turn) {
	t.Helper()
	if c.logs && !turn.replaced {
		c.openOnce(t)
	}
	c.logs = turn.replaced && turn.kill
	n := startNode(t, bin, c.dir, c.args)
	head := n.head()
	if head < len(c.blocks)-1 {
		t.Fatalf("the head is block %d; it was %d", head, len(c.blocks)-1)
	}
	known := len(c.blocks)
	for i, b := range c.blocks {
		c.check(t, n, i, b)
	}
	sent := 0
	for n.head() < head+*gethBlocks {
		k := 1 + c.r.Intn(3)
		c.mine(n, k)
		sent += k
	}
	contracts := 0
	for last := n.head(); len(c.blocks) <= last; {
		c.blocks = append(c.blocks, n.block(len(c.blocks)))
		contracts += len(c.blocks[len(c.blocks)-1].stored)
	}
	if contracts < sent { // there may be more, of transactions that were sent before a kill
		n.fail("%d contracts in the new blocks, of %d transactions", contracts, sent)
	}
	end := "stopped"
	if turn.kill {
		end = "killed"
		for range 5 { // they may make it into blocks before the kill, or not
			n.send(c.r)
		}
		n.kill()
	} else {
		n.stop()
	}
	t.Logf("built with sift: %-5t found %3d blocks, its head was %3d, %s at %3d", turn.replaced, known, head, end, len(c.blocks)-1)
}

// openOnce opens the database for writing and closes it, which leaves one log: geth first
// opens it read-only, which goleveldb cannot do if there are several.
func (c *chain) openOnce(t *testing.T) {
	t.Helper()
	db, err := sift.Open(filepath.Join(c.dir, "geth", "chaindata"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func (c *chain) check(t *testing.T, n *node, i int, want block) {
	t.Helper()
	at := "latest"
	if c.states {
		at = number(i)
	}
	got := block{header: n.header(i), receipts: n.receipts(i), balance: want.balance}
	if c.states || i == len(c.blocks)-1 && n.head() == i {
		got.balance = n.balance(at)
	}
	if got.header != want.header || got.receipts != want.receipts || got.balance != want.balance {
		t.Fatalf("block %d is\n%+v\nnot\n%+v", i, got, want)
	}
	for contract, value := range want.stored {
		if got := n.stored(contract, at); got != value {
			t.Fatalf("contract %s of block %d stores %s, not %s", contract, i, got, value)
		}
	}
}

// mine sends transactions and waits until they are in blocks.
func (c *chain) mine(n *node, transactions int) {
	var sent []string
	for range transactions {
		sent = append(sent, n.send(c.r))
	}
	for _, hash := range sent {
		n.await("a receipt", func() bool { return n.call("eth_getTransactionReceipt", hash) != "null" })
	}
}

// node is a running geth.
type node struct {
	t       *testing.T
	cmd     *exec.Cmd
	log     bytes.Buffer
	exited  chan struct{}
	conn    net.Conn
	replies *json.Decoder
	account string
}

func startNode(t *testing.T, bin, dir string, args []string) *node {
	t.Helper()
	n := &node{t: t, exited: make(chan struct{})}
	run, err := os.MkdirTemp("", "geth") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(run) })
	ipc := filepath.Join(run, "ipc")
	n.cmd = exec.Command(bin, append([]string{"--dev", "--dev.gaslimit", "30000000", "--db.engine", "leveldb", "--cache", "16", "--datadir", dir,
		"--ipcpath", ipc, "--port", "0", "--authrpc.port", "0", "--nodiscover", "--maxpeers", "0"}, args...)...)
	n.cmd.Stdout, n.cmd.Stderr = &n.log, &n.log
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = n.cmd.Wait() // stop checks the status
		close(n.exited)
	}()
	t.Cleanup(n.kill)
	n.await("its socket", func() bool {
		n.conn, err = net.Dial("unix", ipc)
		return err == nil
	})
	n.replies = json.NewDecoder(n.conn)
	if err := n.conn.SetDeadline(time.Now().Add(10 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	var accounts []string
	n.decode(n.call("eth_accounts"), &accounts)
	n.account = accounts[0]
	return n
}

func (n *node) fail(format string, args ...any) {
	n.t.Helper()
	n.kill()
	n.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), n.log.String())
}

// await polls until there returns true.
func (n *node) await(what string, there func() bool) {
	n.t.Helper()
	for deadline := time.Now().Add(gethPatience); !there(); {
		select {
		case <-n.exited:
			n.fail("geth ended before there was %s", what)
		case <-time.After(gethPoll):
		}
		if time.Now().After(deadline) {
			n.fail("no %s after %v", what, gethPatience)
		}
	}
}

// call returns the result of a call as JSON.
func (n *node) call(method string, params ...any) string {
	n.t.Helper()
	result, refused := n.ask(method, params...)
	if refused != "" {
		n.fail("%s: %s", method, refused)
	}
	return result
}

// ask is like call, but returns the node's error, if any.
func (n *node) ask(method string, params ...any) (result, refused string) {
	n.t.Helper()
	if params == nil {
		params = []any{}
	}
	err := json.NewEncoder(n.conn).Encode(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		n.fail("%s: %v", method, err)
	}
	var reply struct {
		Result json.RawMessage
		Error  json.RawMessage
	}
	if err := n.replies.Decode(&reply); err != nil {
		n.fail("%s: %v", method, err)
	}
	return string(reply.Result), string(reply.Error)
}

func (n *node) decode(result string, into any) {
	n.t.Helper()
	if err := json.Unmarshal([]byte(result), into); err != nil {
		n.fail("%s: %v", result, err)
	}
}

// send sends a transaction and returns its hash. The transaction creates a contract whose
// code stores a random number. Random bytes follow the code, so that blocks fill tables.
func (n *node) send(r *rand.Rand) (hash string) {
	n.t.Helper()
	data := make([]byte, 40<<10)
	r.Read(data)
	data[0] = 0x7f                               // PUSH32: the number that follows
	copy(data[33:], []byte{0x60, 0, 0x55, 0x00}) // PUSH1 0, SSTORE, STOP
	tx := map[string]string{"from": n.account, "gas": "0x500000", "data": "0x" + hex.EncodeToString(data)}
	// Until the pool has seen the last block, it may assign a nonce twice.
	n.await("an accepted transaction", func() bool {
		result, refused := n.ask("eth_sendTransaction", tx)
		if refused == "" {
			n.decode(result, &hash)
		} else if !strings.Contains(refused, "replacement transaction underpriced") && !strings.Contains(refused, "nonce too low") {
			n.fail("eth_sendTransaction: %s", refused)
		}
		return refused == ""
	})
	return hash
}

func number(i int) string { return "0x" + strconv.FormatInt(int64(i), 16) }

func (n *node) head() int {
	n.t.Helper()
	var s string
	n.decode(n.call("eth_blockNumber"), &s)
	head, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		n.fail("%v", err)
	}
	return int(head)
}

func (n *node) header(i int) string      { return n.call("eth_getBlockByNumber", number(i), true) }
func (n *node) receipts(i int) string    { return n.call("eth_getBlockReceipts", number(i)) }
func (n *node) balance(at string) string { return n.call("eth_getBalance", n.account, at) }
func (n *node) stored(contract, at string) string {
	return n.call("eth_getStorageAt", contract, "0x0", at)
}

// block returns everything about a block.
func (n *node) block(i int) block {
	n.t.Helper()
	b := block{header: n.header(i), receipts: n.receipts(i), balance: n.balance(number(i)), stored: map[string]string{}}
	var receipts []struct{ ContractAddress, Status string }
	n.decode(b.receipts, &receipts)
	for _, r := range receipts {
		value := n.stored(r.ContractAddress, number(i))
		if r.Status != "0x1" || strings.Trim(value, `"0x`) == "" {
			n.fail("block %d: a transaction failed: %s", i, b.receipts)
		}
		b.stored[r.ContractAddress] = value
	}
	return b
}

// stop ends the node with an interrupt, as a user does. Interrupts that arrive before geth
// handles them are lost, so it is sent again; from the eleventh on geth panics.
func (n *node) stop() {
	n.t.Helper()
	for range 8 {
		_ = n.cmd.Process.Signal(os.Interrupt) // it may have ended
		select {
		case <-n.exited:
		case <-time.After(gethPatience / 8):
			continue
		}
		break
	}
	select {
	case <-n.exited:
	default:
		n.fail("geth does not stop")
	}
	if !n.cmd.ProcessState.Success() {
		n.fail("geth: %v", n.cmd.ProcessState)
	}
}

// kill ends the node with SIGKILL, if it is running.
func (n *node) kill() {
	_ = n.cmd.Process.Kill() // it may have ended
	<-n.exited
}
