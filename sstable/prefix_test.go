package sstable

import (
	"slices"
	"strings"
	"testing"

	"github.com/siftdb/sift/filter"
)

// TestPrefixLen checks the prefixes of keys.
func TestPrefixLen(t *testing.T) {
	for _, c := range []struct {
		p    Prefixer
		key  string
		want string // "-": none
	}{
		{FixedPrefix(3), "ab", "-"},
		{FixedPrefix(3), "abc", "abc"},
		{FixedPrefix(3), "abcd", "abc"},
		{FixedPrefix(0), "abc", "a"},
		{PrefixUpTo('/', 1), "ab", "-"},
		{PrefixUpTo('/', 1), "/ab", "/"},
		{PrefixUpTo('/', 1), "a/b/c", "a/"},
		{PrefixUpTo('/', 2), "a/b", "-"},
		{PrefixUpTo('/', 2), "//", "//"},
		{PrefixUpTo('/', 2), "a/b/c/d", "a/b/"},
		{PrefixUpTo('/', 0), "a/b/c", "a/"},
		{EachPrefix('/'), "ab", "-"},
		{EachPrefix('/'), "/ab", "/"},
		{EachPrefix('/'), "a/b/c", "a/b/"},
	} {
		got := "-"
		if n := c.p.PrefixLen([]byte(c.key)); n >= 0 {
			got = c.key[:n]
		}
		if got != c.want {
			t.Errorf("%s: the prefix of %q is %q, want %q", c.p.Name(), c.key, got, c.want)
		}
	}
}

// TestRangePrefixLen checks that the prefix is the longest that all keys of the range have. The
// upper bound is exclusive.
func TestRangePrefixLen(t *testing.T) {
	for _, c := range []struct {
		p            Prefixer
		lower, upper string
		want         string // "-": none
	}{
		{FixedPrefix(2), "a", "ab", "-"},
		{FixedPrefix(2), "ab", "ab", "ab"},
		{FixedPrefix(2), "abc", "abd", "ab"},
		{FixedPrefix(2), "abc", "ac", "ab"},
		{FixedPrefix(2), "abc", "ac\x00", "-"},
		{FixedPrefix(2), "a\xff", "b", "a\xff"},
		{FixedPrefix(2), "\xff\xff", "\xff\xff\x01", "\xff\xff"},
		{PrefixUpTo('/', 1), "/a", "/b", "/"},
		{PrefixUpTo('/', 1), "a/b", "a0", "a/"},
		{PrefixUpTo('/', 1), "a/b", "a1", "-"},
		{EachPrefix('/'), "a/b/c", "a/b/d", "a/b/"},
		{EachPrefix('/'), "a/b/c", "a/b0", "a/b/"},
		{EachPrefix('/'), "a/b/c", "a/c", "a/"},
		{EachPrefix('/'), "a/b/c/", "a/b/d", "a/b/"},
		{EachPrefix('/'), "/a/", "/b", "/"},
		{EachPrefix('/'), "a/b", "b", "-"},
		{EachPrefix('/'), "a", "b", "-"},
		{EachPrefix('/'), "a/b/c/d", "a/b0", "a/b/"},
		{overlong{}, "a", "a", "-"},
		{emptyPrefix{}, "a", "b", ""},
	} {
		got := "-"
		if n := RangePrefixLen(c.p, []byte(c.lower), []byte(c.upper)); n >= 0 {
			got = c.lower[:n]
		}
		if got != c.want {
			t.Errorf("%s: [%q, %q) has the prefix %q, want %q", c.p.Name(), c.lower, c.upper, got, c.want)
		}
	}
}

// overlong is a Prefixer that violates the contract: its prefixes are longer than the keys.
type overlong struct{}

func (overlong) Name() string             { return "overlong" }
func (overlong) PrefixLen(key []byte) int { return len(key) + 1 }

// emptyPrefix is a Prefixer for which all keys have the empty prefix.
type emptyPrefix struct{}

func (emptyPrefix) Name() string         { return "empty" }
func (emptyPrefix) PrefixLen([]byte) int { return 0 }

// TestPrefixerNamed checks that the Prefixers of this package are found by their names, and that
// other names are not accepted.
func TestPrefixerNamed(t *testing.T) {
	for _, p := range []Prefixer{FixedPrefix(1), FixedPrefix(12), PrefixUpTo('/', 3), PrefixUpTo(0xff, 1), EachPrefix(0), EachPrefix(0xff)} {
		if prefixerNamed(p.Name()) != p {
			t.Errorf("%s is not found", p.Name())
		}
	}
	for _, name := range []string{"", "fixed", "fixed()", "fixed(0)", "fixed(01)", "fixed(1", "upto(0x2f)", "upto(0x2f,0)", "each(0x100)", "every(0x2f)"} {
		if p := prefixerNamed(name); p != nil {
			t.Errorf("%q is %s", name, p.Name())
		}
	}
}

// TestPrefixesInFilter checks that adjacent keys with the same prefix add it once, that EachPrefix
// adds the prefixes of every depth, and that a Prefixer that violates the contract adds none.
func TestPrefixesInFilter(t *testing.T) {
	keys := []string{"", "/", "a/b/1", "a/b/2", "a/c/1", "a0", "b/b/", "b/b/1"}
	for _, c := range []struct {
		p    Prefixer
		want []string
	}{
		{FixedPrefix(2), []string{"a/", "a0", "b/"}},
		{PrefixUpTo('/', 1), []string{"/", "a/", "b/"}},
		{PrefixUpTo('/', 2), []string{"a/b/", "a/c/", "b/b/"}},
		{EachPrefix('/'), []string{"/", "a/", "a/b/", "a/c/", "b/", "b/b/"}},
		{overlong{}, nil},
		{emptyPrefix{}, []string{""}},
	} {
		var list []kv
		for _, key := range keys {
			list = append(list, kv{key, 1, KindSet, ""})
		}
		var added []string
		buildTable(t, list, &WriterOptions{Filter: recordingPolicy{added: &added}, Prefix: c.p})
		var got []string
		next := 0
		for _, k := range added {
			if next < len(keys) && k == keys[next] {
				next++
			} else {
				got = append(got, k)
			}
		}
		if !slices.Equal(got, c.want) || next != len(keys) {
			t.Errorf("%s: %d keys and the prefixes %q, want %q", c.p.Name(), next, got, c.want)
		}
	}
}

// recordingPolicy records what is added to its filters.
type recordingPolicy struct {
	hashList
	added *[]string
}

func (p recordingPolicy) NewWriter() filter.Writer {
	return recordingWriter{p.hashList.NewWriter(), p.added}
}

type recordingWriter struct {
	filter.Writer
	added *[]string
}

func (w recordingWriter) Add(k filter.Key) {
	*w.added = append(*w.added, string(k.Bytes))
	w.Writer.Add(k)
}

// TestVerifyPrefixes checks that Verify detects a filter that lacks prefixes of keys, whether it is
// given the Prefixer, another one or none.
func TestVerifyPrefixes(t *testing.T) {
	for _, lacks := range []int{0, 2} {
		data, _ := buildTable(t, numbered(50), &WriterOptions{Filter: lackingPolicy{length: lacks}, Prefix: FixedPrefix(2)})
		for _, p := range []Prefixer{nil, FixedPrefix(2), FixedPrefix(5)} {
			faults := 0
			r := openTable(t, data, &ReaderOptions{Policies: []filter.Policy{hashList{}}, Prefix: p})
			if err := r.Verify(t.Context(), func(error) { faults++ }); err != nil || (faults > 0) != (lacks > 0) {
				t.Errorf("prefixes left out: %t, given %v: %d faults, %v", lacks > 0, p, faults, err)
			}
		}
	}
}

// lackingPolicy leaves out keys and prefixes of the given length.
type lackingPolicy struct {
	hashList
	length int
}

func (p lackingPolicy) NewWriter() filter.Writer {
	return lackingWriter{p.hashList.NewWriter(), p.length}
}

type lackingWriter struct {
	filter.Writer
	length int
}

func (w lackingWriter) Add(k filter.Key) {
	if len(k.Bytes) != w.length {
		w.Writer.Add(k)
	}
}

// TestManyPrefixes checks that the prefixes of a key of delimiters do not take quadratic time, and
// that a table whose filter lacks prefixes does not claim to have them.
func TestManyPrefixes(t *testing.T) {
	key := func(n int) kv { return kv{"b/" + strings.Repeat("x/", n), 1, KindSet, ""} }
	for _, c := range []struct {
		list    []kv
		claimed bool
	}{
		{[]kv{{"a/b", 1, KindSet, ""}, key(maxNewPrefixes - 1), {"c/d", 1, KindSet, ""}}, true},
		{[]kv{{"a/b", 1, KindSet, ""}, key(maxNewPrefixes), {"c/d", 1, KindSet, ""}}, false},
		{[]kv{key(maxNewPrefixes - 1), key(2*maxNewPrefixes - 1)}, true}, // half of them are not new
		{[]kv{key(100_000)}, false},
	} {
		var added []string
		buildTable(t, c.list, &WriterOptions{Filter: recordingPolicy{added: &added}, Prefix: EachPrefix('/')})
		hashed, length := 0, 0
		for _, k := range added {
			hashed += len(k)
		}
		for _, e := range c.list {
			length += len(e.key)
		}
		if hashed > 2*maxNewPrefixes*length {
			t.Errorf("%d keys of %d bytes: %d bytes are added to the filter", len(c.list), length, hashed)
		}
		data, info := buildTable(t, c.list, &WriterOptions{Filter: filter.Default(), Prefix: EachPrefix('/')})
		if (info.FilterPrefix != "") != c.claimed {
			t.Errorf("%d keys of %d bytes: the filter has the prefixes of %q", len(c.list), length, info.FilterPrefix)
		}
		r := openTable(t, data, nil)
		for _, e := range c.list {
			if !r.MayContain(filter.NewKey([]byte(e.key))) {
				t.Errorf("the filter hides %.20q", e.key)
			}
		}
	}
}
