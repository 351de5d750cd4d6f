package result

import "slices"

// Unit is a unit of measurement.
type Unit struct {
	Name  string // in JSON, CSV and benchstat's format
	Title string
	// Better is +1 if more is better, -1 if less is better, 0 if neither.
	Better int
}

// The units.
const (
	OpsPerSec    = "ops/s"
	EntriesPerS  = "entries/s"
	QuiescedPerS = "quiesced-ops/s"
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
	Probes       = "asked/op"
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

// Units lists all units in the order in which they are shown.
var Units = []Unit{
	{OpsPerSec, "operations per second", +1},
	{EntriesPerS, "entries per second", +1},
	{QuiescedPerS, "operations per second, background work included", +1},
	{CPU, "CPU time per operation, user and system, all threads, µs", -1},
	{P50, "median latency, ns", -1},
	{P99, "99th percentile of latency, ns", -1},
	{P999, "99.9th percentile of latency, ns", -1},
	{P9999, "99.99th percentile of latency, ns", -1},
	{MaxLatency, "maximum latency, ns", -1},
	{BlockReads, "blocks read per 1,000 operations", -1},
	{ReadBytes, "bytes of blocks read per operation", -1},
	{ReadCalls, "read calls to the operating system per 1,000 operations", -1},
	{IOBytes, "bytes read by read calls per operation; pages of mapped files do not count", -1},
	{Allocs, "allocations on Go's heap per operation", -1},
	{AllocBytes, "bytes allocated on Go's heap per operation", -1},
	{WriteAmp, "bytes written to files per byte of keys and values", -1},
	{Space, "bytes on disk per key", -1},
	{Peak, "peak resident memory without the benchmark's own, mapped files included, MB", -1},
	{FilterBytes, "size of all filters, bytes", -1},
	{OpenTime, "time to open, ms", -1},
	{Probes, "filter probes per operation", 0},
	{Useful, "negative filter probes per operation", 0},
	{TruePos, "true positives of filters per operation", 0},
	{FalsePos, "false positives of filters per operation", -1},
	{Others, "share of the machine's CPU time that other programs used", 0},
	{BitsPerKey, "bits per key", -1},
	{FPR, "false positive rate", -1},
	{OverLimit, "bits per key over log2(1/FPR), the lower bound for any filter", -1},
	{Build, "build time, hashing included, ns per key", -1},
	{HotAbsent, "probe for an absent key, in cache, ns", -1},
	{HotPresent, "probe for a present key, in cache, ns", -1},
	{HotBatch, "probe for an absent key in batches, in cache, ns", -1},
	{ColdAbsent, "probe for an absent key, many filters out of cache, in a loop, ns", -1},
	{ColdPresent, "probe for a present key, many filters out of cache, in a loop, ns", -1},
	{ColdIsolated, "probe for an absent key, many filters out of cache, each after the previous one has returned, ns", -1},
	{ColdBatch, "probe for an absent key, many filters out of cache, in batches, ns", -1},
	{BigAbsent, "probe for an absent key, few large filters out of cache, in a loop, ns", -1},
	{BigBatch, "probe for an absent key, few large filters out of cache, in batches, ns", -1},
	{Single, "probe of one filter of this size for an absent key, in a loop, ns", -1},
	{Moved, "bytes of filters read into memory per second", -1},
	{Dependent, "read of a random cache line of memory whose address depends on the previous one, ns", -1},
	{Independent, "read of a random cache line of memory whose address does not, ns", -1},
}

// UnitOf returns the unit with the given name.
func UnitOf(name string) Unit {
	if i := slices.IndexFunc(Units, func(u Unit) bool { return u.Name == name }); i >= 0 {
		return Units[i]
	}
	return Unit{Name: name, Title: name}
}
