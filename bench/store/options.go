// Package store runs workloads on whole stores, with the same data and on the same terms. The
// stores take turns in each round.
package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/siftdb/sift/bench/data"
	"github.com/siftdb/sift/bench/engine"
	"github.com/siftdb/sift/bench/measure"
	"github.com/siftdb/sift/bench/result"
)

// Options are the workloads and settings of a run.
type Options struct {
	Specs      []engine.Spec
	Benchmarks []string
	Set        data.Set
	// Reads is the number of operations of a reading benchmark.
	Reads int
	// Rounds is the number of rounds, each starting with empty stores; Passes is
	// the number of times that each round repeats the benchmarks that do not
	// change the store.
	Rounds  int
	Passes  int
	Threads int

	BloomBits        int
	CacheBytes       int64
	WriteBufferBytes int
	BlockBytes       int
	NoCompression    bool
	Sync             bool
	TxnBatch         int

	SeekNexts int // entries read after a seek
	BatchSize int // keys per call of multiread
	// WriteRate is the rate of the writer of readwhilewriting in bytes per second.
	WriteRate int
	// TimeEvery: one operation in TimeEvery is timed, because timing each would
	// distort the measurement.
	TimeEvery int
	Seed      uint64

	// Dir is the directory of the databases. UseExisting uses the databases of an
	// earlier run; Keep leaves them there at the end.
	Dir         string
	UseExisting bool
	Keep        bool

	// Out gets a line for each measurement.
	Out io.Writer
	// Step is called with a description of the next step.
	Step func(what string)
}

// Terms returns the terms that are the same for all stores.
func (o *Options) Terms() []string {
	compression := "snappy"
	if o.NoCompression {
		compression = "off"
	}
	sync := "writes do not wait for the disk, except in fillsync"
	if o.Sync {
		sync = "every write waits for the disk"
	}
	return []string{
		"Data: " + o.Set.Name() + "; every key is written once; the order of writes and reads is the same for all stores.",
		fmt.Sprintf("Filters of %d bits per key unless the name of the store says otherwise; block cache %s; memtable %s; blocks of %d bytes; compression %s; %s.",
			o.BloomBits, mib(o.CacheBytes), mib(int64(o.WriteBufferBytes)), o.BlockBytes, compression, sync),
		fmt.Sprintf("%d thread(s). Before a reading benchmark, background work has ended, the store has been reopened, its files are in the page cache, and the same work has run for a while unmeasured.", o.Threads),
		fmt.Sprintf("%d round(s), each starting with empty stores; in each, the stores take turns benchmark by benchmark (A B C A B C ...); reading benchmarks run %d time(s) per round, also in turns. Figures are medians, with minimum and maximum.", o.Rounds, max(1, o.Passes)),
		fmt.Sprintf("CPU time is user and system time of the whole process, background work and garbage collection included; for writes, until the background work has ended. One operation in %d is timed.", o.TimeEvery),
		"quiesced: after all writes and the compactions that they caused; compacted: after a manual full compaction; fresh: quiesced, then one key in fifty overwritten and flushed.",
	}
}

func mib(n int64) string {
	if n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}

func (o *Options) config(spec engine.Spec, section string) engine.Config {
	return engine.Config{
		Dir:              o.dirOf(spec, section),
		Filter:           spec.Filter,
		BloomBits:        o.BloomBits,
		Keys:             o.Set.Len(),
		CacheBytes:       o.CacheBytes,
		WriteBufferBytes: o.WriteBufferBytes,
		BlockBytes:       o.BlockBytes,
		NoCompression:    o.NoCompression,
		Sync:             o.Sync,
		TxnBatch:         o.TxnBatch,
	}
}

// dirOf returns the directory of a store's database.
func (o *Options) dirOf(spec engine.Spec, section string) string {
	name := []byte(section + "-" + spec.String())
	for i, c := range name {
		if c == ':' || c == '(' || c == ')' || c == '=' {
			name[i] = '_'
		}
	}
	return filepath.Join(o.Dir, string(name))
}

// warmFiles reads all files of a directory into the page cache.
func warmFiles(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the store has removed it
		}
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, f)
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// allocated returns the disk space of the files of a directory. Of sparse and
// preallocated files, only allocated blocks within the file size count.
func allocated(dir string) int64 {
	var sum int64
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			sum += measure.DiskBytes(info)
		}
	}
	return sum
}

// progress calls Step.
func (o *Options) progress(format string, args ...any) {
	if o.Step != nil {
		o.Step(fmt.Sprintf(format, args...))
	}
}

// line prints a measurement as db_bench does.
func (o *Options) line(k result.Key, round, pass int, text string) {
	if o.Out == nil {
		return
	}
	name := k.Benchmark
	if k.State != "" {
		name += "/" + k.State
	}
	turn := fmt.Sprintf("round %d", round+1)
	if o.Passes > 1 {
		turn += fmt.Sprintf(" pass %d", pass+1)
	}
	fmt.Fprintf(o.Out, "%-24s %-22s : %s; %s\n", k.Name(), name, text, turn)
}
