package serve

import (
	"io"
	"syscall"
	"unsafe"
)

// System calls that do not block are raw ones, which do not notify Go's scheduler: notifying it
// costs a good part of what they cost themselves. Writes of more than shortCopy do notify it.
const shortCopy = 64 << 10

// poll stores the events that are ready, without waiting, and returns their number.
func poll(epoll int, events []syscall.EpollEvent) int {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// sleepPoll is poll, except that it waits for an event for up to timeout ms; -1: forever.
func sleepPoll(epoll int, events []syscall.EpollEvent, timeout int) int {
	n, _, errno := syscall.Syscall6(syscall.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), uintptr(timeout), 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// read reads from a non-blocking socket. At the end it returns io.EOF.
func read(fd int, p []byte) (int, error) {
	for {
		n, _, errno := syscall.RawSyscall(syscall.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
		switch {
		case errno == syscall.EINTR:
			continue
		case errno != 0:
			return 0, errno
		case n == 0:
			return 0, io.EOF
		}
		return int(n), nil
	}
}

// write writes to a non-blocking socket.
func write(fd int, p []byte) (int, error) {
	for {
		var n uintptr
		var errno syscall.Errno
		if len(p) > shortCopy {
			n, _, errno = syscall.Syscall(syscall.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
		} else {
			n, _, errno = syscall.RawSyscall(syscall.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
		}
		switch {
		case errno == syscall.EINTR:
			continue
		case errno != 0:
			return 0, errno
		}
		return int(n), nil
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
