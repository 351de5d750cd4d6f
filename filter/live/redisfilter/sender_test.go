package redisfilter

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// replyError is an error that a server has sent.
type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}

// pipelineHook is a hook around the pipelines of a client.
type pipelineHook func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error

func (pipelineHook) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (pipelineHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h pipelineHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return h(ctx, cmds, next) }
}

// fail gives commands an error in place of their replies.
func fail(cmds []redis.Cmder, err error) error {
	for _, c := range cmds {
		c.SetErr(err)
	}
	return err
}

// losesReply makes a client lose the reply to its next change of a filter's configuration, and
// calls meanwhile before the client sends it again.
func losesReply(c *redis.Client, name string, meanwhile func()) {
	lost := false
	c.AddHook(pipelineHook(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
		err := next(ctx, cmds)
		command := cmds[0].Name()
		if lost || command == "hgetall" || command == "pttl" || !slices.Contains(cmds[0].Args(), any(configKey(name))) {
			return err
		}
		lost = true
		meanwhile()
		return fail(cmds, io.ErrUnexpectedEOF)
	}))
}

func TestTransient(t *testing.T) {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want bool
	}{
		{context.Background(), io.ErrUnexpectedEOF, true},
		{context.Background(), ErrReplicas, true},
		{context.Background(), replyError("MOVED 3999 127.0.0.1:6381"), true},
		{context.Background(), replyError("ASK 3999 127.0.0.1:6381"), true},
		{context.Background(), replyError("TRYAGAIN Multiple keys request during rehashing of slot"), true},
		{context.Background(), replyError("READONLY You can't write against a read only replica."), true},
		{context.Background(), replyError("ERR Error running script (call to f_0123): @user_script:1: @user_script: 1: -READONLY You can't write against a read only replica. "), true},
		{context.Background(), replyError("ERR Error running script (call to f_0123): @user_script:1: -READONLY You can't write against a read only replica."), true},
		{context.Background(), replyError("ERR Error running script (call to f_0123): @user_script:1: WRONGTYPE Operation against a key holding the wrong kind of value"), false},
		{context.Background(), replyError("UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"), true},
		{context.Background(), replyError("ERR WAIT cannot be used with replica instances. Please also note that ..."), true},
		{context.Background(), replyError("WRONGTYPE Operation against a key holding the wrong kind of value"), false},
		{context.Background(), replyError("ERR bit offset is not an integer or out of range"), false},
		{context.Background(), redis.ErrClosed, false},
		{done, errors.New("network"), false},
	} {
		if got := transient(c.ctx, c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

// TestNotExecuted checks that operations return the error of a pipeline whose commands were not
// executed: because the connection could not be initialized, or because of a hook.
func TestNotExecuted(t *testing.T) {
	ctx := context.Background()
	c := serveBF(t, 3)
	f := must(OpenRedisBloom(ctx, c, "f", RedisBloomOptions[string]{Items: 100, FPR: 0.01}))
	must(f.Add(ctx, "a"))
	if err := c.ConfigSet(ctx, "requirepass", "new").Err(); err != nil {
		t.Fatal(err)
	}
	wrong := redis.NewClient(&redis.Options{Addr: c.Options().Addr, Password: "old"})
	defer wrong.Close()
	if _, err := OpenRedisBloom(ctx, wrong, "f", RedisBloomOptions[string]{}); err == nil || errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("wrong password: %v", err)
	}
	c.AddHook(pipelineHook(func(context.Context, []redis.Cmder, redis.ProcessPipelineHook) error {
		return replyError("NOPERM no") // without setting it in the commands
	}))
	noPerm := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("%s: %v", what, err)
		}
	}
	noPerm("Clear", f.Clear(ctx))
	noPerm("Rename", f.Rename(ctx, "g"))
	noPerm("Expire", f.Expire(ctx, 0))
	positive, err := f.MayContain(ctx, "a")
	if noPerm("MayContain", err); !positive {
		t.Error("hidden")
	}
	r := &Redisson[string]{name: "r", sender: f.sender, size: 100, hashes: 1}
	noPerm("Redisson.Clear", r.Clear(ctx))
	_, err = r.ApproxCount(ctx)
	noPerm("Redisson.ApproxCount", err)
}

// TestDialTimeout checks that the timeout of a dial is temporary, although it matches
// context.DeadlineExceeded, and that the end of the caller's context is not.
func TestDialTimeout(t *testing.T) {
	client := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return (&net.Dialer{Timeout: time.Nanosecond}).DialContext(ctx, network, addr)
		},
	})
	defer client.Close()
	o := RedisBloomOptions[string]{RetryFor: time.Millisecond}
	_, err := OpenRedisBloom(context.Background(), client, "f", o)
	if !errors.Is(err, context.DeadlineExceeded) || !Retryable(err) {
		t.Errorf("a dial has timed out: %v, retryable: %v", err, Retryable(err))
	}
	done, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	if _, err := OpenRedisBloom(done, client, "f", o); err == nil || Retryable(err) {
		t.Errorf("the context is done: %v, retryable: %v", err, Retryable(err))
	}
}
