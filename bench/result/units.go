package result

import "slices"

// Unit is something that is measured.
type Unit struct {
	Name  string // as in JSON, CSV and benchstat's lines
	Title string
	// Better is +1 where more is better, -1 where less is, 0 where neither is.
	Better int
}

// The units.
const (
	OpsPerSec    = "ops/s"
	EntriesPerS  = "entries/s"
	SettledPerS  = "settled-ops/s"
	CPU          = "cpu-us/op"
	P50          = "p50-ns"
	P99          = "p99-ns"
	P999         = "p99.9-ns"
	P9999        = "p99.99-ns"
	MaxLatency   = "max-ns"
	BlockReads   = "reads/kop"
	ReadBytes    = "read-B/op"
	ReadCalls    = "syscr/kop"
	IOBytes      = "io-B/op"
	Allocs       = "allocs/op"
	AllocBytes   = "alloc-B/op"
	WriteAmp     = "write-amp"
	Space        = "space-B/key"
	Peak         = "peak-MB"
	FilterBytes  = "filter-B"
	OpenTime     = "open-ms"
	Asked        = "asked/op"
	Useful       = "useful/op"
	TruePos      = "true-pos/op"
	FalsePos     = "false-pos/op"
	Others       = "others-cpu"
	BitsPerKey   = "bits/key"
	FPR          = "fpr"
	OverLimit    = "x-limit"
	Build        = "build-ns/key"
	HotAbsent    = "hot-absent-ns"
	HotPresent   = "hot-present-ns"
	HotBatch     = "hot-batch-ns"
	ColdAbsent   = "cold-absent-ns"
	ColdPresent  = "cold-present-ns"
	ColdBatch    = "cold-batch-ns"
	ColdIsolated = "cold-isolated-ns"
	BigAbsent    = "big-absent-ns"
	BigBatch     = "big-batch-ns"
	Dependent    = "dependent-line-ns"
	Independent  = "independent-line-ns"
	Single       = "single-absent-ns"
	Moved        = "moved-B/s"
)

// Units lists the units in the order in which they are shown.
var Units = []Unit{
	{OpsPerSec, "operations a second", +1},
	{EntriesPerS, "entries a second", +1},
	{SettledPerS, "operations a second, work in the background included", +1},
	{CPU, "processor time an operation, user and system, all threads, µs", -1},
	{P50, "latency that half of the operations do not exceed, ns", -1},
	{P99, "latency that 99 % do not exceed, ns", -1},
	{P999, "latency that 99.9 % do not exceed, ns", -1},
	{P9999, "latency that 99.99 % do not exceed, ns", -1},
	{MaxLatency, "longest latency, ns", -1},
	{BlockReads, "blocks read per 1,000 operations", -1},
	{ReadBytes, "bytes of blocks read an operation", -1},
	{ReadCalls, "read calls to the operating system per 1,000 operations", -1},
	{IOBytes, "bytes that read calls brought an operation; pages of mapped files do not count", -1},
	{Allocs, "allocations of Go's heap an operation", -1},
	{AllocBytes, "bytes allocated on Go's heap an operation", -1},
	{WriteAmp, "bytes written to files for each byte of keys and values", -1},
	{Space, "bytes on disk for each key", -1},
	{Peak, "peak of resident memory above the benchmark's own, mapped files included, MB", -1},
	{FilterBytes, "bytes of filters", -1},
	{OpenTime, "time to open, ms", -1},
	{Asked, "questions to filters an operation", 0},
	{Useful, "of these answered no", 0},
	{TruePos, "of these answered maybe, rightly", 0},
	{FalsePos, "of these answered maybe, wrongly", -1},
	{Others, "share of the machine that others used meanwhile", 0},
	{BitsPerKey, "bits per key", -1},
	{FPR, "false positive rate", -1},
	{OverLimit, "bits per key over log2(1/FPR), which no filter can beat", -1},
	{Build, "time to build, hashing included, ns a key", -1},
	{HotAbsent, "probe for an absent key, in cache, ns", -1},
	{HotPresent, "probe for a present key, in cache, ns", -1},
	{HotBatch, "probe for an absent key in batches, in cache, ns", -1},
	{ColdAbsent, "probe for an absent key, many filters out of cache, in a loop, ns", -1},
	{ColdPresent, "probe for a present key, many filters out of cache, in a loop, ns", -1},
	{ColdIsolated, "probe for an absent key, many filters out of cache, each after the one before has answered, ns", -1},
	{ColdBatch, "probe for an absent key, many filters out of cache, in batches, ns", -1},
	{BigAbsent, "probe for an absent key, few large filters out of cache, in a loop, ns", -1},
	{BigBatch, "probe for an absent key, few large filters out of cache, in batches, ns", -1},
	{Single, "probe of one filter of this size for an absent key, in a loop, ns", -1},
	{Moved, "bytes of filters read into memory a second", -1},
	{Dependent, "a random line of memory whose address depends on the one before, ns", -1},
	{Independent, "a random line of memory whose address does not, ns", -1},
}

// UnitOf returns the unit of a name.
func UnitOf(name string) Unit {
	if i := slices.IndexFunc(Units, func(u Unit) bool { return u.Name == name }); i >= 0 {
		return Units[i]
	}
	return Unit{Name: name, Title: name}
}
