//go:build unix

package serve

import (
	"testing"
	"time"
)

// A WAIT without a limit ends when its client hangs up.
func TestGroupWaitHungUp(t *testing.T) {
	s, g := startGroup(t, groupDB(t), true)
	g.waiting = make(chan struct{})
	c := dial(t, s)
	if _, err := c.conn.Write(appendCall(nil, "WAIT", "1", "0")); err != nil {
		t.Fatal(err)
	}
	<-g.waiting
	c.conn.Close()
	select {
	case <-g.waiting:
	case <-time.After(20 * time.Second):
		t.Error("WAIT goes on after its client has hung up")
		g.waiting <- struct{}{}
	}
}
