package sstable

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
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
