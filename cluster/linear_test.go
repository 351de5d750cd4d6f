package cluster

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

var (
	long = flag.Duration("cluster.long", 0, "how long each test with clients and faults runs; 0 is the short form")
	seed = flag.Uint64("cluster.seed", 1, "the seed of the tests with clients and faults")
)

func lasting(short time.Duration) time.Duration {
	if *long > 0 {
		return *long
	}
	return short
}

// nodeMember is a node of this process.
type nodeMember struct {
	n        *Node
	stale    bool // planted: reads as long as it believes that it leads
	noCommit bool // planted: acknowledges before the command is committed
}

func (m nodeMember) append(ctx context.Context, key, token string) (string, error) {
	if m.noCommit && m.n.raft.State() == raft.Leader {
		var old string
		err := m.n.ReadStale(func(v *View) (err error) { old, err = getList(v, key); return err })
		if err != nil {
			return "", err
		}
		m.n.raft.Apply([]byte(key+" "+token), 0)
		return old + token + ",", nil
	}
	reply, err := m.n.Propose(ctx, []byte(key+" "+token))
	if err != nil {
		return "", err
	}
	return reply.(string), nil
}

func (m nodeMember) read(ctx context.Context, key string) (list string, err error) {
	fn := func(v *View) (err error) { list, err = getList(v, key); return err }
	if m.stale {
		if m.n.raft.State() != raft.Leader {
			return "", ErrNotLeader
		}
		return list, m.n.ReadStale(fn)
	}
	return list, m.n.Read(ctx, fn)
}

// trial runs clients against a group in this process whose network is cut and whose
// nodes are stopped, and returns what is wrong with what they saw.
type trial struct {
	seed           uint64
	lasts          time.Duration
	test           testHooks
	stale          bool
	noCommit       bool
	believe        time.Duration // how long node 0, cut off while it leads, believes that it leads; others elect sooner
	onlyPartitions bool          // node 0 is repeatedly made the leader and cut off
}

func (tr trial) run(t *testing.T) error {
	g := newGroup(t, 3)
	g.test = tr.test
	if tr.believe > 0 {
		g.config = func(i int) *raft.Config {
			c := quick()
			if i == 0 {
				c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = tr.believe, tr.believe, tr.believe
			}
			return c
		}
	}
	g.startAll(t)
	r := &recorder{seed: tr.seed, members: func() (all []member) {
		for i := range g.nodes {
			if n := g.node(i); n != nil {
				all = append(all, nodeMember{n, tr.stale, tr.noCommit})
			}
		}
		return all
	}}
	stop := make(chan struct{})
	failed := make(chan error, 1)
	go func() { failed <- tr.disturb(t, g); close(stop) }()
	r.run(5, stop)
	if err := <-failed; err != nil {
		return err
	}
	g.net.heal()
	for i := range g.nodes {
		if g.node(i) == nil {
			if err := g.start(i); err != nil {
				return err
			}
		}
	}
	g.propose(t, "settle x")
	final, replicas := g.converge(t)
	t.Logf("seed %d: %v", tr.seed, r)
	return errors.Join(r.check(final), replicas)
}

// disturb partitions the network and stops nodes, one fault after another.
func (tr trial) disturb(t *testing.T, g *group) error {
	rng := rand.New(rand.NewPCG(tr.seed, 99))
	pause := func() { time.Sleep(time.Duration(100+rng.IntN(400)) * time.Millisecond) }
	for begin := time.Now(); time.Since(begin) < tr.lasts; {
		i := rng.IntN(len(g.nodes))
		trouble := rng.IntN(6)
		if tr.onlyPartitions {
			trouble = -1
		}
		switch trouble {
		case -1:
			leader := g.leader(t)
			if leader != 0 {
				_ = g.node(leader).raft.LeadershipTransferToServer("n0", "n0").Error() // the next round tries again
			}
			pause()
			g.isolate(0)
			pause()
			pause()
		case 0: // the leader alone
			for j := range g.nodes {
				if n := g.node(j); n != nil && n.raft.State() == raft.Leader {
					i = j
				}
			}
			g.isolate(i)
			pause()
		case 1: // one alone
			g.isolate(i)
			pause()
		case 2: // one direction between two
			g.net.setCut(g.servers[i].Address, g.servers[(i+1)%len(g.servers)].Address, true)
			pause()
		case 3: // everything that one sends
			for _, s := range g.servers {
				g.net.setCut(g.servers[i].Address, s.Address, true)
			}
			pause()
		case 4: // one stops, long enough to need a snapshot
			if err := g.restart(i, pause); err != nil {
				return err
			}
		case 5: // all stop
			for j := range g.nodes {
				if err := g.stop(j); err != nil {
					return err
				}
			}
			for j := range g.nodes {
				if err := g.start(j); err != nil {
					return err
				}
			}
		}
		g.net.heal()
		pause()
	}
	return nil
}

func (g *group) restart(i int, pause func()) error {
	if err := g.stop(i); err != nil {
		return err
	}
	pause()
	return g.start(i)
}

// TestLinearizable: what clients see is linearizable under partitions and restarts, with frequent
// snapshots.
func TestLinearizable(t *testing.T) {
	if err := (trial{seed: *seed, lasts: lasting(8 * time.Second)}).run(t); err != nil {
		t.Error(err)
	}
}

// TestIsolatedLeaders: isolated leaders that still believe that they lead serve no stale reads.
func TestIsolatedLeaders(t *testing.T) {
	tr := trial{seed: *seed, lasts: lasting(4 * time.Second), believe: 2 * time.Second, onlyPartitions: true}
	if err := tr.run(t); err != nil {
		t.Error(err)
	}
}

// TestPlanted: the tests of this file find each planted fault.
func TestPlanted(t *testing.T) {
	for _, c := range []struct {
		name string
		trial
	}{
		{"acknowledged before it is committed", trial{noCommit: true, believe: 2 * time.Second, onlyPartitions: true}},
		{"the applied index is skipped", trial{test: testHooks{ignoreApplied: true}}},
		{"a snapshot without its last batch", trial{test: testHooks{checkpointed: undo}}},
		{"reads from a deposed leader", trial{stale: true, believe: 2 * time.Second, onlyPartitions: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.lasts = 3 * time.Second
			for s := *seed; s < *seed+8; s++ {
				c.seed = s
				if err := c.run(t); err != nil {
					t.Log("found: ", err)
					return
				}
			}
			t.Error("not found")
		})
	}
}
