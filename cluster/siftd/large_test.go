package siftd

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestTooLarge: in a transaction that is larger than an entry of the log may be, the last commands
// are refused. No other client notices.
func TestTooLarge(t *testing.T) {
	redis.SetLogger(silent{})
	n := startAt(t, Config{Dir: t.TempDir(), Init: true, Shape: Shape{1, 1}, Raft: patientRaft()})
	setOne(t, n)
	ctx := t.Context()
	client := func() *redis.Client {
		c := redis.NewClient(&redis.Options{Addr: n.Addr(), Password: "secret", MaxRetries: -1, ReadTimeout: time.Minute, WriteTimeout: time.Minute})
		t.Cleanup(func() { c.Close() })
		return c
	}
	server := func() any {
		if now := n.replica(0).get(); now != nil {
			return now.server
		}
		return nil
	}
	before := server()
	conn := client().Conn()
	defer conn.Close()
	stop := make(chan struct{})
	var other sync.WaitGroup
	defer other.Wait()
	defer close(stop)
	other.Go(func() {
		for i := int64(1); ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if got, err := conn.Incr(ctx, "{x}n").Result(); err != nil || got != i {
				t.Errorf("another client's INCR: %d, %v; want %d", got, err, i)
				return
			}
		}
	})
	c := client()
	const values = 7
	value := strings.Repeat("v", maxBulk)
	tx := c.TxPipeline()
	for i := range values {
		tx.Set(ctx, fmt.Sprint("{x}v", i), value, 0)
	}
	replies, err := tx.Exec(ctx)
	if err == nil || !strings.HasPrefix(err.Error(), "OOM") {
		t.Errorf("the transaction: %v", err)
	}
	for i, r := range replies {
		want := int64(0)
		if r.Err() == nil {
			want = maxBulk
		}
		if got, err := c.StrLen(ctx, fmt.Sprint("{x}v", i)).Result(); got != want || err != nil {
			t.Errorf("value %d has %d bytes, %v; the reply to SET was %v", i, got, err, r.Err())
		}
	}
	if server() != before {
		t.Error("the server of the group was replaced")
	}
}
