// Package store runs workloads on whole stores, all on the same data and under
// the same terms, in rounds in which the stores take turns.
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
	"github.com/siftdb/sift/bench/result"
)

// Options say what to run.
type Options struct {
	Specs      []engine.Spec
	Benchmarks []string
	Set        data.Set
	// Reads is the number of operations of a benchmark that reads.
	Reads int
	// Rounds is how often all is done, from the empty store on; Passes how often
	// in each round the benchmarks are done that leave the store as it is.
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
	BatchSize int // keys of a multiread
	// WriteRate is what the writer of readwhilewriting writes, in bytes a second.
	WriteRate int
	// TimeEvery is how many operations share one timing: timing each would
	// change what is measured.
	TimeEvery int
	Seed      uint64

	// Dir is where the databases are. With UseExisting, databases that an
	// earlier run has left there are used, and with Keep they are left there.
	Dir         string
	UseExisting bool
	Keep        bool

	// Out gets a line for each measurement.
	Out io.Writer
	// Step is told what is done next.
	Step func(what string)
}

// Terms are what is equal for all stores.
func (o *Options) Terms() []string {
	compression := "snappy"
	if o.NoCompression {
		compression = "off"
	}
	sync := "each write goes to the log without waiting for the disk, fillsync excepted"
	if o.Sync {
		sync = "each write waits for the disk"
	}
	return []string{
		"Data: " + o.Set.Name() + "; every key is written once; the order of writes and reads is the same for all.",
		fmt.Sprintf("Filters of %d bits per key unless a store is named with another; block cache %s; memtable %s; blocks of %d bytes; compression %s; %s.",
			o.BloomBits, mib(o.CacheBytes), mib(int64(o.WriteBufferBytes)), o.BlockBytes, compression, sync),
		fmt.Sprintf("%d thread(s). Before a benchmark that reads, work in the background has ended, the store has been opened again, its files are in the page cache, and the same work has been done for a while unmeasured.", o.Threads),
		fmt.Sprintf("%d round(s), in each of which the stores take turns benchmark by benchmark (A B C A B C ...), from the empty store on; benchmarks that read %d time(s) a round, in turns too. Figures are medians, with the smallest and largest.", o.Rounds, max(1, o.Passes)),
		fmt.Sprintf("Processor time is user and system time of the whole process, background work and garbage collection included; for writes until that work has ended. One operation in %d is timed.", o.TimeEvery),
		"settled: after all writes and the compactions that they caused; compacted: after a manual compaction of everything; fresh: settled, then one key in fifty written again and flushed.",
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

// warmFiles reads all files of a directory, so that they are in the page cache.
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
			continue // the store has dropped it meanwhile
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

// allocated returns the bytes that the files of a directory hold. Files that a
// store has made larger than what is in them count with what is in them.
func allocated(dir string) int64 {
	var sum int64
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			sum += diskBytes(info)
		}
	}
	return sum
}

// progress tells Step.
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
