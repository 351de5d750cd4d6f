//go:build linux

package block

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// recorder is a disk that records what reaches it. Reads and writes go to a private mapping of the
// file with its initial contents.
type recorder struct {
	fs.Inode

	mu    sync.Mutex
	disk  []byte
	out   *os.File        // of the tape
	n     uint64          // events so far
	busy  map[uint64]bool // writes that are not answered yet
	buf   []byte
	rng   *rand.Rand
	clock *atomic.Uint64 // n, for the program that works on the disk
}

var _ interface {
	fs.NodeGetattrer
	fs.NodeSetattrer
	fs.NodeOpener
	fs.NodeReader
	fs.NodeWriter
	fs.NodeFsyncer
} = (*recorder)(nil)

// Getattr implements fs.NodeGetattrer.
func (r *recorder) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size = syscall.S_IFREG|0o600, uint64(len(r.disk))
	return 0
}

// Setattr implements fs.NodeSetattrer. The size cannot change.
func (r *recorder) Setattr(ctx context.Context, f fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if size, ok := in.GetSize(); ok && size != uint64(len(r.disk)) {
		return syscall.EPERM
	}
	return r.Getattr(ctx, f, out)
}

// Open implements fs.NodeOpener. The kernel does not cache what is read or written.
func (r *recorder) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

// Read implements fs.NodeReader.
func (r *recorder) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if off >= int64(len(r.disk)) {
		return fuse.ReadResultData(nil), 0
	}
	return fuse.ReadResultData(dest[:copy(dest, r.disk[off:])]), 0
}

// Write implements fs.NodeWriter. Some writes are answered late, so that flushes begin while they
// are in flight.
func (r *recorder) Write(_ context.Context, _ fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	if off%sectorBytes != 0 || len(data)%sectorBytes != 0 || off+int64(len(data)) > int64(len(r.disk)) {
		return 0, syscall.EINVAL
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	copy(r.disk[off:], data)
	i := r.n
	if err := r.add(&event{off: off, data: data}); err != nil {
		return 0, syscall.EIO
	}
	r.busy[i] = true
	r.pause(24, 6*time.Millisecond)
	delete(r.busy, i)
	return uint32(len(data)), 0
}

// Fsync implements fs.NodeFsyncer. Writes that arrive during the call are not made durable by it.
func (r *recorder) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := event{flush: true, upTo: r.n}
	for i := range r.busy {
		e.except = append(e.except, i)
	}
	r.pause(4, 2*time.Millisecond)
	if err := r.add(&e); err != nil {
		return syscall.EIO
	}
	return 0
}

// pause lets other requests overtake this one, for up to most, in one of once calls.
func (r *recorder) pause(once int, most time.Duration) {
	if r.rng.IntN(once) > 0 {
		return
	}
	d := time.Duration(r.rng.Int64N(int64(most)))
	r.mu.Unlock()
	time.Sleep(d)
	r.mu.Lock()
}

// add appends an event to the tape. The clock advances before the request is answered, so the
// time that the program reads after the answer is never too early.
func (r *recorder) add(e *event) error {
	r.buf = e.appendTo(r.buf[:0])
	if _, err := r.out.Write(r.buf); err != nil {
		return err
	}
	r.n++
	r.clock.Store(r.n)
	return nil
}

// mapClock maps the clock, a file that the disk's process and the program share.
func mapClock(name string) (*atomic.Uint64, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(8); err != nil {
		return nil, err
	}
	b, err := unix.Mmap(int(f.Fd()), 0, 8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return (*atomic.Uint64)(unsafe.Pointer(&b[0])), nil
}

// Names of the files in a server's directory.
const (
	baseName  = "base"  // the initial contents of the disk
	tapeName  = "tape"  // what reached it
	clockName = "clock" // how many events that is
	mountName = "mnt"   // where the server's file system is
	diskName  = "disk"  // the one file there
)

// asyncDIO is FUSE_ASYNC_DIO of the FUSE protocol: the loop device may send a write or a flush
// before the previous write is answered.
const asyncDIO = 1 << 15

// serve serves a disk until SIGTERM or the end of its standard input, which ends when the test
// dies.
func serve(dir string, seed uint64) error {
	base, err := os.Open(filepath.Join(dir, baseName))
	if err != nil {
		return err
	}
	defer base.Close()
	info, err := base.Stat()
	if err != nil {
		return err
	}
	r := &recorder{busy: map[uint64]bool{}, rng: rand.New(rand.NewPCG(seed, 11))}
	if r.disk, err = unix.Mmap(int(base.Fd()), 0, int(info.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE); err != nil {
		return err
	}
	if r.out, err = os.Create(filepath.Join(dir, tapeName)); err != nil {
		return err
	}
	if r.clock, err = mapClock(filepath.Join(dir, clockName)); err != nil {
		return err
	}
	mnt := filepath.Join(dir, mountName)
	if err := os.MkdirAll(mnt, 0o700); err != nil {
		return err
	}
	server, err := fs.Mount(mnt, &root{disk: r}, &fs.Options{MountOptions: fuse.MountOptions{
		DirectMountStrict: true, MaxWrite: 1 << 20, Name: "siftdisk", ExtraCapabilities: asyncDIO}})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	signal.Ignore(syscall.SIGINT) // the test gets it, too, and first unmounts the file system on the disk
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	gone := make(chan struct{})
	go func() {
		var b [1]byte
		os.Stdin.Read(b[:])
		close(gone)
	}()
	select {
	case <-end:
		err = server.Unmount()
	case <-gone: // even if it is still in use
		err = unix.Unmount(mnt, unix.MNT_DETACH)
	}
	return errors.Join(err, r.out.Close())
}

// root is the directory with the one file.
type root struct {
	fs.Inode
	disk *recorder
}

// OnAdd implements fs.NodeOnAdder.
func (d *root) OnAdd(ctx context.Context) {
	d.AddChild(diskName, d.NewPersistentInode(ctx, d.disk, fs.StableAttr{Mode: syscall.S_IFREG}), false)
}
