package alone

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift/bench/data"
)

// batchSize is the number of keys in a batch of probes.
const batchSize = 32

// keyList holds keys to probe. Their number is a power of two, so that one can
// be picked by masking a random number.
type keyList [][]byte

func newKeyList(n int, f func(dst []byte, i int) []byte) keyList {
	keys := data.Collect(n, f)
	list := make(keyList, n)
	for i := range list {
		list[i] = keys.At(i)
	}
	return list
}

// draw is a step of a random number generator (xorshift64, Marsaglia 2003). It takes about a
// nanosecond.
func draw(x uint64) uint64 {
	x ^= x << 13
	x ^= x >> 7
	return x ^ x<<17
}

// pick maps the upper half of x to a number below n.
func pick(x uint64, n int) int { return int(x >> 32 * uint64(n) >> 32) }

// hotLoop returns the nanoseconds per probe of one filter, in a loop.
func hotLoop(f built, keys keyList, probes int) float64 {
	positive := 0
	start := time.Now()
	for done := 0; done < probes; done += len(keys) {
		for _, k := range keys {
			if f.mayContain(k) {
				positive++
			}
		}
	}
	took := time.Since(start)
	runtime.KeepAlive(positive)
	return perProbe(took, (probes+len(keys)-1)/len(keys)*len(keys))
}

func perProbe(d time.Duration, n int) float64 { return float64(d.Nanoseconds()) / float64(n) }

// hotBatches is hotLoop with batches.
func hotBatches(f batcher, keys keyList, probes int) float64 {
	var positive [batchSize]bool
	done := 0
	start := time.Now()
	for done < probes {
		for from := 0; from+batchSize <= len(keys); from += batchSize {
			f.mayContainMany(keys[from:from+batchSize], positive[:])
			done += batchSize
		}
	}
	return perProbe(time.Since(start), done)
}

// coldLoop probes random filters out of many in a loop: the CPU may start a probe before the
// previous one has finished.
func coldLoop(filters []built, keys keyList, probes int) float64 {
	positive, x, mask := 0, uint64(88172645463325252), uint64(len(keys)-1)
	start := time.Now()
	for range probes {
		x = draw(x)
		if filters[pick(x, len(filters))].mayContain(keys[x&mask]) {
			positive++
		}
	}
	took := time.Since(start)
	runtime.KeepAlive(positive)
	return perProbe(took, probes)
}

var barrier atomic.Uint64

// coldIsolated probes random filters out of many one at a time: an atomic addition keeps the
// CPU from starting a probe before the previous one has finished.
func coldIsolated(filters []built, keys keyList, probes int) float64 {
	x, mask := uint64(88172645463325252), uint64(len(keys)-1)
	start := time.Now()
	for range probes {
		x = draw(x)
		if filters[pick(x, len(filters))].mayContain(keys[x&mask]) {
			barrier.Add(1)
		} else {
			barrier.Add(2)
		}
	}
	took := time.Since(start)
	start = time.Now()
	for range probes {
		x = draw(x)
		barrier.Add(x & 1)
	}
	empty := time.Since(start)
	return max(0, perProbe(took-empty, probes))
}

// coldBatches probes random filters out of many, each for a batch of keys.
func coldBatches(filters []built, keys keyList, probes int) float64 {
	x := uint64(88172645463325252)
	places := len(keys) / batchSize
	var positive [batchSize]bool
	start := time.Now()
	for range probes / batchSize {
		x = draw(x)
		from := int(x%uint64(places)) * batchSize
		filters[pick(x, len(filters))].(batcher).mayContainMany(keys[from:from+batchSize], positive[:])
	}
	return perProbe(time.Since(start), probes/batchSize*batchSize)
}

// copies returns clones of a filter that together take at least the given number of bytes.
func copies(f built, bytes int64) ([]built, error) {
	n := int(max(2, bytes/max(1, f.bits()/8)))
	list := make([]built, n)
	for i := range list {
		var err error
		if list[i], err = f.clone(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// randomLines measures memory latency: nanoseconds per random cache line of a buffer, if
// each address depends on the previous line, and if none does.
func randomLines(bytes, reads int) (dependent, independent float64) {
	buf := make([]uint64, bytes/8)
	lines := len(buf) / (lineBytes / 8)
	for i := range lines {
		buf[i*(lineBytes/8)] = data.Mix(uint64(i))
	}
	at := uint64(1)
	start := time.Now()
	for range reads {
		at = draw(at ^ buf[pick(at, lines)*(lineBytes/8)])
	}
	dependent = perProbe(time.Since(start), reads)
	x, sum := at|1, uint64(0)
	start = time.Now()
	for range reads {
		x = draw(x)
		sum += buf[pick(x, lines)*(lineBytes/8)]
	}
	independent = perProbe(time.Since(start), reads)
	runtime.KeepAlive(sum)
	return dependent, independent
}
