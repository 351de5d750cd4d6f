package sstable

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/golang/snappy"
)

// TestSnappyExample checks the example in the format comment.
func TestSnappyExample(t *testing.T) {
	block := []byte{0x0a, 0x04, 0x61, 0x62, 0x09, 0x02, 0x04, 0x21, 0x21}
	if out, err := appendSnappy([]byte("<"), block); err != nil || string(out) != "<abababab!!" {
		t.Errorf("%q, %v", out, err)
	}
}

// TestSnappyMalformed checks that handmade malformed blocks are rejected.
func TestSnappyMalformed(t *testing.T) {
	for _, c := range []struct {
		desc  string
		block string
	}{
		{"nothing at all", ""},
		{"a length that does not end", "\x80"},
		{"no elements", "\x01"},
		{"a literal without bytes", "\x01\x00"},
		{"a literal that ends early", "\x03\x08ab"},
		{"a literal longer than the decoded length", "\x01\x04ab"},
		{"a literal whose length is missing", "\x01\xf0"},
		{"a literal whose length ends early", "\x01\xf4\x00"},
		{"a literal of 4 GiB", "\x01\xfc\xff\xff\xff\xffa"},
		{"a copy without output before it", "\x04\x01\x01"},
		{"a copy with offset 0", "\x05\x00a\x01\x00"},
		{"a copy from before the start", "\x05\x00a\x01\x02"},
		{"a copy without its offset", "\x05\x00a\x01"},
		{"a copy with half of its offset", "\x05\x00a\x0e\x01"},
		{"a copy with most of its offset", "\x05\x00a\x0f\x01\x00\x00"},
		{"a copy with an offset of 2 GiB", "\x05\x00a\x0f\x01\x00\x00\x80"},
		{"a copy longer than the decoded length", "\x04\x00a\x01\x01"},
		{"more elements than the decoded length", "\x01\x00a\x00b"},
		{"less than the decoded length", "\x03\x04ab"},
	} {
		if out, err := appendSnappy(nil, []byte(c.block)); err == nil {
			t.Errorf("%s: decoded to %q", c.desc, out)
		}
		if err := againstSnappy([]byte(c.block), nil); err != nil {
			t.Errorf("%s: %v", c.desc, err)
		}
	}
}

// TestSnappyMalformedInside checks that copies with wrong offsets are rejected far from both ends
// of a block, after 60 bytes of output.
func TestSnappyMalformedInside(t *testing.T) {
	literal := append([]byte{59 << 2}, bytes.Repeat([]byte("x"), 60)...)
	for _, c := range []struct {
		copy string
		ok   bool
	}{
		{"\x01\x00", false}, {"\x01\x01", true}, {"\x01\x3c", true}, {"\x01\x3d", false},
		{"\x0e\x00\x00", false}, {"\x0e\x01\x00", true}, {"\x0e\x3c\x00", true}, {"\x0e\x3d\x00", false},
		{"\x0f\x00\x00\x00\x00", false}, {"\x0f\x3c\x00\x00\x00", true}, {"\x0f\x3d\x00\x00\x00", false},
	} {
		block := append([]byte{0xb0, 0x02}, literal...) // 304 bytes, of which the copy gives 4
		block = append(block, c.copy...)
		block = append(block, bytes.Repeat(literal, 4)...)
		if out, err := appendSnappy(nil, block); (err == nil) != c.ok {
			t.Errorf("%x: %q, %v", c.copy, out, err)
		}
		if err := againstSnappy(block, nil); err != nil {
			t.Errorf("%x: %v", c.copy, err)
		}
	}
}

// againstSnappy compares the decoder with golang/snappy. place, if not nil, returns memory of the
// given length, outside of which the decoder must not access anything.
func againstSnappy(block []byte, place func(n int) []byte) error {
	n, err := snappy.DecodedLen(block)
	if err != nil || uint64(n) > maxDecodedLen(uint64(len(block))) {
		if _, err := appendSnappy(nil, block); err == nil {
			return errors.New("an invalid decoded length was accepted")
		}
		return nil
	}
	want, wantErr := snappy.Decode(nil, block)
	var got []byte
	if place == nil {
		got, err = appendSnappy(nil, block)
	} else {
		src := place(len(block))
		copy(src, block)
		got = place(n)
		k := 0
		for src[k] >= 0x80 {
			k++
		}
		err = decodeSnappy(got, src[k+1:])
	}
	if (err == nil) != (wantErr == nil) {
		return fmt.Errorf("error is %v, golang/snappy's is %v", err, wantErr)
	}
	if err == nil && !bytes.Equal(got, want) {
		return errors.New("decoded to other bytes")
	}
	return nil
}

// snappyCases calls fn with blocks, intact and damaged: compressed digits, random bytes,
// runs and repetitions, and sequences of random elements.
func snappyCases(fn func(block []byte)) {
	rng := rand.New(rand.NewPCG(1, 2))
	var blocks [][]byte
	for n := range 100 {
		var b []byte
		for len(b) < n*20 {
			switch rng.IntN(4) {
			case 0:
				b = fmt.Appendf(b, "%016d", rng.IntN(1000000))
			case 1:
				for range rng.IntN(300) {
					b = append(b, byte(rng.Uint32()))
				}
			case 2:
				b = append(b, bytes.Repeat([]byte{byte(rng.Uint32())}, rng.IntN(200))...)
			case 3:
				if len(b) > 0 {
					from := rng.IntN(len(b))
					b = append(b, b[from:min(len(b), from+rng.IntN(100))]...)
				}
			}
		}
		blocks = append(blocks, snappy.Encode(nil, b))
	}
	for range 600 { // valid elements of every kind
		var b []byte
		n := 0
		for range rng.IntN(60) {
			kind, length := rng.IntN(4), 1+rng.IntN(64)
			offset := 1 + rng.IntN(n+1)
			switch {
			case kind == 0 || n == 0:
				if length > 60 {
					length += rng.IntN(190)
					b = append(b, 60<<2, byte(length-1))
				} else {
					b = append(b, byte(length-1)<<2)
				}
				for range length {
					b = append(b, byte(rng.Uint32()))
				}
			case kind == 1:
				length, offset = 4+length%8, 1+offset%min(n, 2047)
				b = append(b, byte(offset>>8)<<5|byte(length-4)<<2|1, byte(offset))
			case kind == 2:
				offset = min(offset, n)
				b = append(b, byte(length-1)<<2|2, byte(offset), byte(offset>>8))
			default:
				offset = min(offset, n)
				b = append(b, byte(length-1)<<2|3, byte(offset), byte(offset>>8), 0, 0)
			}
			n += length
		}
		blocks = append(blocks, append([]byte{byte(n) | 0x80, byte(n>>7)&0x7f | 0x80, byte(n >> 14)}, b...))
	}
	for _, b := range blocks {
		fn(b)
		for range 5 {
			if len(b) == 0 {
				continue
			}
			d := bytes.Clone(b)
			for range 1 + rng.IntN(3) {
				d[rng.IntN(len(d))] = byte(rng.Uint32())
			}
			fn(d[:rng.IntN(len(d)+1)])
			fn(d)
		}
	}
}

// TestSnappy compares the decoder with golang/snappy.
func TestSnappy(t *testing.T) {
	valid, invalid := 0, 0
	snappyCases(func(block []byte) {
		if _, err := snappy.Decode(nil, block); err == nil {
			valid++
		} else {
			invalid++
		}
		if err := againstSnappy(block, nil); err != nil {
			t.Fatalf("%x: %v", block, err)
		}
	})
	if valid < 700 || invalid < 700 {
		t.Errorf("%d blocks were valid, %d were not", valid, invalid)
	}
}

// FuzzSnappy compares the decoder with golang/snappy.
func FuzzSnappy(f *testing.F) {
	f.Add(snappy.Encode(nil, bytes.Repeat([]byte("0123456789 and so on "), 20)))
	f.Add(snappy.Encode(nil, []byte("short")))
	f.Fuzz(func(t *testing.T, block []byte) {
		if len(block) > 1<<16 {
			return
		}
		if err := againstSnappy(block, nil); err != nil {
			t.Error(err)
		}
	})
}

// BenchmarkSnappy decodes the blocks of a table, with this decoder and golang/snappy.
func BenchmarkSnappy(b *testing.B) {
	data, _ := buildTable(b, benchEntries(30000), nil)
	r := openTable(b, data, nil)
	var blocks [][]byte
	for i := range r.index.Load().numBlocks() {
		h := r.index.Load().handle(i)
		blocks = append(blocks, data[h.Offset:h.end()-blockTrailerLen])
	}
	dst := make([]byte, 0, 16<<10)
	for _, decoder := range []struct {
		name string
		fn   func(block []byte) error
	}{
		{"other", func(block []byte) error { _, err := snappy.Decode(dst[:cap(dst)], block); return err }},
		{"own", func(block []byte) error { _, err := appendSnappy(dst, block); return err }},
	} {
		b.Run(decoder.name, func(b *testing.B) {
			for i := range b.N {
				if err := decoder.fn(blocks[i%len(blocks)]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
