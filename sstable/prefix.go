package sstable

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/siftdb/sift/filter"
)

// Prefixer is a prefix extractor: it says which part of a key is its prefix. A filter that
// also holds prefixes can tell that a table has no key with some prefix, so that a scan over
// that prefix skips the table.
//
// A Prefixer must be safe for concurrent use and must satisfy this rule, or scans miss keys:
// if PrefixLen(k) is n >= 0, then PrefixLen is n for every key that begins with k[:n].
type Prefixer interface {
	// Name is stored in the tables. It must change when PrefixLen does.
	Name() string
	// PrefixLen returns the length of the key's prefix, or -1 if it has none.
	PrefixLen(key []byte) int
}

// FixedPrefix returns the Prefixer for the first n bytes of a key. Shorter keys have no
// prefix. n is at least 1.
func FixedPrefix(n int) Prefixer { return fixedPrefix(max(n, 1)) }

type fixedPrefix int

func (p fixedPrefix) Name() string { return fmt.Sprintf("fixed(%d)", int(p)) }

func (p fixedPrefix) PrefixLen(key []byte) int {
	if len(key) < int(p) {
		return -1
	}
	return int(p)
}

// PrefixUpTo returns the Prefixer for the bytes up to and including the n-th delimiter, n at
// least 1: with '/' and 1 the prefix of "user/17/name" is "user/", with 2 it is "user/17/".
// Keys with fewer delimiters have no prefix.
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
	}
	if p == nil || p.Name() != name {
		return nil
	}
	return p
}

// prefixOf returns the key's prefix; ok is false if it has none.
func prefixOf(p Prefixer, key []byte) (prefix []byte, ok bool) {
	n := p.PrefixLen(key)
	if n < 0 || n > len(key) {
		return nil, false
	}
	return key[:n], true
}

// addPrefix adds the prefix of a key to the filter, but only once for adjacent keys with the
// same prefix.
func (w *Writer) addPrefix(userKey []byte) {
	prefix, ok := prefixOf(w.opts.Prefix, userKey)
	if !ok || w.prefixed && bytes.Equal(prefix, w.prefix) {
		return
	}
	w.prefix, w.prefixed = append(w.prefix[:0], prefix...), true
	w.filter.Add(filter.NewKey(prefix))
}

// PrefixFilter returns the name of the Prefixer whose prefixes the table's filter holds:
// MayContain then answers for these prefixes as it does for keys. "" means that the filter
// holds no prefixes.
func (r *Reader) PrefixFilter() string {
	if r.props == nil {
		return ""
	}
	return r.props.FilterPrefix
}
