//go:build linux

package block

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A fileSystem is one that databases are tested on.
type fileSystem struct {
	name    string
	kind    string   // the kernel's name for it
	mkfs    []string // the command, without the device
	bytes   int64    // of the disk: about the minimum
	mount   string   // options
	refuses bool     // images that are not torn may be impossible to mount
}

var fileSystems = []fileSystem{
	{"ext4", "ext4", []string{"mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=4"}, 40 << 20, "data=ordered,commit=1", false},
	{"ext4-writeback", "ext4", []string{"mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=4"}, 40 << 20, "data=writeback,commit=1", false},
	{"xfs", "xfs", []string{"mkfs.xfs", "-q", "-f"}, 304 << 20, "", false},
	{"btrfs", "btrfs", []string{"mkfs.btrfs", "-q", "-f"}, 128 << 20, "commit=1", false},
	{"f2fs", "f2fs", []string{"mkfs.f2fs", "-q", "-f"}, 64 << 20, "", false},
	// Only for TestFastCommit.
	{"ext4-fast-commit", "ext4", []string{"mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=4", "-O", "fast_commit"}, 40 << 20, "data=ordered,commit=1", true},
}

// missing returns why a file system cannot be used here; "" if it can.
func (f *fileSystem) missing() string {
	if os.Getuid() != 0 {
		return "mounting needs root"
	}
	for _, name := range []string{"/dev/fuse", "/dev/loop-control"} {
		if _, err := os.Stat(name); err != nil {
			return err.Error()
		}
	}
	kinds, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return err.Error()
	}
	if !strings.Contains(string(kinds), "\t"+f.kind+"\n") {
		return "the kernel has no " + f.kind
	}
	if _, err := exec.LookPath(f.mkfs[0]); err != nil {
		return err.Error()
	}
	return ""
}

// make makes a file system in a new file.
func (f *fileSystem) make(name string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := errors.Join(file.Truncate(f.bytes), file.Close()); err != nil {
		return err
	}
	if out, err := exec.Command(f.mkfs[0], append(f.mkfs[1:len(f.mkfs):len(f.mkfs)], name)...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", f.mkfs[0], err, out)
	}
	return nil
}

// mounted is a file system that is mounted from a file through a loop device, which unmounting
// detaches.
type mounted struct{ dir string }

// mountFile mounts a file at a directory, which it creates.
func (f *fileSystem) mountFile(file, dir string) (*mounted, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	loop, err := attach(file)
	if err != nil {
		return nil, err
	}
	defer loop.Close()
	if err := unix.Mount(loop.Name(), dir, f.kind, unix.MS_NOATIME, f.mount); err != nil {
		return nil, fmt.Errorf("%w: %s of %s: %w", errMount, f.name, file, err)
	}
	return &mounted{dir}, nil
}

// errMount reports that a file system cannot be mounted, for example because its superblock is
// torn: that of ext4 takes two sectors, that of btrfs eight.
var errMount = errors.New("mount")

// attach attaches a file to a loop device, which is detached when no process has it open any more.
func attach(name string) (*os.File, error) {
	mode, flags := os.O_RDWR, uint32(unix.LO_FLAGS_AUTOCLEAR)
	if filepath.Base(name) == diskName {
		mode |= syscall.O_DIRECT // so that a recorded disk gets several requests at a time
		flags |= unix.LO_FLAGS_DIRECT_IO
	}
	file, err := os.OpenFile(name, mode, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	for range 100 {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("a free loop device: %w", err)
		}
		loop, err := os.OpenFile("/dev/loop"+strconv.Itoa(n), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &unix.LoopConfig{Fd: uint32(file.Fd()), Size: sectorBytes,
			Info: unix.LoopInfo64{Flags: flags}})
		if err == nil {
			return loop, nil
		}
		loop.Close()
		if err != unix.EBUSY { // another process took it
			return nil, fmt.Errorf("loop device for %s: %w", name, err)
		}
	}
	return nil, fmt.Errorf("loop device for %s: other processes took each one", name)
}

// unmount unmounts the file system, which also detaches the loop device.
func (m *mounted) unmount() error {
	for range 200 {
		err := unix.Unmount(m.dir, 0)
		if err != unix.EBUSY {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.Join(fmt.Errorf("%s stays busy", m.dir), unix.Unmount(m.dir, unix.MNT_DETACH))
}

// disk is a recorded disk, which a separate process serves.
type disk struct {
	dir   string
	clock *atomic.Uint64
	ticks atomic.Uint32
	cmd   *exec.Cmd
	stdin io.Closer
}

// serveEnv tells the test binary to serve the disk in a directory.
const serveEnv = "SIFT_BLOCK_SERVE"

// startDisk serves a disk whose initial contents are the file named base in dir.
func startDisk(dir string, seed uint64) (*disk, error) {
	clock, err := mapClock(filepath.Join(dir, clockName))
	if err != nil {
		return nil, err
	}
	d := &disk{dir: dir, clock: clock, cmd: exec.Command(os.Args[0])}
	d.cmd.Env = append(os.Environ(), serveEnv+"="+dir, serveEnv+"_SEED="+strconv.FormatUint(seed, 10))
	d.cmd.Stderr = os.Stderr
	if d.stdin, err = d.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		d.cmd.Process.Kill()
		return nil, errors.Join(fmt.Errorf("the disk's server says %q", line), err, d.cmd.Wait())
	}
	return d, nil
}

// file returns the path of the file to mount.
func (d *disk) file() string { return filepath.Join(d.dir, mountName, diskName) }

// now returns the time: the number of events so far, and a number that orders what happens between
// two events. If one call returned at an earlier time than another began, it had returned before
// the other began.
func (d *disk) now() int { return int(d.clock.Load())<<tickBits | int(d.ticks.Add(1)) }

const tickBits = 24

// atCut returns the time of a power cut after a number of events: after everything before the next
// event.
func atCut(events int) int { return (events+1)<<tickBits - 1 }

// stop ends the server and returns what reached the disk.
func (d *disk) stop() (*tape, error) {
	if err := errors.Join(d.cmd.Process.Signal(syscall.SIGTERM), d.cmd.Wait()); err != nil {
		return nil, fmt.Errorf("the disk's server: %w", err)
	}
	return readTape(filepath.Join(d.dir, baseName), filepath.Join(d.dir, tapeName))
}
