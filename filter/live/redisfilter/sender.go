package redisfilter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// request is a command for one key.
type request struct {
	key  string
	args []any

	reply   any
	err     error
	earlier []any  // replies to attempts that replicas did not acknowledge
	ask     string // address of the node for the next attempt, while the key's slot moves
}

// sender sends requests to the nodes that have their keys, and retries them.
type sender struct {
	client   redis.UniversalClient
	cluster  *redis.ClusterClient // or nil
	replicas int                  // that must acknowledge writes
	wait     time.Duration        // how long they may take
	retryFor time.Duration
	observe  func(Trip) // or nil
}

func newSender(client redis.UniversalClient, replicas int, wait, retryFor time.Duration, observe func(Trip)) (*sender, error) {
	if retryFor == 0 {
		retryFor = defaultRetryFor
	}
	s := &sender{client: client, replicas: replicas, retryFor: retryFor, observe: observe}
	var timeout time.Duration // of the client's reads; none if not positive
	switch c := client.(type) {
	case nil:
		return nil, optionError("client", "is nil")
	case *redis.ClusterClient:
		if o := c.Options(); o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
			return nil, optionError("client", "reads from replicas, which may not have the latest elements")
		}
		s.cluster, timeout = c, c.Options().ReadTimeout
	case *redis.Client:
		timeout = c.Options().ReadTimeout
	default:
		if replicas > 0 {
			return nil, optionError("Replicas", "cannot be used with a client of type %T", client)
		}
	}
	if wait == 0 {
		wait = time.Second
		if timeout > 0 {
			wait = max(min(wait, timeout/2), time.Millisecond)
		}
	}
	s.wait = wait
	if replicas > 0 && timeout > 0 && wait >= timeout { // the client would not wait for WAIT's reply
		return nil, optionError("ReplicaWait", "%v is not less than the client's ReadTimeout, %v", wait, timeout)
	}
	if replicas < 0 || wait < time.Millisecond || retryFor < 0 {
		return nil, optionError("Replicas, ReplicaWait and RetryFor", "must not be negative, nor ReplicaWait less than a millisecond")
	}
	return s, nil
}

// send sends requests until each has a reply or an error that is not temporary. It returns
// the first error.
func (s *sender) send(ctx context.Context, write bool, reqs ...*request) error {
	start := time.Now()
	attempts, retried := s.sendAll(ctx, write, start.Add(s.retryFor), reqs)
	var err error
	for _, r := range reqs {
		if r.err != nil {
			cause := r.err
			if ctx.Err() == nil && errors.Is(cause, context.DeadlineExceeded) {
				cause = clientTimeout{cause}
			}
			err = fmt.Errorf("key %q: %w", r.key, cause)
			break
		}
	}
	if s.observe != nil {
		s.observe(Trip{write, len(reqs), attempts, time.Since(start), retried, err})
	}
	return err
}

// clientTimeout is a timeout of the client, such as that of a dial. It matches
// context.DeadlineExceeded, although the caller's context is not done.
type clientTimeout struct{ error }

func (t clientTimeout) Unwrap() error { return t.error }

// sendAll returns the number of attempts, and the error of the last retry.
func (s *sender) sendAll(ctx context.Context, write bool, deadline time.Time, reqs []*request) (attempts int, retried error) {
	left := reqs
	for attempt := 0; ; attempt++ {
		s.once(ctx, write, left)
		var again []*request
		moved := false
		for _, r := range left {
			if r.err != nil && transient(ctx, r.err) {
				again = append(again, r)
				moved = moved || redis.HasErrorPrefix(r.err, "MOVED")
			}
		}
		if len(again) == 0 || !time.Now().Before(deadline) || ctx.Err() != nil {
			return attempt + 1, retried
		}
		retried = again[0].err
		if err := s.pause(ctx, attempt, again, moved); err != nil {
			return attempt + 1, retried
		}
		left = again
	}
}

// pause waits before the next attempt, and reloads the positions of slots.
func (s *sender) pause(ctx context.Context, attempt int, again []*request, moved bool) error {
	asking := false
	for _, r := range again {
		if addr, ok := askAddress(r.err); ok {
			r.ask, asking = addr, true
		}
	}
	if s.cluster != nil {
		if moved && attempt < 3 {
			// ForEachMaster loads the table of slots before it returns.
			return s.cluster.ForEachMaster(ctx, func(context.Context, *redis.Client) error { return nil })
		}
		s.cluster.ReloadState(ctx)
		if asking && attempt < 3 {
			return nil
		}
	}
	d := time.Millisecond << min(attempt, 8)
	d += rand.N(d)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// askAddress returns the address in "ASK slot address".
func askAddress(err error) (string, bool) {
	if !redis.HasErrorPrefix(err, "ASK ") {
		return "", false
	}
	f := strings.Fields(err.Error())
	return f[len(f)-1], true
}

// transient reports whether an error is temporary.
func transient(ctx context.Context, err error) bool {
	if ctx.Err() != nil || errors.Is(err, redis.ErrClosed) {
		return false
	}
	if errors.Is(err, ErrReplicas) {
		return true
	}
	var reply redis.Error
	if !errors.As(err, &reply) {
		return true // the network
	}
	for _, p := range [...]string{
		"MOVED", "ASK ", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "LOADING", "READONLY", "NOREPLICAS",
		"max number of clients",
		"UNBLOCKED", // a master that has become a replica during a WAIT
		"WAIT cannot be used with replica instances", // one that has done so before it
	} {
		if redis.HasErrorPrefix(err, p) {
			return true
		}
	}
	// Before version 7, a server embeds the error of a script's command in the text of another
	// error.
	return redis.HasErrorPrefix(err, "Error running script") && strings.Contains(reply.Error(), ": -READONLY ")
}

// once sends each request once, to all nodes at the same time.
func (s *sender) once(ctx context.Context, write bool, reqs []*request) {
	if s.cluster == nil {
		s.pipeline(ctx, s.client, write, reqs)
		return
	}
	groups := map[*redis.Client][]*request{}
	for _, r := range reqs {
		node, err := s.node(ctx, r)
		if err != nil {
			r.err = err
			continue
		}
		groups[node] = append(groups[node], r)
	}
	var wg sync.WaitGroup
	i := 0
	for node, part := range groups {
		if i++; i == len(groups) { // the last one needs no goroutine
			s.pipeline(ctx, node, write, part)
			break
		}
		wg.Go(func() { s.pipeline(ctx, node, write, part) })
	}
	wg.Wait()
}

// node returns the client of the node for a request.
func (s *sender) node(ctx context.Context, r *request) (*redis.Client, error) {
	if r.ask != "" {
		var mu sync.Mutex
		var found *redis.Client
		s.cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
			if c.Options().Addr == r.ask {
				mu.Lock()
				found = c
				mu.Unlock()
			}
			return nil
		})
		if found != nil {
			return found, nil
		}
		r.ask = "" // a new node, which the client does not know yet
	}
	return s.cluster.MasterForKey(ctx, r.key)
}

// pipeline sends requests over one connection. After writes it sends a WAIT, which covers all
// of them.
func (s *sender) pipeline(ctx context.Context, node redis.Cmdable, write bool, reqs []*request) {
	cmds := make([]*redis.Cmd, len(reqs))
	var wait *redis.Cmd
	_, err := node.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, r := range reqs {
			if r.ask != "" {
				p.Process(ctx, redis.NewCmd(ctx, "asking"))
				r.ask = ""
			}
			cmds[i] = redis.NewCmd(ctx, r.args...)
			p.Process(ctx, cmds[i])
		}
		if write && s.replicas > 0 {
			wait = redis.NewCmd(ctx, "wait", s.replicas, s.wait.Milliseconds())
			p.Process(ctx, wait)
		}
		return nil
	})
	for i, r := range reqs {
		r.reply, r.err = cmds[i].Result()
		switch {
		case r.err == redis.Nil:
			r.err = nil
		case r.err == nil && r.reply == nil:
			// It was not executed. The error is a hook's, or a reply to the handshake of the
			// connection, which go-redis does not set in the commands.
			r.err = err
		}
	}
	if wait != nil {
		n, werr := wait.Int()
		if werr == nil && n < s.replicas {
			werr = fmt.Errorf("%w: %d of %d", ErrReplicas, n, s.replicas)
		}
		for _, r := range reqs {
			if r.err == nil && werr != nil {
				r.earlier = append(r.earlier, r.reply)
				r.err = werr
			}
		}
	}
}

// eval returns the request that runs a script on one key.
func eval(key, script string, args ...any) *request {
	return &request{key: key, args: append([]any{"eval", script, 1, key}, args...)}
}
