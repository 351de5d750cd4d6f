package filter

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/siftdb/sift/filter/internal/fuse"
)

// fuseExample is the block over the one key "a" with 8 bits.
const fuseExample = `
00 00 00 00 00 00 00 00  82 00 00 00
01 00 00 00 02 08 00 00  a6 eb c1 79 86 b8 e5 93
`

func TestFuseExample(t *testing.T) {
	want, err := hex.DecodeString(strings.Join(strings.Fields(fuseExample), ""))
	if err != nil {
		t.Fatal(err)
	}
	if got := build(t, Fuse(8), "a"); len(got) != 1 || !bytes.Equal(got[0], want) {
		t.Errorf("got\n%s", hex.Dump(got[0]))
	}
}

// TestFuseSeed checks the block over five keys for which seed 0 does not work.
func TestFuseSeed(t *testing.T) {
	const want = "000000500000000610a00020" + "01000000" + "03040100" + "aabd34f233398399"
	keys := []string{"10", "11", "12", "13", "14"}
	units := build(t, Fuse(4), keys...)
	if got := hex.EncodeToString(units[0]); got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	r := open(t, Fuse(4), units)
	for _, k := range keys {
		if key := NewKey([]byte(k)); !r.MayContain(key) || !fuseMayContainBlock(units[0], key) {
			t.Errorf("%q is excluded", k)
		}
	}
}

// TestFuseTrailer opens blocks whose trailers are at a bound or beyond it, with matching lengths
// and checksums unless stated otherwise.
func TestFuseTrailer(t *testing.T) {
	for _, c := range []struct {
		desc          string
		shape         fuse.Shape
		seed, version byte
		more          int // bytes
		ok            bool
	}{
		{"the least width", fuse.Shape{Segments: 1, SegmentLog: 3, Width: fuse.MinWidth}, 0, 0, 0, true},
		{"a width of 3", fuse.Shape{Segments: 1, SegmentLog: 3, Width: fuse.MinWidth - 1}, 0, 0, 0, false},
		{"the greatest width", fuse.Shape{Segments: 1, SegmentLog: 3, Width: fuse.MaxWidth}, 0, 0, 0, true},
		{"a width of 17", fuse.Shape{Segments: 1, SegmentLog: 3, Width: fuse.MaxWidth + 1}, 0, 0, 0, false},
		{"the last seed", fuse.Shape{Segments: 1, SegmentLog: 3, Width: 8}, fuse.MaxSeeds - 1, 0, 0, true},
		{"seed 200", fuse.Shape{Segments: 1, SegmentLog: 3, Width: 8}, fuse.MaxSeeds, 0, 0, false},
		{"version 1", fuse.Shape{Segments: 1, SegmentLog: 3, Width: 8}, 0, 1, 0, false},
		{"the largest segments", fuse.Shape{Segments: 1, SegmentLog: fuse.MaxSegmentLog, Width: 4}, 0, 0, 0, true},
		{"larger segments", fuse.Shape{Segments: 1, SegmentLog: fuse.MaxSegmentLog + 1, Width: 4}, 0, 0, 0, false},
		{"no keys", fuse.Shape{Width: 8}, 0, 0, 0, true},
		{"no segments of two slots", fuse.Shape{SegmentLog: 1, Width: 8}, 0, 0, 0, false},
		{"one byte too many", fuse.Shape{Segments: 1, SegmentLog: 3, Width: 8}, 0, 0, 1, false},
		{"one byte too few", fuse.Shape{Segments: 1, SegmentLog: 3, Width: 8}, 0, 0, -1, false},
	} {
		size := int(c.shape.Bytes()) + c.more
		b := make([]byte, size+fuseTrailerSize)
		binary.LittleEndian.PutUint32(b[size:], c.shape.Segments)
		copy(b[size+4:], []byte{c.shape.SegmentLog, c.shape.Width, c.seed, c.version})
		b = reseal(b)
		r, err := Fuse(8).Open([][]byte{b})
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.desc, err)
		}
		for i := range byte(100) {
			key := NewKey([]byte{i})
			if positive := fuseMayContainBlock(b, key); !c.ok && !positive || c.ok && positive != r.MayContain(key) {
				t.Errorf("%s: key %d is %v", c.desc, i, positive)
			}
		}
	}
}
