package data

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/bits"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Set is a set of keys with a value each. Present keys, those that a load stores, have the numbers
// 0 to Len()-1.
type Set interface {
	// Name describes the set.
	Name() string
	// Len returns the number of present keys.
	Len() int
	// Spare returns the number of keys from Len on that no load stores, for inserts.
	Spare() int
	// Key appends key i, 0 <= i < Len()+Spare().
	Key(dst []byte, i int) []byte
	// Absent appends a key that is never stored, 0 <= i < Len(). It sorts between two present keys,
	// near key i.
	Absent(dst []byte, i int) []byte
	// Value returns the value of key i. It must not be changed.
	Value(i int) []byte
}

// Kinds of made-up keys.
const (
	Decimal   = "decimal"   // 16 digits, as db_bench's; neighbors share most of them
	Random    = "random"    // 16 random bytes
	Ascending = "ascending" // 16 bytes, random distances apart, in ascending order of their numbers
	Text      = "text"      // URLs of some 50 letters with common prefixes, like a web site's
)

// words make up text keys.
var words = [8]string{"article", "author", "catalogue", "comment", "gallery", "product", "review", "user"}

// valuePoolBytes is the approximate number of bytes after which values repeat.
const valuePoolBytes = 1 << 20

// madeUp is a Set of made-up keys.
type madeUp struct {
	kind      string
	n         int
	valueSize int
	pool      []byte
}

// MadeUp returns n keys of a kind, with values of valueSize bytes. ratio is the share of each value
// that is random; the rest repeats it, as with db_bench's --compression_ratio.
func MadeUp(kind string, n, valueSize int, ratio float64) (Set, error) {
	if kind != Decimal && kind != Random && kind != Ascending && kind != Text {
		return nil, fmt.Errorf("the kind of keys must be %s, %s, %s or %s, not %q", Decimal, Random, Ascending, Text, kind)
	}
	if n < 1 || kind != Ascending && n > math.MaxUint32/4 || int64(n) > 1<<40 {
		return nil, fmt.Errorf("%d is not a valid number of keys", n)
	}
	r := Rand(301)
	pieces := max(1, valuePoolBytes/max(1, valueSize))
	pool := make([]byte, 0, pieces*valueSize)
	raw := max(1, int(float64(valueSize)*ratio))
	for range pieces {
		from := len(pool)
		for i := range valueSize {
			if i < raw {
				pool = append(pool, byte(' '+r.IntN(95)))
			} else {
				pool = append(pool, pool[from+i%raw])
			}
		}
	}
	return &madeUp{kind: kind, n: n, valueSize: valueSize, pool: pool}, nil
}

func (s *madeUp) Name() string {
	size := "16"
	if s.kind == Text {
		size = "some 50"
	}
	return fmt.Sprintf("%d %s keys of %s bytes, values of %d bytes", s.n, s.kind, size, s.valueSize)
}

func (s *madeUp) Len() int { return s.n }

func (s *madeUp) Spare() int {
	if s.kind == Ascending {
		return s.n
	}
	return math.MaxUint32/4 - s.n
}

// Stored keys have even numbers, so every odd number lies between two of them.
func (s *madeUp) Key(dst []byte, i int) []byte { return s.append(dst, 2*uint64(i)) }

func (s *madeUp) Absent(dst []byte, i int) []byte { return s.append(dst, 2*uint64(i)+1) }

func (s *madeUp) append(dst []byte, x uint64) []byte {
	switch s.kind {
	case Text:
		h := Mix(x)
		dst = append(dst, "https://www.example.org/"...)
		dst = append(append(dst, words[h%8]...), '/')
		dst = append(append(dst, words[h>>8%8]...), '-')
		dst = append(append(dst, words[h>>16%8]...), '/')
		return strconv.AppendUint(dst, x, 10)
	case Random, Ascending:
		hi, lo := Mix(x), Mix(x^1<<63)
		if s.kind == Ascending {
			width := bits.Len64(4 * uint64(s.n)) // of all numbers, those of absent and spare keys included
			hi = x<<(64-width) | hi>>width
		}
		for shift := 56; shift >= 0; shift -= 8 {
			dst = append(dst, byte(hi>>shift))
		}
		for shift := 56; shift >= 0; shift -= 8 {
			dst = append(dst, byte(lo>>shift))
		}
		return dst
	}
	var digits [16]byte
	for i := len(digits) - 1; i >= 0; i-- {
		digits[i] = byte('0' + x%10)
		x /= 10
	}
	return append(dst, digits[:]...)
}

func (s *madeUp) Value(i int) []byte {
	if s.valueSize == 0 {
		return nil
	}
	from := i * s.valueSize % len(s.pool)
	return s.pool[from : from+s.valueSize : from+s.valueSize]
}

// listed is a Set of keys that were read from files. Nine in ten are present, the tenth is held
// back.
type listed struct {
	name   string
	keys   [][]byte // present, sorted
	values [][]byte // of keys, then of held
	held   [][]byte // sorted
}

// holdBack: a listed set holds back one in holdBack keys.
const holdBack = 10

type entry struct{ key, value []byte }

func newListed(name string, entries []entry, limit int) (Set, error) {
	slices.SortStableFunc(entries, func(a, b entry) int { return bytes.Compare(a.key, b.key) })
	// Of several equal keys, the last one counts.
	kept := entries[:0]
	for i, e := range entries {
		if len(e.key) > 0 && (i+1 == len(entries) || !bytes.Equal(e.key, entries[i+1].key)) {
			kept = append(kept, e)
		}
	}
	if limit > 0 && len(kept) > limit+limit/(holdBack-1) {
		kept = kept[:limit+limit/(holdBack-1)]
	}
	s := &listed{name: name}
	var heldValues [][]byte
	for i, e := range kept {
		if i%holdBack == holdBack/2 {
			s.held = append(s.held, e.key)
			heldValues = append(heldValues, e.value)
			continue
		}
		s.keys = append(s.keys, e.key)
		s.values = append(s.values, e.value)
	}
	s.values = append(s.values, heldValues...)
	if len(s.held) == 0 {
		return nil, fmt.Errorf("%s: too few distinct keys", name)
	}
	return s, nil
}

func (s *listed) Name() string {
	var keyBytes, valueBytes int
	for i, k := range s.keys {
		keyBytes += len(k)
		valueBytes += len(s.values[i])
	}
	n := len(s.keys)
	return fmt.Sprintf("%s: %d keys of %d bytes, values of %d bytes on average", s.name, n, keyBytes/n, valueBytes/n)
}

func (s *listed) Len() int { return len(s.keys) }

func (s *listed) Spare() int { return len(s.held) }

func (s *listed) Key(dst []byte, i int) []byte {
	if i < len(s.keys) {
		return append(dst, s.keys[i]...)
	}
	return append(dst, s.held[i-len(s.keys)]...)
}

func (s *listed) Absent(dst []byte, i int) []byte {
	return append(dst, s.held[min(i/(holdBack-1), len(s.held)-1)]...)
}

func (s *listed) Value(i int) []byte { return s.values[i] }

// GoSource returns the lines of Go's source tree: the key is the file's path and the line's number,
// the value the line. There are at most limit keys, if limit is above 0.
func GoSource(limit int) (Set, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	return sourceTree("Go's source tree", filepath.Join(strings.TrimSpace(string(out)), "src"), limit)
}

func sourceTree(name, root string, limit int) (Set, error) {
	var entries []entry
	errFull := errors.New("enough")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !d.Type().IsRegular() || filepath.Ext(path) != ".go" {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		for i, line := range bytes.Split(content, []byte("\n")) {
			key := fmt.Appendf(nil, "%s:%06d", filepath.ToSlash(rel), i+1)
			entries = append(entries, entry{key, line})
		}
		if limit > 0 && len(entries) > limit+limit/4 {
			return errFull
		}
		return nil
	})
	if err != nil && !errors.Is(err, errFull) {
		return nil, err
	}
	return newListed(name, entries, limit)
}

// TSV returns the lines of a file: the key is the part before the first tab, the value the part
// after it. There are at most limit keys, if limit is above 0.
func TSV(path string, limit int) (Set, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readTSV(filepath.Base(path), f, limit)
}

func readTSV(name string, r io.Reader, limit int) (Set, error) {
	var entries []entry
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<26)
	for lines.Scan() {
		key, value, _ := bytes.Cut(bytes.Clone(lines.Bytes()), []byte("\t"))
		entries = append(entries, entry{key, value})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return newListed(name, entries, limit)
}
