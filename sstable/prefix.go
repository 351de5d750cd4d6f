package sstable

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
)

// Prefixer is a prefix extractor: it determines which part of a key is its prefix. If filters
// contain prefixes as well as keys, a scan of the keys with one prefix skips the tables whose
// filters exclude the prefix.
//
// A Prefixer must be safe for concurrent use, and must satisfy this rule, or scans miss keys:
// if PrefixLen(k) is n >= 0, then PrefixLen is n for every key that begins with k[:n].
// Only EachPrefix is exempt.
type Prefixer interface {
	// Name identifies the Prefixer. It is stored in tables, and must change when PrefixLen does.
	Name() string
	// PrefixLen returns the length of the key's prefix, or -1 if it has none.
	PrefixLen(key []byte) int
}

// FixedPrefix returns the Prefixer whose prefixes are the first n bytes of keys. Shorter keys
// have no prefix. An n below 1 is treated as 1.
func FixedPrefix(n int) Prefixer { return fixedPrefix(max(n, 1)) }

type fixedPrefix int

func (p fixedPrefix) Name() string { return fmt.Sprintf("fixed(%d)", int(p)) }

func (p fixedPrefix) PrefixLen(key []byte) int {
	if len(key) < int(p) {
		return -1
	}
	return int(p)
}

// PrefixUpTo returns the Prefixer whose prefixes end with the n-th delimiter of keys: with '/' and
// 1 the prefix of "user/17/name" is "user/", with 2 it is "user/17/". Keys with fewer delimiters
// have no prefix. An n below 1 is treated as 1.
func PrefixUpTo(delimiter byte, n int) Prefixer { return prefixUpTo{delimiter, max(n, 1)} }

type prefixUpTo struct {
	delimiter byte
	n         int
}

func (p prefixUpTo) Name() string { return fmt.Sprintf("upto(0x%02x,%d)", p.delimiter, p.n) }

func (p prefixUpTo) PrefixLen(key []byte) int {
	end := 0
	for range p.n {
		i := bytes.IndexByte(key[end:], p.delimiter)
		if i < 0 {
			return -1
		}
		end += i + 1
	}
	return end
}

// EachPrefix returns a Prefixer for paths and URLs: filters contain each prefix of a key that ends
// with the delimiter. With '/' these are "user/" and "user/17/" for "user/17/name". So scans at any
// depth can skip tables. PrefixLen returns the length of the longest of these prefixes, which
// violates the rule of Prefixer: only this package supports that. Neighboring keys share most of
// their prefixes, so they add few entries to a filter: for URLs, one per two keys. A table in which
// a key has more than 64 prefixes that the key before it lacks is not skipped.
func EachPrefix(delimiter byte) Prefixer { return eachPrefix{delimiter} }

type eachPrefix struct{ delimiter byte }

func (p eachPrefix) Name() string { return fmt.Sprintf("each(0x%02x)", p.delimiter) }

func (p eachPrefix) PrefixLen(key []byte) int {
	if i := bytes.LastIndexByte(key, p.delimiter); i >= 0 {
		return i + 1
	}
	return -1
}

// from calls f with the prefixes of a key that are longer than n bytes.
func (p eachPrefix) from(n int, key []byte, f func(prefix []byte)) {
	for {
		i := bytes.IndexByte(key[n:], p.delimiter)
		if i < 0 {
			return
		}
		n += i + 1
		f(key[:n])
	}
}

// RangePrefixLen returns the length of a prefix of lower that all keys in [lower, upper) have, and
// that p extracts from each of them: if a filter with p's prefixes excludes it, no key of the table
// is in the range. It returns -1 if there is none, and the longest if there are several. A nil
// bound is the empty key, not a missing bound.
func RangePrefixLen(p Prefixer, lower, upper []byte) int {
	n := p.PrefixLen(lower)
	switch {
	case n < 0 || n > len(lower):
		return -1
	case rangeWithin(lower[:n], upper):
		return n
	}
	each, ok := p.(eachPrefix)
	if !ok {
		return -1
	}
	shared := base.CommonPrefix(lower, upper)
	for _, most := range [...]int{shared + 1, shared} { // shared + 1: upper may be the end of a prefix
		if n := each.PrefixLen(lower[:min(most, len(lower))]); n >= 0 && rangeWithin(lower[:n], upper) {
			return n
		}
	}
	return -1
}

// rangeWithin reports whether all keys from one with the prefix up to upper, exclusive, have the
// prefix.
func rangeWithin(prefix, upper []byte) bool {
	if bytes.HasPrefix(upper, prefix) {
		return true
	}
	var room [64]byte
	end := base.AppendPrefixEnd(room[:0], prefix)
	return end == nil || bytes.Compare(upper, end) <= 0
}

// prefixerNamed returns the Prefixer of this package with that name, or nil.
func prefixerNamed(name string) Prefixer {
	kind, args, ok := strings.Cut(strings.TrimSuffix(name, ")"), "(")
	if !ok {
		return nil
	}
	var p Prefixer
	switch delimiter, n, _ := strings.Cut(args, ","); kind {
	case "fixed":
		count, _ := strconv.Atoi(args)
		p = FixedPrefix(count)
	case "upto":
		b, _ := strconv.ParseUint(delimiter, 0, 8)
		count, _ := strconv.Atoi(n)
		p = PrefixUpTo(byte(b), count)
	case "each":
		b, _ := strconv.ParseUint(args, 0, 8)
		p = EachPrefix(byte(b))
	}
	if p == nil || p.Name() != name {
		return nil
	}
	return p
}

// prefixesFrom calls f with the prefixes of a key. If p is an EachPrefix, it skips prefixes of up
// to n bytes.
func prefixesFrom(n int, p Prefixer, key []byte, f func(prefix []byte)) {
	if each, ok := p.(eachPrefix); ok {
		each.from(n, key, f)
	} else if n := p.PrefixLen(key); n >= 0 && n <= len(key) {
		f(key[:n])
	}
}

// maxNewPrefixes is the maximum number of prefixes that EachPrefix adds for a key. It bounds the
// time of hashing them, which would otherwise grow with the square of a key's length.
const maxNewPrefixes = 64

// addPrefixes adds the prefixes of a key to the filter, except those that it has added for the
// previous key.
func (w *Writer) addPrefixes(userKey []byte) {
	if each, ok := w.opts.Prefix.(eachPrefix); ok {
		shared := base.CommonPrefix(w.prefix, userKey)
		if w.unprefixed = w.unprefixed || bytes.Count(userKey[shared:], []byte{each.delimiter}) > maxNewPrefixes; w.unprefixed {
			return
		}
		each.from(shared, userKey, func(prefix []byte) {
			w.prefixed = true
			w.filter.Add(filter.NewKey(prefix))
		})
		w.prefix = append(w.prefix[:0], userKey...)
		return
	}
	prefixesFrom(0, w.opts.Prefix, userKey, func(prefix []byte) {
		if w.prefixed && bytes.Equal(prefix, w.prefix) {
			return
		}
		w.prefix, w.prefixed = append(w.prefix[:0], prefix...), true
		w.filter.Add(filter.NewKey(prefix))
	})
}

// PrefixFilter returns the name of the Prefixer whose prefixes the table's filter contains, or ""
// if it contains none. For such a prefix MayContain reports false only if no key of the table has
// it.
func (r *Reader) PrefixFilter() string {
	if r.props == nil {
		return ""
	}
	return r.props.FilterPrefix
}
