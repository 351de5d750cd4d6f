package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// shellOnTerminal starts a shell on a pseudoterminal, which is closed at the end of the test, and
// waits for its prompt.
func shellOnTerminal(t *testing.T) (cmd *exec.Cmd, screen *os.File, stderr *bytes.Buffer) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("there are no pseudoterminals: ", err)
	}
	t.Cleanup(func() { screen.Close() })
	num, err := unix.IoctlGetUint32(int(screen.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", num), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd = program(t, "shell", filepath.Join(t.TempDir(), "db"))
	stderr = new(bytes.Buffer)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, stderr
	err = cmd.Start()
	tty.Close() // or reading the screen would not fail when the shell has ended
	if err != nil {
		t.Fatal(err)
	}
	var shown []byte
	for buf := make([]byte, 1024); !bytes.Contains(shown, []byte("sift> ")); {
		n, err := screen.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q; stderr %q", err, shown, stderr)
		}
		shown = append(shown, buf[:n]...)
	}
	return cmd, screen, stderr
}

// TestShellTerminated: SIGTERM ends the shell at its prompt.
func TestShellTerminated(t *testing.T) {
	cmd, _, stderr := shellOnTerminal(t)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status := exitCode(t, cmd.Wait()); status != statusFailed || !strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
}

// TestShellInterruptedTwice: a second interrupt ends the shell during a command that the first one
// does not end.
func TestShellInterruptedTwice(t *testing.T) {
	if signal.Ignored(os.Interrupt) {
		t.Skip("interrupts are ignored")
	}
	cmd, screen, _ := shellOnTerminal(t)
	fifo := filepath.Join(t.TempDir(), "filter")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(screen, "filter live inspect %s\r", fifo); err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(20 * time.Second)
	w, err := os.OpenFile(fifo, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	for ; err != nil && time.Now().Before(end); w, err = os.OpenFile(fifo, os.O_WRONLY|syscall.O_NONBLOCK, 0) {
		time.Sleep(10 * time.Millisecond) // until the command has opened it
	}
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	done := make(chan error)
	go func() { done <- cmd.Wait() }()
	// A second interrupt may come before the first one has been handled.
	for interrupts := 0; ; {
		select {
		case err := <-done:
			exit := (*exec.ExitError)(nil)
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT || interrupts < 2 {
				t.Errorf("after %d interrupts: %v", interrupts, err)
			}
			return
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(end) {
			cmd.Process.Kill()
			t.Fatalf("%d interrupts did not end the shell: %v", interrupts, <-done)
		}
		if err := cmd.Process.Signal(os.Interrupt); err == nil {
			interrupts++
		}
	}
}
