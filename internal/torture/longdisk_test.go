package torture

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// errLongDisk is wrapped by all errors of a longDisk.
var errLongDisk error = longDiskError{}

type longDiskError struct{}

func (longDiskError) Error() string { return "the disk of the long run fails" }
func (longDiskError) Unwrap() error { return syscall.EIO }

// longDisk is a disk that is slow, full or failing at times.
type longDisk struct {
	fs    *vfstest.Faulty
	state atomic.Int32
}

const (
	diskWorks int32 = iota
	diskSlow
	diskFails
	diskFull
	numDiskStates
)

var diskStateNames = [numDiskStates]string{"works", "slow", "fails", "full"}

func newLongDisk(fsys vfs.FS) *longDisk {
	d := &longDisk{fs: vfstest.Inject(fsys)}
	d.fs.SetHook(d.hook)
	return d
}

// changeStates repeatedly changes what is wrong with the disk.
func (d *longDisk) changeStates(rng *rand.Rand) {
	for {
		time.Sleep(time.Duration(5+rng.IntN(20)) * time.Second)
		state := diskSlow + rng.Int32N(numDiskStates-diskSlow)
		fmt.Println("event disk", diskStateNames[state])
		d.state.Store(state)
		if state == diskSlow {
			time.Sleep(time.Duration(3+rng.IntN(8)) * time.Second)
		} else {
			time.Sleep(time.Duration(50+rng.IntN(1000)) * time.Millisecond)
		}
		d.state.Store(diskWorks)
	}
}

func (d *longDisk) hook(op vfstest.Op) error {
	switch d.state.Load() {
	case diskSlow:
		switch op.Kind {
		case vfstest.OpSync, vfstest.OpSyncDir:
			time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
		case vfstest.OpReadAt, vfstest.OpWrite:
			time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
		}
	case diskFails:
		if op.Kind != vfstest.OpUnlock && rand.IntN(20) == 0 {
			return errLongDisk
		}
	case diskFull:
		if op.Kind == vfstest.OpWrite || op.Kind == vfstest.OpCreate {
			return fullDiskError{}
		}
	}
	return nil
}

// fullDiskError wraps errLongDisk and ENOSPC.
type fullDiskError struct{}

func (fullDiskError) Error() string   { return "the disk of the long run is full" }
func (fullDiskError) Unwrap() []error { return []error{errLongDisk, syscall.ENOSPC} }
