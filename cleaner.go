package sift

import "sync"

// cleaner does, in order and on a goroutine of its own, what nobody waits for. One
// closes logs that are no longer written to and removes files that nothing names any
// more: a file system may take as long to remove a file as to write it. Another
// releases versions when their readers have left.
type cleaner struct {
	mu      sync.Mutex
	idle    sync.Cond // on mu: the goroutine has ended
	queue   []func()
	now     bool // tasks are done at once
	running bool
	closed  bool
}

// do has a task carried out soon. Once the cleaner is closed tasks are dropped:
// what they would have removed is for the next Open.
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

// close returns when all tasks are done; it takes no more.
func (c *cleaner) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for c.running { // false under mu when the queue is empty, which nobody adds to any more
		c.idle.Wait()
	}
}
