package siftd

import (
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestCloseConfirms: a node that stops, and has no other node to lead its groups, completes the
// commands in progress. No client gets an unknown outcome.
func TestCloseConfirms(t *testing.T) {
	redis.SetLogger(silent{})
	for range 3 {
		n, err := Start(Config{Dir: t.TempDir(), Addr: "127.0.0.1:0", RaftAddr: "127.0.0.1:0", Password: "secret", Init: true, Shape: Shape{4, 3}})
		if err != nil {
			t.Fatal(err)
		}
		setOne(t, n)
		var wg sync.WaitGroup
		begun := make(chan struct{}, 16)
		for i := range cap(begun) {
			c := redis.NewClient(&redis.Options{Addr: n.Addr(), Password: "secret", MaxRetries: -1, DialerRetries: 1})
			t.Cleanup(func() { c.Close() })
			wg.Go(func() {
				for item := 0; ; item++ {
					if item == 10 {
						begun <- struct{}{}
					}
					err := c.BFAdd(t.Context(), "f"+strconv.Itoa(i), item).Err()
					if err != nil && strings.Contains(err.Error(), "UNKNOWN") {
						t.Error(err)
					}
					if err != nil {
						return
					}
				}
			})
		}
		for range cap(begun) {
			<-begun
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}
