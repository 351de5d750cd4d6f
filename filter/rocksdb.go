package filter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"

	"github.com/siftdb/sift/filter/internal/bloom"
)

// The legacy Bloom block of RocksDB's full filters, which pebble writes too,
// family "rocksdb.BuiltinBloomFilter". Integers are little-endian.
//
//	+------------------------+----------+------------+
//	| lines, 64 bytes each   | probes 1 | numLines 4 |
//	+------------------------+----------+------------+
//
// RocksDB writes an odd number of lines. A block over no keys is five zero
// bytes; it is opened as a filter that returns true for every key.
//
// There is no checksum: the table that contains the block has one, and a reader of this
// family trusts the lines. It rejects blocks whose length contradicts numLines, and
// those whose probes are not 1 to 30. So it rejects RocksDB's newer filters, which
// share the name but have 255 in that byte. Unlike this package, RocksDB and pebble
// exclude every key if a block is too short.
//
// The block over the one key "a" at 10 bits per key is 69 bytes, zero but for
//
//	byte 3: 40   byte 10: 20   byte 17: 10   byte 24: 08   byte 54: 01   byte 60: 80
//	byte 64: 06 01 00 00 00
//
// All of this is on disk; do not change.
const (
	rocksdbFamily      = "rocksdb.BuiltinBloomFilter"
	rocksdbTrailerSize = 5
)

// Bounds of RocksDBBloom's bits per key.
const (
	minRocksDBBits = 1
	maxRocksDBBits = 100
)

type rocksdbPolicy struct{ bitsPerKey int }

// RocksDBBloom returns the policy that writes pebble's and RocksDB's legacy Bloom
// filters byte for byte, for tables that those engines read too. bitsPerKey is 1 to
// 100; other values are clamped to these bounds. The filters use Key.Bytes, not
// Key.Hash.
//
// Their hash has only 32 bits, and the probes of a key can coincide. At 10 bits per
// key the FPR is 1.16% for small tables and 1.36% for 10 million keys. More than
// about 12 bits per key gains little. Keys that differ in a few decimal digits can have
// ten times the FPR.
func RocksDBBloom(bitsPerKey int) Policy {
	return rocksdbPolicy{min(max(bitsPerKey, minRocksDBBits), maxRocksDBBits)}
}

func (p rocksdbPolicy) Name() string { return "rocksdb-bloom(" + strconv.Itoa(p.bitsPerKey) + ")" }

func (p rocksdbPolicy) Family() string { return rocksdbFamily }

func (p rocksdbPolicy) NewWriter() Writer {
	return &rocksdbWriter{bitsPerKey: p.bitsPerKey}
}

func (p rocksdbPolicy) Open(units [][]byte) (Reader, error) { return openRocksDB(units) }

func (p rocksdbPolicy) BlockFamily() string { return rocksdbFamily }

func (p rocksdbPolicy) MayContainBlock(block []byte, key Key) bool {
	return rocksdbBlockMayContainBytes(block, key.Bytes)
}

func rocksdbBlockMayContainBytes(block, key []byte) bool {
	data, probes, err := rocksdbLines(block)
	return err != nil || bloom.LegacyMayContainIn(data, probes, bloom.LegacyHash(key))
}

func parseRocksDB(args []string) (Policy, error) {
	if len(args) != 1 {
		return nil, errors.New("want one argument, the bits per key")
	}
	b, err := strconv.Atoi(args[0])
	if err != nil {
		return nil, fmt.Errorf("%q is not a whole number", args[0])
	}
	if b < minRocksDBBits || b > maxRocksDBBits {
		return nil, fmt.Errorf("bits per key %d is outside [%d, %d]", b, minRocksDBBits, maxRocksDBBits)
	}
	return RocksDBBloom(b), nil
}

// rocksdbWriter is the Writer of RocksDBBloom.
type rocksdbWriter struct {
	bitsPerKey int
	hashes     hashList // each of 32 bits
}

func (w *rocksdbWriter) Add(key Key) { w.hashes.add(uint64(bloom.LegacyHash(key.Bytes))) }

func (w *rocksdbWriter) NumKeys() int { return w.hashes.n }

func (w *rocksdbWriter) Finish() ([][]byte, error) {
	defer w.hashes.reset()
	numLines := bloom.LegacyNumLines(w.hashes.n, w.bitsPerKey)
	if numLines > math.MaxUint32 || numLines > (math.MaxInt-2*bloom.LineSize)/bloom.LineSize {
		return nil, errTooManyKeys
	}
	size := int(numLines) * bloom.LineSize
	block := AlignedBytes(size + rocksdbTrailerSize)
	if numLines > 0 {
		probes := bloom.LegacyProbes(w.bitsPerKey)
		w.hashes.each(func(hashes []uint64) { bloom.LegacyBuild(block[:size], hashes, probes) })
		block[size] = byte(probes)
		binary.LittleEndian.PutUint32(block[size+1:], uint32(numLines))
	}
	return [][]byte{block}, nil
}

// rocksdbLines splits a block into its lines and its number of probes. A block
// over no keys has no lines.
func rocksdbLines(block []byte) (data []byte, probes int, err error) {
	size := len(block) - rocksdbTrailerSize
	if size < 0 || size%bloom.LineSize != 0 {
		return nil, 0, damaged("invalid length of a RocksDB Bloom block: %d bytes", len(block))
	}
	probes = int(block[size])
	numLines := binary.LittleEndian.Uint32(block[size+1:])
	if uint64(numLines) != uint64(size/bloom.LineSize) {
		return nil, 0, damaged("%d lines in a RocksDB Bloom block of %d bytes", numLines, len(block))
	}
	if numLines == 0 && probes == 0 {
		return nil, 0, nil
	}
	if numLines == 0 || probes < 1 || probes > bloom.LegacyMaxProbes {
		return nil, 0, damaged("%d probes over %d lines in a RocksDB Bloom block", probes, numLines)
	}
	return block[:size], probes, nil
}

func openRocksDB(units [][]byte) (Reader, error) {
	if len(units) != 1 {
		return nil, damaged("RocksDB Bloom filter with %d units", len(units))
	}
	data, probes, err := rocksdbLines(units[0])
	if err != nil {
		return nil, err
	}
	return &rocksdbReader{filter: bloom.LegacyOver(aligned(data), probes), size: len(units[0])}, nil
}

// rocksdbReader is the Reader of RocksDBBloom.
type rocksdbReader struct {
	filter bloom.Legacy
	size   int
	fpr    atomic.Uint64 // bits of the FPR plus one, or 0 until it is computed
}

func (r *rocksdbReader) MayContain(key Key) bool {
	return r.filter.MayContain(bloom.LegacyHash(key.Bytes))
}

func (r *rocksdbReader) MayContainBytes(key []byte) bool {
	return r.filter.MayContain(bloom.LegacyHash(key))
}

func (r *rocksdbReader) MayContainMany(keys []Key, positive []bool) {
	positive = positive[:len(keys)]
	var hashes [hashBatch]uint32
	for len(keys) > 0 {
		m := min(len(keys), hashBatch)
		for i := range keys[:m] {
			hashes[i] = bloom.LegacyHash(keys[i].Bytes)
		}
		r.filter.MayContainMany(hashes[:m], positive[:m])
		keys, positive = keys[m:], positive[m:]
	}
}

func (r *rocksdbReader) FPR() float64 {
	if b := r.fpr.Load(); b != 0 {
		return math.Float64frombits(b - 1)
	}
	p := r.filter.FPR()
	r.fpr.Store(math.Float64bits(p) + 1)
	return p
}

func (r *rocksdbReader) SizeBytes() int { return r.size }
