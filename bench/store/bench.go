package store

import (
	"fmt"
	"slices"
	"strings"

	"github.com/siftdb/sift/bench/data"
)

// kind says what a benchmark needs.
type kind int

const (
	fills  kind = iota // begins with an empty store and writes
	writes             // changes the store that is there
	reads              // leaves the store as it is
	opens              // needs the store closed
)

// benchmark is a workload.
type benchmark struct {
	name  string
	title string
	kind  kind
	// state is what the store is in afterwards; "" leaves it.
	state string
	run   func(s *session, b *benchmark) error
	// keys makes the keys that are looked up; found is how many of them are there.
	keys func(w *work) (keys *data.Keys, found int)
	// modes: done in every way to look up keys that the store has.
	modes bool
}

// benchmarks lists the workloads. The names are db_bench's where it has one.
var benchmarks = []benchmark{
	{name: "fillseq", title: "writes in the order of the keys", kind: fills, state: "settled", run: runFill},
	{name: "fillrandom", title: "writes in random order", kind: fills, state: "settled", run: runFill},
	{name: "fillsync", title: "writes in random order, each waits for the disk", kind: fills, state: "settled", run: runFill},
	{name: "overwrite", title: "writes of keys that are there, in random order", kind: writes, run: runOverwrite, state: "overwritten"},
	{name: "sustained", title: "five times as many writes of keys that are there, in random order, each timed", kind: writes, run: runSustained, state: "overwritten"},
	{name: "freshen", title: "one key in fifty written again and flushed", kind: writes, run: runFreshen, state: "fresh"},
	{name: "deleterandom", title: "one key in ten deleted, in random order", kind: writes, run: runDelete, state: "deleted"},
	{name: "compact", title: "compaction of everything", kind: writes, run: runCompact, state: "compacted"},

	{name: "readrandom", title: "lookups of present keys", kind: reads, run: runGets, keys: presentKeys, modes: true},
	{name: "readmissing", title: "lookups of absent keys between present ones", kind: reads, run: runGets, keys: absentKeys, modes: true},
	{name: "readhot", title: "lookups of present keys in 1 % of them", kind: reads, run: runGets, keys: hotKeys},
	{name: "multiread", title: "lookups of present keys in batches", kind: reads, run: runMany, keys: presentKeys},
	{name: "multimissing", title: "lookups of absent keys in batches", kind: reads, run: runMany, keys: absentKeys},
	{name: "readseq", title: "scan of everything", kind: reads, run: runScan},
	{name: "readreverse", title: "scan of everything, backward", kind: reads, run: runScan},
	{name: "seekrandom", title: "seek and read on, one iterator", kind: reads, run: runSeek, keys: presentKeys},
	{name: "readwhilewriting", title: "lookups of present keys while another thread writes", kind: writes, run: runReadWhileWriting, keys: presentKeys},
	{name: "open", title: "open the store", kind: opens, run: runOpen},

	{name: "absent-outside", title: "lookups of keys before the first and after the last", kind: reads, run: runGets, keys: outsideKeys},
	{name: "absent-zipf", title: "lookups of absent keys, few of them often", kind: reads, run: runGets, keys: zipfAbsentKeys},
	{name: "absent-deleted", title: "lookups of keys that were deleted", kind: reads, run: runGets, keys: deletedKeys},
	{name: "absent-mix10", title: "lookups, 10 % of keys present", kind: reads, run: runGets, keys: mixedKeys(10)},
	{name: "absent-mix50", title: "lookups, 50 % of keys present", kind: reads, run: runGets, keys: mixedKeys(50)},
	{name: "absent-mix90", title: "lookups, 90 % of keys present", kind: reads, run: runGets, keys: mixedKeys(90)},

	{name: "ycsb-a", title: "YCSB A: 50 % reads, 50 % updates, Zipf", kind: writes, run: runYCSB, state: "ycsb"},
	{name: "ycsb-b", title: "YCSB B: 95 % reads, 5 % updates, Zipf", kind: writes, run: runYCSB, state: "ycsb"},
	{name: "ycsb-c", title: "YCSB C: reads, Zipf", kind: writes, run: runYCSB, state: "ycsb"},
	{name: "ycsb-d", title: "YCSB D: 95 % reads of the latest, 5 % inserts", kind: writes, run: runYCSB, state: "ycsb"},
	{name: "ycsb-e", title: "YCSB E: 95 % scans of up to 100, 5 % inserts", kind: writes, run: runYCSB, state: "ycsb"},
	{name: "ycsb-f", title: "YCSB F: 50 % reads, 50 % read, change, write, Zipf", kind: writes, run: runYCSB, state: "ycsb"},
}

// groups are names that stand for several benchmarks. With writes among them
// they leave the store changed.
var groups = map[string]string{
	"absent": "readmissing,absent-outside,absent-zipf,absent-mix10,absent-mix50,absent-mix90",
	"ycsb":   "ycsb-a,ycsb-b,ycsb-c,ycsb-f,ycsb-d,ycsb-e",
}

// Names returns the benchmarks and what each does.
func Names() [][2]string {
	var names [][2]string
	for _, b := range benchmarks {
		names = append(names, [2]string{b.name, b.title})
	}
	for _, g := range []string{"absent", "ycsb"} {
		names = append(names, [2]string{g, groups[g]})
	}
	return names
}

// Title says what a benchmark does.
func Title(name string) string {
	for _, b := range benchmarks {
		if b.name == name {
			return b.title
		}
	}
	return name
}

// Expand replaces groups and checks the names.
func Expand(names []string) ([]string, error) {
	var all []string
	for _, name := range names {
		if g, ok := groups[name]; ok {
			all = append(all, strings.Split(g, ",")...)
			continue
		}
		if !slices.ContainsFunc(benchmarks, func(b benchmark) bool { return b.name == name }) {
			return nil, fmt.Errorf("benchmark %q is unknown", name)
		}
		all = append(all, name)
	}
	return all, nil
}

// segment is a run of benchmarks on a store that stays open; or one that changes it.
type segment struct {
	kind       kind
	benchmarks []*benchmark
}

// segments splits names, which Expand has checked: reads that follow each other
// share a segment.
func segments(names []string) []segment {
	var list []segment
	for _, name := range names {
		i := slices.IndexFunc(benchmarks, func(b benchmark) bool { return b.name == name })
		b := &benchmarks[i]
		if n := len(list); b.kind == reads && n > 0 && list[n-1].kind == reads {
			list[n-1].benchmarks = append(list[n-1].benchmarks, b)
			continue
		}
		list = append(list, segment{b.kind, []*benchmark{b}})
	}
	return list
}
