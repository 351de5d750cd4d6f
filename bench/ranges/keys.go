// Package ranges measures range filters, alone and in stores: their false positive rates,
// and the cost of scans of empty ranges.
package ranges

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Set is a set of keys, with the ranges to look up.
type Set struct {
	Name string
	Keys [][]byte // ascending
	Drop int      // the low-order bits that the range filter ignores
	// Range returns a random range; length is in the units of the keys.
	Range func(rng *rand.Rand, length uint64) (from, to []byte)
}

// has reports whether a key lies in [from, to).
func (s *Set) has(from, to []byte) bool {
	i, _ := slices.BinarySearchFunc(s.Keys, from, bytes.Compare)
	return i < len(s.Keys) && bytes.Compare(s.Keys[i], to) < 0
}

func sorted(keys [][]byte) [][]byte {
	slices.SortFunc(keys, bytes.Compare)
	return slices.CompactFunc(keys, bytes.Equal)
}

func number(x uint64) []byte { return binary.BigEndian.AppendUint64(nil, x) }

// numbers returns a set of 8-byte numbers; start returns a random start of a range.
func numbers(name string, keys [][]byte, start func(rng *rand.Rand, keys [][]byte) uint64) *Set {
	keys = sorted(keys)
	return &Set{Name: name, Keys: keys, Range: func(rng *rand.Rand, length uint64) (from, to []byte) {
		x := start(rng, keys)
		return number(x), number(x + length)
	}}
}

func keyOf(rng *rand.Rand, keys [][]byte) uint64 {
	return binary.BigEndian.Uint64(keys[rng.IntN(len(keys))])
}

// Uniform returns random numbers, with ranges that start anywhere.
func Uniform(n int) *Set {
	rng := rand.New(rand.NewPCG(1, 1))
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = number(rng.Uint64() >> 1)
	}
	return numbers("uniform", keys, func(rng *rand.Rand, _ [][]byte) uint64 { return rng.Uint64() >> 1 })
}

// Correlated returns random numbers, with ranges that start right after a key.
func Correlated(n int) *Set {
	s := Uniform(n)
	return numbers("right after a key", s.Keys, func(rng *rand.Rand, keys [][]byte) uint64 { return keyOf(rng, keys) + 1 })
}

// Clustered returns numbers in clusters of a thousand, with ranges within the clusters.
func Clustered(n int) *Set {
	rng := rand.New(rand.NewPCG(1, 2))
	var keys [][]byte
	for len(keys) < n {
		x := rng.Uint64() >> 1
		for range 1000 {
			x += 1 + rng.Uint64N(1<<16)
			keys = append(keys, number(x))
		}
	}
	return numbers("within clusters", keys, func(rng *rand.Rand, keys [][]byte) uint64 {
		return keyOf(rng, keys) + 1 + rng.Uint64N(1<<15)
	})
}

// EntityTime returns a hundred keys per device, made of the device and a time in decimal
// digits, with ranges of times that start right after a key.
func EntityTime(n int) *Set {
	rng := rand.New(rand.NewPCG(1, 3))
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "device/%05d/%010d", i/100, rng.IntN(1_000_000_000))
	}
	return numbered("`device/00042/` and ten digits", sorted(keys), -10, 10, 10)
}

// numbered returns a set of keys that hold a number of the given digits at offset at,
// from the end if at is negative. Its ranges are ranges of that number and start right
// after a key.
func numbered(name string, keys [][]byte, at, digits, base int) *Set {
	return &Set{Name: name, Keys: keys, Range: func(rng *rand.Rand, length uint64) (from, to []byte) {
		k := keys[rng.IntN(len(keys))]
		at := at
		if at < 0 {
			at += len(k)
		}
		prefix := k[:at]
		x, err := strconv.ParseUint(string(k[at:at+digits]), base, 64)
		if err != nil {
			panic(err)
		}
		with := func(x uint64) []byte {
			text := strconv.FormatUint(x, base)
			text = strings.Repeat("0", max(0, digits-len(text))) + text
			return append(bytes.Clone(prefix), text...)
		}
		return with(x + 1), with(x + 1 + length)
	}}
}

// UUIDs returns random UUIDs, with ranges of their first 8 digits that start right after
// a key.
func UUIDs(n int) *Set {
	rng := rand.New(rand.NewPCG(1, 4))
	keys := make([][]byte, n)
	for i := range keys {
		a, b := rng.Uint64(), rng.Uint64()
		keys[i] = fmt.Appendf(nil, "%08x-%04x-4%03x-%04x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>48&0x3fff|0x8000, b&(1<<48-1))
	}
	s := numbered("UUIDs, ranges of 8 digits, 46 bits dropped", sorted(keys), 0, 8, 16)
	s.Drop = 46
	return s
}

// Lines returns the lines that open a block in the Go files below root, as path and line
// number, with ranges of lines that start right after a key.
func Lines(root string, n int) (*Set, error) {
	var keys [][]byte
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || len(keys) >= n {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return nil // a link to a directory with such a name
		}
		name := strings.TrimPrefix(path, root)
		for i, line := range bytes.Split(content, []byte("\n")) {
			if bytes.HasSuffix(line, []byte("{")) {
				keys = append(keys, fmt.Appendf(nil, "%s:%06d", name, i+1))
			}
		}
		return nil
	})
	if err != nil || len(keys) == 0 {
		return nil, fmt.Errorf("no Go files in %s: %v", root, err)
	}
	return numbered("`path:line`", sorted(keys), -6, 6, 10), nil
}

var urlPattern = regexp.MustCompile(`https?://[A-Za-z0-9./_~%#?=&+-]{4,}`)

// URLs returns the URLs in the text files below roots, with ranges of names below one;
// ranges of length above 10 are instead ranges of names beside it.
func URLs(n int, roots ...string) (*Set, error) {
	var keys [][]byte
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || len(keys) >= n {
				return nil
			}
			switch filepath.Ext(path) {
			case ".go", ".md", ".txt", ".html", ".json", ".yaml", ".proto":
			default:
				return nil
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return nil
			}
			keys = append(keys, urlPattern.FindAll(content, -1)...)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if keys = sorted(keys); len(keys) == 0 {
		return nil, fmt.Errorf("no URLs in %v", roots)
	}
	return &Set{Name: "URLs: below one, or next to it", Keys: keys, Range: func(rng *rand.Rand, length uint64) (from, to []byte) {
		k := keys[rng.IntN(len(keys))]
		from = append(bytes.Clone(k), '/')
		if length > 10 { // other names in the same directory
			from = append(bytes.Clone(k[:len(k)-1]), k[len(k)-1]+1)
		}
		to = bytes.Clone(from)
		to[len(to)-1]++
		return from, to
	}}, nil
}
