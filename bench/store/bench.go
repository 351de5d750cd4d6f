package store

import (
	"fmt"
	"slices"
	"strings"

	"github.com/siftdb/sift/bench/data"
)

// kind is the kind of a benchmark.
type kind int

const (
	fills  kind = iota // fills an empty store
	writes             // changes an existing store
	reads              // does not change the store
	opens              // opens the store itself
)

// benchmark is a workload.
type benchmark struct {
	name  string
	title string
	kind  kind
	// state is the state of the store afterwards; "" if unchanged.
	state string
	run   func(s *session, b *benchmark) error
	// keys returns the keys to look up; found is how many of them are present.
	keys func(w *work) (keys *data.Keys, found int)
	// modes: run in every lookup mode of the store.
	modes bool
}

// benchmarks lists the workloads, with db_bench's names where it has them.
var benchmarks = []benchmark{
	{name: "fillseq", title: "writes in key order", kind: fills, state: "quiesced", run: runFill},
	{name: "fillrandom", title: "writes in random order", kind: fills, state: "quiesced", run: runFill},
	{name: "fillsync", title: "writes in random order, each waiting for the disk", kind: fills, state: "quiesced", run: runFill},
	{name: "overwrite", title: "overwrites of all keys in random order", kind: writes, run: runOverwrite, state: "overwritten"},
	{name: "sustained", title: "five overwrites of each key, in random order, each timed", kind: writes, run: runSustained, state: "overwritten"},
	{name: "freshen", title: "overwrites of one key in fifty, then a flush", kind: writes, run: runFreshen, state: "fresh"},
	{name: "deleterandom", title: "deletes of one key in ten, in random order", kind: writes, run: runDelete, state: "deleted"},
	{name: "compact", title: "full compaction", kind: writes, run: runCompact, state: "compacted"},

	{name: "readrandom", title: "lookups of present keys", kind: reads, run: runGets, keys: presentKeys, modes: true},
	{name: "readmissing", title: "lookups of absent keys between present ones", kind: reads, run: runGets, keys: absentKeys, modes: true},
	{name: "readhot", title: "lookups of present keys among 1% of all keys", kind: reads, run: runGets, keys: hotKeys, modes: true},
	{name: "multiread", title: "lookups of present keys in batches", kind: reads, run: runMany, keys: presentKeys, modes: true},
	{name: "multimissing", title: "lookups of absent keys in batches", kind: reads, run: runMany, keys: absentKeys, modes: true},
	{name: "readseq", title: "full scan", kind: reads, run: runScan},
	{name: "readreverse", title: "full scan, backward", kind: reads, run: runScan},
	{name: "seekrandom", title: "seeks and short scans with one iterator", kind: reads, run: runSeek, keys: presentKeys},
	{name: "readwhilewriting", title: "lookups of present keys while another thread writes", kind: writes, run: runReadWhileWriting, keys: presentKeys},
	{name: "open", title: "opening the store", kind: opens, run: runOpen},

	{name: "absent-outside", title: "lookups of keys before the first and after the last", kind: reads, run: runGets, keys: outsideKeys, modes: true},
	{name: "absent-zipf", title: "lookups of absent keys, Zipf", kind: reads, run: runGets, keys: zipfAbsentKeys, modes: true},
	{name: "absent-deleted", title: "lookups of keys that were deleted", kind: reads, run: runGets, keys: deletedKeys, modes: true},
	{name: "absent-mix10", title: "lookups, 10% of keys present", kind: reads, run: runGets, keys: mixedKeys(10), modes: true},
	{name: "absent-mix50", title: "lookups, 50% of keys present", kind: reads, run: runGets, keys: mixedKeys(50), modes: true},
	{name: "absent-mix90", title: "lookups, 90% of keys present", kind: reads, run: runGets, keys: mixedKeys(90), modes: true},

	{name: "ycsb-a", title: "YCSB A: 50% reads, 50% updates, Zipf", kind: writes, run: runYCSB, state: "ycsb"},
	{name: "ycsb-b", title: "YCSB B: 95% reads, 5% updates, Zipf", kind: writes, run: runYCSB, state: "ycsb"},
	{name: "ycsb-c", title: "YCSB C: reads, Zipf", kind: writes, run: runYCSB, state: "ycsb"},
	{name: "ycsb-d", title: "YCSB D: 95% reads of the latest keys, 5% inserts", kind: writes, run: runYCSB, state: "ycsb"},
	{name: "ycsb-e", title: "YCSB E: 95% scans of up to 100 entries, 5% inserts", kind: writes, run: runYCSB, state: "ycsb"},
	{name: "ycsb-f", title: "YCSB F: 50% reads, 50% read-modify-writes, Zipf", kind: writes, run: runYCSB, state: "ycsb"},
}

// groups are names for several benchmarks. Those with writes leave the store
// changed.
var groups = map[string]string{
	"absent": "readmissing,absent-outside,absent-zipf,absent-mix10,absent-mix50,absent-mix90",
	"ycsb":   "ycsb-a,ycsb-b,ycsb-c,ycsb-f,ycsb-d,ycsb-e",
}

// Names returns the names and titles of all benchmarks, then the groups.
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

// Title returns the title of a benchmark.
func Title(name string) string {
	for _, b := range benchmarks {
		if b.name == name {
			return b.title
		}
	}
	return name
}

// Expand replaces groups with their benchmarks and checks the names.
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

// segment is a list of reading benchmarks that run while the store stays open, or a
// single other benchmark.
type segment struct {
	kind       kind
	benchmarks []*benchmark
}

// segments splits names, which Expand has checked, into segments: consecutive reads
// share one.
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
