//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package vfs

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestMain makes the test binary a second process for the tests of locks: with
// VFS_LOCK set to "HOW NAME" it locks the file, prints the result, and holds the
// lock until its standard input ends.
func TestMain(m *testing.M) {
	how, name, ok := strings.Cut(os.Getenv("VFS_LOCK"), " ")
	if !ok {
		os.Exit(m.Run())
	}
	err := lockAs(how, name)
	var locked *LockedError
	switch {
	case errors.As(err, &locked):
		println("locked " + strconv.Itoa(locked.PID))
	case err != nil:
		println("error " + err.Error())
	default:
		println("got")
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// lockAs takes a lock as one of several engines does.
func lockAs(how, name string) error {
	switch how {
	case "exclusive", "shared":
		_, err := OS.Lock(name, how == "exclusive")
		return err
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	switch how {
	case "flock":
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	case "flock-shared":
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	default:
		err = syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK})
	}
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) {
		return &LockedError{Name: name, PID: -1}
	}
	return err
}

// otherProcess takes a lock in another process, which ends with the test or with
// stop, and returns its process ID and what it printed.
func otherProcess(t *testing.T, how, name string) (pid int, said string, stop func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "VFS_LOCK="+how+" "+name)
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	done := false
	stop = func() {
		if !done {
			done = true
			_ = in.Close()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(stop)
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	return cmd.Process.Pid, strings.TrimSpace(line), stop
}

func TestLockBetweenProcesses(t *testing.T) {
	me := strconv.Itoa(os.Getpid())
	for _, tc := range []struct {
		exclusive bool
		how, want string
	}{
		{true, "exclusive", "locked " + me},
		{true, "shared", "locked " + me},
		{true, "fcntl", "locked -1"},
		{true, "flock", "locked -1"},
		{false, "exclusive", "locked " + me},
		{false, "shared", "got"},
		{false, "fcntl", "locked -1"},
		{false, "flock", "locked -1"},
		{true, "flock-shared", "locked -1"},
		{false, "flock-shared", "got"},
	} {
		name := filepath.Join(t.TempDir(), "LOCK")
		l, err := OS.Lock(name, tc.exclusive)
		must(t, err)
		// A lock refused in this process must not drop the one that is held.
		if _, err := OS.Lock(name, true); err == nil {
			t.Fatal("locked twice")
		}
		if _, said, _ := otherProcess(t, tc.how, name); said != tc.want {
			t.Errorf("exclusive %v, other process %s: %q, want %q", tc.exclusive, tc.how, said, tc.want)
		}
		if !tc.exclusive {
			// One of two users of a shared lock releases it.
			again, err := OS.Lock(name, false)
			must(t, err)
			must(t, again.Close())
			if _, said, _ := otherProcess(t, "exclusive", name); !strings.HasPrefix(said, "locked") {
				t.Errorf("after one of two users left: %q", said)
			}
		}
		must(t, l.Close())
	}

	for _, tc := range []struct {
		how       string
		exclusive bool
		refused   bool
		known     bool // whether the holder's process ID is known
	}{
		{"exclusive", true, true, true},
		{"exclusive", false, true, true},
		{"shared", true, true, true},
		{"shared", false, false, false},
		{"fcntl", true, true, true},
		{"fcntl", false, true, true},
		{"flock", true, true, false},
		{"flock", false, true, false},
		{"flock-shared", true, true, false},
		{"flock-shared", false, false, false},
	} {
		name := filepath.Join(t.TempDir(), "LOCK")
		pid, said, stop := otherProcess(t, tc.how, name)
		if said != "got" {
			t.Fatalf("%s: %q", tc.how, said)
		}
		l, err := OS.Lock(name, tc.exclusive)
		if !tc.refused {
			must(t, err)
			must(t, l.Close())
			continue
		}
		var locked *LockedError
		if !errors.As(err, &locked) || tc.known && locked.PID != pid || !tc.known && locked.PID != 0 {
			t.Errorf("other process %d has %s, exclusive %v: %v", pid, tc.how, tc.exclusive, err)
		}
		stop()
		l, err = OS.Lock(name, tc.exclusive)
		must(t, err)
		must(t, l.Close())
	}
}

// TestUnlockWhileForking releases a lock while another descriptor of the file is
// open, as in a child between fork and exec.
func TestUnlockWhileForking(t *testing.T) {
	name := filepath.Join(t.TempDir(), "LOCK")
	for _, exclusive := range []bool{true, false} {
		l, err := OS.Lock(name, exclusive)
		if err != nil {
			t.Fatal(err)
		}
		fd, err := syscall.Dup(int(l.(*lockHandle).lock.f.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		again, err := OS.Lock(name, true)
		if err != nil {
			t.Errorf("exclusive %v: locking after the release: %v", exclusive, err)
		} else if err := again.Close(); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Close(fd); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLockFails checks the errors for descriptors that cannot be locked: closed ones, and one that
// is open only for reading and is to be locked exclusively.
func TestLockFails(t *testing.T) {
	name := filepath.Join(t.TempDir(), "LOCK")
	put(t, OS, name, "", false)
	f, err := os.Open(name)
	must(t, err)
	locked := (*LockedError)(nil)
	if err := lockFile(f, name, true); err == nil || errors.As(err, &locked) {
		t.Errorf("an exclusive lock on a file that is open for reading: %v", err)
	}
	must(t, f.Close())
	for what, err := range map[string]error{
		"fcntl":   lockFile(f, name, false),
		"flock":   flockFile(f, name, false),
		"unlock":  unlockFile(f),
		"no file": control(nil, func(uintptr) error { return nil }),
	} {
		if err == nil || errors.As(err, &locked) {
			t.Errorf("%s of a closed file: %v", what, err)
		}
	}
}
