package redisfilter

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/redis/go-redis/v9"
)

// replyError is an error that a server has sent.
type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}

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
