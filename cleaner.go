package sift

import "sync"

// cleaner runs tasks that nobody waits for, in order, on its own goroutine. One cleaner closes logs
// that are no longer written to and removes obsolete files, because a file system may take as long
// to remove a file as to write it. Another releases versions when their readers have left.
type cleaner struct {
	mu      sync.Mutex
	idle    sync.Cond // on mu: the goroutine has ended
	queue   []func()
	now     bool // run tasks synchronously
	running bool
	closed  bool
}

// do schedules a task. Once the cleaner is closed it drops tasks: the next Open removes what they
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

// close returns when all tasks are done; later ones are dropped.
func (c *cleaner) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for c.running { // false once the queue is empty; no more tasks are added
		c.idle.Wait()
	}
}
