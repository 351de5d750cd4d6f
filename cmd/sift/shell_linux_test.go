package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestShellTerminated: SIGTERM ends the shell at its prompt.
func TestShellTerminated(t *testing.T) {
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("there are no pseudoterminals: ", err)
	}
	defer screen.Close()
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
	cmd := program(t, "shell", filepath.Join(t.TempDir(), "db"))
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, &stderr
	err = cmd.Start()
	tty.Close() // or reading the screen would not fail when the shell has ended
	if err != nil {
		t.Fatal(err)
	}
	var shown []byte
	for buf := make([]byte, 1024); !bytes.Contains(shown, []byte("sift> ")); {
		n, err := screen.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q; stderr %q", err, shown, &stderr)
		}
		shown = append(shown, buf[:n]...)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status := exitCode(t, cmd.Wait()); status != statusFailed || !strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("status %d, stderr %q", status, &stderr)
	}
}
