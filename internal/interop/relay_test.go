package interop

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/interop/relay"
	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/util"
)

var (
	relayFor  = flag.Duration("relay.for", 0, "how long TestRelay runs; 0: the short form")
	relaySeed = flag.Uint64("relay.seed", 1, "the first random seed of TestRelay")
	relayOld  = flag.String("relay.old", "", "an older commit of sift that takes part in TestRelay, or the path of its driver")
)

// relayEngines open a directory. The build tag leveldb adds LevelDB itself.
var relayEngines = map[string]func(dir string) (relay.Store, error){
	"sift":      relay.OpenSift,
	"goleveldb": openGoLevelDB,
}

const relayEnv = "SIFT_RELAY_ENGINE"

// TestMain runs the tests, or an engine's process of TestRelay.
func TestMain(m *testing.M) {
	open, ok := relayEngines[os.Getenv(relayEnv)]
	if !ok {
		os.Exit(m.Run())
	}
	store, err := open(os.Args[1])
	if err == nil {
		err = relay.Serve(os.Stdin, os.Stdout, store)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func openGoLevelDB(dir string) (relay.Store, error) {
	db, err := leveldb.OpenFile(dir, &opt.Options{Filter: filter.NewBloomFilter(10), WriteBuffer: 32 << 10, CompactionTableSize: 16 << 10, CompactionTotalSize: 64 << 10})
	return goRelay{db}, err
}

type goRelay struct{ db *leveldb.DB }

func (s goRelay) Write(batch []relay.Op, sync bool) error {
	var b leveldb.Batch
	for _, op := range batch {
		if op.Delete {
			b.Delete(op.Key)
		} else {
			b.Put(op.Key, op.Value)
		}
	}
	return s.db.Write(&b, &opt.WriteOptions{Sync: sync})
}

func (s goRelay) Get(key []byte) (value []byte, found bool, err error) {
	value, err = s.db.Get(key, nil)
	if errors.Is(err, leveldb.ErrNotFound) {
		return nil, false, nil
	}
	return value, err == nil, err
}

func (s goRelay) Scan(fn func(key, value []byte)) error {
	it := s.db.NewIterator(nil, nil)
	defer it.Release()
	return errors.Join(relay.Walk(it, fn), it.Error())
}

func (s goRelay) Compact() error { return s.db.CompactRange(util.Range{}) }
func (s goRelay) Close() error   { return s.db.Close() }

// runner is an engine's process.
type runner struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	stderr strings.Builder
}

// startRunner starts an engine: one of relayEngines, or the driver at a path.
func startRunner(name, dir string) (*runner, error) {
	r := &runner{cmd: exec.Command(os.Args[0], dir)}
	if filepath.IsAbs(name) {
		r.cmd = exec.Command(name, dir)
	} else {
		r.cmd.Env = append(os.Environ(), relayEnv+"="+name)
	}
	r.cmd.Stderr = &r.stderr
	var err error
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.out = json.NewDecoder(out)
	return r, r.cmd.Start()
}

func (r *runner) send(q relay.Request) error { return json.NewEncoder(r.in).Encode(q) }

func (r *runner) receive() (reply relay.Reply, err error) {
	if err = r.out.Decode(&reply); err == nil && reply.Err != "" {
		err = errors.New(reply.Err)
	}
	return reply, err
}

func (r *runner) call(q relay.Request) (relay.Reply, error) {
	if err := r.send(q); err != nil {
		return relay.Reply{}, err
	}
	return r.receive()
}

// kill kills the process and waits for its end.
func (r *runner) kill() {
	_ = r.cmd.Process.Kill() // it may have ended
	_ = r.cmd.Wait()
}

// relayRun is the run of a relay: one directory that is passed from engine to engine.
type relayRun struct {
	dir     string
	rng     *rand.Rand
	model   map[string]string
	pending []relay.Op // a batch that was in progress when its engine was killed
	counts  struct{ turns, kills, inFlight, writes, reads int }
}

func apply(model map[string]string, batch []relay.Op) map[string]string {
	m := maps.Clone(model)
	for _, op := range batch {
		if op.Delete {
			delete(m, string(op.Key))
		} else {
			m[string(op.Key)] = string(op.Value)
		}
	}
	return m
}

func sameEntries(entries []relay.Op, model map[string]string) error {
	keys := slices.Sorted(maps.Keys(model))
	for i := range max(len(keys), len(entries)) {
		switch {
		case i >= len(keys) || i < len(entries) && string(entries[i].Key) < keys[i]:
			return fmt.Errorf("%q should not be there", entries[i].Key)
		case i >= len(entries) || string(entries[i].Key) != keys[i]:
			return fmt.Errorf("%q is missing", keys[i])
		case string(entries[i].Value) != model[keys[i]]:
			return fmt.Errorf("%q is %.40q and should be %.40q", keys[i], entries[i].Value, model[keys[i]])
		}
	}
	return nil
}

// runEngine has an engine open the directory that the previous one left. It compares all entries,
// has the engine read and write, and closes or kills it.
func (c *relayRun) runEngine(engine string) error {
	r, err := startRunner(engine, c.dir)
	if err != nil {
		return err
	}
	defer r.kill()
	if err := c.work(r); err != nil {
		r.kill() // so that stderr is complete
		return fmt.Errorf("%w\n%s", err, r.stderr.String())
	}
	c.counts.turns++
	return nil
}

func (c *relayRun) work(r *runner) error {
	all, err := r.call(relay.Request{Scan: true})
	if err != nil {
		return err
	}
	if err := sameEntries(all.Entries, c.model); err != nil {
		with := apply(c.model, c.pending)
		if c.pending == nil || sameEntries(all.Entries, with) != nil {
			return err
		}
		c.model = with
	}
	c.pending = nil
	for range 40 + c.rng.IntN(160) {
		switch n := c.rng.IntN(100); {
		case n < 60:
			batch := c.batch()
			if _, err := r.call(relay.Request{Write: batch, Sync: n < 10}); err != nil {
				return err
			}
			c.model = apply(c.model, batch)
			c.counts.writes++
		case n < 99:
			key := c.key()
			got, err := r.call(relay.Request{Get: key})
			if err != nil {
				return err
			}
			if want, ok := c.model[string(key)]; ok != got.Found || want != string(got.Value) {
				return fmt.Errorf("%q is %.40q, %v; want %.40q, %v", key, got.Value, got.Found, want, ok)
			}
			c.counts.reads++
		default:
			if _, err := r.call(relay.Request{Compact: true}); err != nil {
				return err
			}
		}
	}
	return c.end(r)
}

// end closes the engine, or kills it: idle, or with a batch in progress.
func (c *relayRun) end(r *runner) error {
	switch c.rng.IntN(3) {
	case 0:
		if _, err := r.call(relay.Request{Close: true}); err != nil {
			return err
		}
		return r.cmd.Wait()
	case 1:
		c.pending = c.batch()
		if err := r.send(relay.Request{Write: c.pending}); err != nil {
			return err
		}
		time.Sleep(time.Duration(c.rng.IntN(300)) * time.Microsecond) // killed anywhere within it
		c.counts.inFlight++
	}
	r.kill()
	c.counts.kills++
	return nil
}

func (c *relayRun) key() []byte { return fmt.Appendf(nil, "key%04d", c.rng.IntN(900)) }

func (c *relayRun) batch() []relay.Op {
	ops := make([]relay.Op, 1+c.rng.IntN(6))
	for i := range ops {
		ops[i] = relay.Op{Key: c.key(), Delete: c.rng.IntN(4) == 0}
		if !ops[i].Delete {
			ops[i].Value = fmt.Appendf(nil, "%d %s", c.rng.Uint32(), strings.Repeat("v", c.rng.IntN(1<<c.rng.IntN(11))))
		}
	}
	return ops
}

// TestRelay passes a directory from one engine to the next: this version, goleveldb,
// LevelDB and, with -relay.old, an older version. Each is closed or killed, and the next one
// finds what it had acknowledged. A write in progress when its engine is killed is found as
// a whole or not at all.
func TestRelay(t *testing.T) {
	engines := slices.Sorted(maps.Keys(relayEngines))
	if *relayOld != "" {
		engines = append(engines, oldDriver(t, *relayOld))
	}
	until := time.Now().Add(*relayFor)
	var total relayRun
	names := make([]string, len(engines))
	for i, engine := range engines {
		names[i] = filepath.Base(engine)
	}
	for seed := *relaySeed; ; seed++ {
		c := &relayRun{dir: filepath.Join(t.TempDir(), "db"), rng: rand.New(rand.NewPCG(seed, 1)), model: map[string]string{}}
		var order []string
		for range 14 {
			engine := engines[c.rng.IntN(len(engines))]
			order = append(order, filepath.Base(engine))
			if err := c.runEngine(engine); err != nil {
				t.Fatalf("seed %d, %s: %v", seed, strings.Join(order, ", "), err)
			}
		}
		if err := c.checkDir(); err != nil {
			t.Fatalf("seed %d, %s: %v", seed, strings.Join(order, ", "), err)
		}
		total.add(c)
		if seed >= *relaySeed+4 && time.Now().After(until) {
			break
		}
	}
	n := total.counts
	t.Logf("%s: %d turns, %d ended by kill, %d of these with a write in progress; %d batches, %d lookups", strings.Join(names, ", "), n.turns, n.kills, n.inFlight, n.writes, n.reads)
}

func (c *relayRun) add(o *relayRun) {
	c.counts.turns += o.counts.turns
	c.counts.kills += o.counts.kills
	c.counts.inFlight += o.counts.inFlight
	c.counts.writes += o.counts.writes
	c.counts.reads += o.counts.reads
}

// checkDir opens the directory with this version, which recovers the logs, and has
// sift.Check look for faults.
func (c *relayRun) checkDir() error {
	db, err := sift.Open(c.dir, nil)
	if err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return err
	}
	var faults []error
	_, err = sift.Check(context.Background(), c.dir, nil, func(fault error) { faults = append(faults, fault) })
	return errors.Join(err, errors.Join(faults...))
}

// oldDriver returns the driver of an older version: a program, or a commit whose tree it
// is built in.
func oldDriver(t *testing.T, old string) string {
	t.Helper()
	if path, err := filepath.Abs(old); err == nil {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	tree := filepath.Join(t.TempDir(), "tree")
	git := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
	}
	git("worktree", "add", "--detach", tree, old)
	t.Cleanup(func() { git("worktree", "remove", "--force", tree) })
	to := filepath.Join(tree, "internal", "interop", "relay")
	if err := errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS("relay"))); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(t.TempDir(), "sift-"+old)
	build := exec.Command("go", "build", "-o", bin, "./relay/siftdriver")
	build.Dir = filepath.Join(tree, "internal", "interop")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the driver at %s: %v\n%s", old, err, out)
	}
	return bin
}
