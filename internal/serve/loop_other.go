//go:build !linux

package serve

import (
	"time"

	"github.com/siftdb/sift/internal/serve/resp"
)

// Event loops are for Linux; elsewhere each client has a goroutine.

type loop struct{}

type event struct{}

type message struct {
	what int
	c    *client
}

const (
	kicked      = 0
	slowCommand = 0
)

func (*loop) post(message) {}

func (s *Server) startLoops() error                { return nil }
func (s *Server) stopLoops(time.Duration)          {}
func (s *Server) toLoop(*client, resp.Limits) bool { return false }

func (*client) onLoop() bool { return false }
