package serve

import (
	"io"
	"syscall"
)

// poll stores the events that are ready, and returns their number. It waits for an event for up to
// timeout ms; 0: not at all; -1: forever.
func poll(epoll int, events []syscall.EpollEvent, timeout int) int {
	n, err := syscall.EpollWait(epoll, events, timeout)
	if err != nil {
		return 0
	}
	return n
}

// read reads from a non-blocking socket. At the end it returns io.EOF.
func read(fd int, p []byte) (int, error) {
	for {
		n, err := syscall.Read(fd, p)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

// write writes to a non-blocking socket.
func write(fd int, p []byte) (int, error) {
	for {
		n, err := syscall.Write(fd, p)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return 0, err
		}
		return n, nil
	}
}

// wakeUp adds to an eventfd, which makes it readable; clearWakeUp resets it.
func wakeUp(fd int) {
	one := [8]byte{1, 1, 1, 1, 1, 1, 1, 1} // not 0 in either byte order
	write(fd, one[:])
}

func clearWakeUp(fd int) {
	var b [8]byte
	read(fd, b[:])
}

// switches are how often a thread has waited, and how often it has lost the CPU to another one.
type switches struct{ waited, lost int64 }

// readSwitches returns the current thread's switches.
func readSwitches() switches {
	const thread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	if syscall.Getrusage(thread, &u) != nil {
		return switches{}
	}
	return switches{int64(u.Nvcsw), int64(u.Nivcsw)}
}

// onlyLost reports whether since before the thread has lost the CPU and has not waited.
func (s switches) onlyLost(before switches) bool {
	return s.waited == before.waited && s.lost > before.lost
}
