package cluster

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/siftdb/sift/internal/torture/plant"
)

// buildFrail builds a siftd that is controlled by environment variables: the file CLOCK holds
// its clock's offset, its writes or syncs fail while the file DISK says so, and BELIEVE is
// how long it believes that it leads without hearing from others.
func buildFrail(t *testing.T, exe string) {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path, err := plant.Overlay(root, dir, append(plantedEdits(t), frailEdits...))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var overlay map[string]map[string]string
	if err := json.Unmarshal(text, &overlay); err != nil {
		t.Fatal(err)
	}
	for name, code := range map[string]string{"internal/serve/clockskew.go": clockSkew, "cluster/siftd/believe.go": believing, "internal/vfs/failing.go": failingFiles, "cluster/failinglog.go": failingLog} {
		file := filepath.Join(dir, filepath.Base(name))
		if err := os.WriteFile(file, []byte(code), 0o644); err != nil {
			t.Fatal(err)
		}
		overlay["Replace"][filepath.Join(root, name)] = file
	}
	if text, err = json.Marshal(overlay); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-overlay", path, "-o", exe, "./cmd/siftd").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

var frailEdits = []plant.Edit{
	{File: "internal/serve/keyspace.go", Old: "time.Now().UnixMilli(), s.clock.floor", New: "time.Now().UnixMilli()+clockSkew.Load(), s.clock.floor"},
	{File: "internal/vfs/os.go", Old: "{ return create(name, filePerm) }", New: "{ return failing(create(name, filePerm)) }"},
	{File: "internal/vfs/log_linux.go", Old: "f, err := o.Create(name)", New: "f, err := create(name, filePerm)"},
	{File: "internal/vfs/log_linux.go", Old: "return &mappedLog{f: f.(*os.File), next: firstWindow}, nil", New: "return failing(&mappedLog{f: f.(*os.File), next: firstWindow}, nil)"},
	{File: "cluster/siftd/node.go", Old: "LeaderLeaseTimeout = 500*time.Millisecond, 500*time.Millisecond, 250*time.Millisecond", New: "LeaderLeaseTimeout = believe(500*time.Millisecond), believe(500*time.Millisecond), believe(250*time.Millisecond)"},
	{File: "cluster/siftd/replica.go", Old: "minSegment, maxSegment = 4 << 20, 64 << 20", New: "minSegment, maxSegment = 8 << 10, 8 << 10"}, // raft-wal drops whole segments, and never the last
	{File: "cluster/log.go", Old: "tailFS{fs.New()}", New: "tailFS{failingFS{fs.New()}}"},
}

// clockSkew is added to the server's code.
const clockSkew = `package serve

import (
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

var clockSkew atomic.Int64 // ms

func init() {
	read := func() {
		text, _ := os.ReadFile(os.Getenv("CLOCK"))
		if ms, err := strconv.ParseInt(string(text), 10, 64); err == nil {
			clockSkew.Store(ms)
		}
	}
	read()
	go func() {
		for range time.Tick(20 * time.Millisecond) {
			read()
		}
	}()
}
`

// believing is added to the code of siftd.
const believing = `package siftd

import (
	"os"
	"time"
)

func believe(otherwise time.Duration) time.Duration {
	if d, err := time.ParseDuration(os.Getenv("BELIEVE")); err == nil {
		return d
	}
	return otherwise
}
`

// failingFiles is added to the code of the file system.
const failingFiles = `package vfs

import (
	"os"
	"strings"
	"syscall"
)

// Fails returns EIO while "write" or "sync" is to fail, and records that it has.
func Fails(what string) error {
	path := os.Getenv("DISK")
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), what) {
		return nil
	}
	if f, err := os.OpenFile(path+".failed", os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644); err == nil {
		f.Write([]byte{'.'})
		f.Close()
	}
	return syscall.EIO
}

type failingFile struct{ File }

func failing(f File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return failingFile{f}, nil
}

func (f failingFile) Write(p []byte) (int, error) {
	if err := Fails("write"); err != nil {
		n, _ := f.File.Write(p[:len(p)/2])
		return n, err
	}
	return f.File.Write(p)
}

func (f failingFile) Sync() error {
	if err := Fails("sync"); err != nil {
		return err
	}
	return f.File.Sync()
}
`

// failingLog is added to the code of a node.
const failingLog = `package cluster

import (
	"github.com/hashicorp/raft-wal/types"

	"github.com/siftdb/sift/internal/vfs"
)

type failingFS struct{ types.VFS }

func (s failingFS) Create(dir, name string, size uint64) (types.WritableFile, error) {
	f, err := s.VFS.Create(dir, name, size)
	return failingSegment{f}, err
}

func (s failingFS) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := s.VFS.OpenWriter(dir, name)
	return failingSegment{f}, err
}

type failingSegment struct{ types.WritableFile }

func (f failingSegment) WriteAt(p []byte, off int64) (int, error) {
	if err := vfs.Fails("write"); err != nil {
		n, _ := f.WritableFile.WriteAt(p[:len(p)/2], off)
		return n, err
	}
	return f.WritableFile.WriteAt(p, off)
}

func (f failingSegment) Sync() error {
	if err := vfs.Fails("sync"); err != nil {
		return err
	}
	return f.WritableFile.Sync()
}
`
