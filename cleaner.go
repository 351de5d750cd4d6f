package sift

import "sync"

// cleaner runs tasks in order on a goroutine in the background. One cleaner closes full logs and
// removes obsolete files, because some file systems take as long to remove a file as to write it.
// Another one releases versions when their readers have left.
type cleaner struct {
	mu      sync.Mutex
	idle    sync.Cond // on mu: the goroutine has ended
	queue   []func()
	now     bool // do runs tasks synchronously
	running bool
	closed  bool
}

// do schedules a task. A closed cleaner drops tasks: the next Open removes the files that they
// would have removed.
func (c *cleaner) do(task func()) {
	if c.now {
		task()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.queue = append(c.queue, task)
	if !c.running {
		c.running = true
		go c.run()
	}
}

func (c *cleaner) run() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) > 0 {
		tasks := c.queue
		c.queue = nil
		c.mu.Unlock()
		for _, task := range tasks {
			task()
		}
		c.mu.Lock()
	}
	c.running = false
	c.idle.Broadcast()
}

// close waits until all scheduled tasks are done. The cleaner drops later ones.
func (c *cleaner) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for c.running { // false once the queue is empty; no more tasks are added
		c.idle.Wait()
	}
}
