package sstable

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestSplitAt is where keys of usual shapes are split into a prefix and a number.
func TestSplitAt(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, tt := range []struct {
		desc string
		key  func(i int) string
		want int
	}{
		{"8-byte numbers", func(i int) string { return string(binary.BigEndian.AppendUint64(nil, uint64(i)*1000)) }, 0},
		{"entity and 8 digits", func(i int) string { return fmt.Sprintf("device/%05d/%08d", i/100, i%100*50) }, 13},
		{"16 random bytes", func(int) string {
			return string(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, rng.Uint64()), rng.Uint64()))
		}, 1},
		{"a counter after a long name", func(i int) string { return fmt.Sprintf("the/same/long/name/for/all/%08d", i) }, 27},
		{"paths with line numbers", func(i int) string { return fmt.Sprintf("src/p%02d/file%02d.go:%d", i/200, i/20%10, i%20) }, 12},
		{"shorter than a number", func(i int) string { return fmt.Sprintf("%04x", i) }, 0},
	} {
		var keys []string
		for i := range 2000 {
			keys = append(keys, tt.key(i))
		}
		slices.Sort(keys)
		var k rangeKeys
		for _, key := range slices.Compact(keys) {
			k.add([]byte(key))
		}
		if at := k.splitAt(); at != tt.want {
			t.Errorf("%s: %q and the like are split at %d, want %d", tt.desc, keys[1], at, tt.want)
		}
	}
	var one rangeKeys
	one.add([]byte("a key of its own"))
	if at := one.splitAt(); at != 8 {
		t.Errorf("one key of 16 bytes is split at %d", at)
	}
	var empty rangeKeys
	empty.add(nil)
	if at := empty.splitAt(); at != 0 {
		t.Errorf("the empty key is split at %d", at)
	}
}

// TestSplitBehindDelimiter: keys of many lengths that end with a number are split before
// it, and others as before.
func TestSplitBehindDelimiter(t *testing.T) {
	for _, tt := range []struct {
		desc string
		key  func(i int) string
		want string
	}{
		{"paths with line numbers", func(i int) string { return fmt.Sprintf("%s.go:%06d", strings.Repeat("p", i/40%23), i%40*7) }, "upto(0x3a,1)"},
		{"a field more in some", func(i int) string {
			return fmt.Sprintf("a/%s/%04d%s", strings.Repeat("u", i/30%19), i%30, []string{"", "/x"}[i%2])
		}, "upto(0x2f,2)"},
		{"one length", func(i int) string { return fmt.Sprintf("device/%05d/%08d", i/100, i%100*50) }, "at(13)"},
	} {
		var keys []string
		for i := range 3000 {
			keys = append(keys, tt.key(i))
		}
		slices.Sort(keys)
		var k rangeKeys
		for _, key := range slices.Compact(keys) {
			k.add([]byte(key))
		}
		if s := k.split(nil); s.name != tt.want {
			t.Errorf("%s: %q and the like are split %s, want %s", tt.desc, keys[1], s.name, tt.want)
		}
	}
}
