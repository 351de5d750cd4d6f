package record

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/siftdb/sift/internal/base"
)

// span is a chunk's place in an undamaged log.
type span struct {
	off, end int64
	record   int
}

// spans lists the chunks of an undamaged log.
func spans(data []byte) (list []span) {
	record := -1
	for off := 0; off < len(data); {
		if rest := BlockSize - off%BlockSize; rest < HeaderLen {
			off += rest
			continue
		}
		if data[off+6] == typeFull || data[off+6] == typeFirst {
			record++
		}
		end := off + HeaderLen + int(binary.LittleEndian.Uint16(data[off+4:]))
		list = append(list, span{int64(off), int64(end), record})
		off = end
	}
	return list
}

// threeBlockLog has records of one chunk and of two and three, and a block with
// a trailer.
func threeBlockLog(t testing.TB) ([]byte, []item) {
	rng := rand.New(rand.NewPCG(3, 9))
	sizes := []int{0, 10, 3000, 17, 29_000, 2000, 0, 500, 100}
	used := 0
	for _, n := range sizes {
		used += HeaderLen + n
	}
	used += HeaderLen // the record of 2000 bytes has two chunks
	sizes = append(sizes, 2*BlockSize-used-HeaderLen-3, 40, 0, 900)
	var payloads [][]byte
	for _, n := range sizes {
		payloads = append(payloads, randomBytes(rng, n))
	}
	data, items := writeAll(t, payloads...)
	if len(data) < 2*BlockSize || len(data) > 2*BlockSize+1200 {
		t.Fatalf("log of %d bytes", len(data))
	}
	if !bytes.Equal(data[2*BlockSize-3:2*BlockSize], make([]byte, 3)) || items[10].offset != 2*BlockSize {
		t.Fatalf("no trailer at the end of the second block")
	}
	return data, items
}

// places lists the offsets of a log to damage: all of them if SIFT_FULL is set;
// otherwise all near the ends of chunks and one in 37 of those between.
func places(data []byte, list []span) (offs []int) {
	near := make([]bool, len(data)+1)
	for _, s := range list {
		for _, edge := range []int64{s.off, s.end} {
			for i := max(0, edge-10); i < min(edge+10, int64(len(near))); i++ {
				near[i] = true
			}
		}
	}
	for i := range near {
		if near[i] || i%37 == 0 || os.Getenv("SIFT_FULL") != "" {
			offs = append(offs, i)
		}
	}
	return offs
}

// TestEveryFlip changes bytes of a log in four ways. Whatever was changed, the reader must return
// the records before it and report exactly what follows.
func TestEveryFlip(t *testing.T) {
	data, items := threeBlockLog(t)
	list := spans(data)
	offs := places(data, list)
	offs = offs[:len(offs)-1] // there is no byte at the end
	const workers = 4
	for worker := range workers {
		t.Run(fmt.Sprint(worker), func(t *testing.T) {
			t.Parallel()
			bad := bytes.Clone(data)
			at := 0 // the first chunk that ends after the byte
			for k := worker; k < len(offs); k += workers {
				i := offs[k]
				for at < len(list) && list[at].end <= int64(i) {
					at++
				}
				for _, b := range []byte{data[i] ^ 0x01, data[i] ^ 0x80, data[i] ^ 0xff, 0} {
					if b == data[i] {
						continue
					}
					bad[i] = b
					checkFlip(t, bad, items, list, at, i)
					bad[i] = data[i]
				}
			}
		})
	}
}

func checkFlip(t *testing.T, bad []byte, items []item, list []span, at, i int) {
	want := Tail{Kind: Clean, Offset: int64(len(bad)), Next: -1}
	whole, after := len(items), len(items) // records before and after the damage
	if at < len(list) && list[at].off <= int64(i) {
		whole, after = list[at].record, list[at].record+1
		want = Tail{Kind: Torn, Offset: items[whole].offset, Next: -1}
		if at+1 < len(list) {
			want.Kind, want.Next = Damaged, list[at+1].off
		}
		want.Dropped = int64(len(bad)) - want.Offset
	}
	r := NewReader(bytes.NewReader(bad), int64(len(bad)), "log")
	n := 0
	for ; ; n++ {
		p, off, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if n >= whole || off != items[n].offset || !bytes.Equal(p, items[n].payload) {
			t.Fatalf("byte %d: record %d is wrong", i, n)
		}
	}
	tail := r.Tail()
	want.Err = tail.Err
	if n != whole || tail != want {
		t.Fatalf("byte %d: %d records, tail %+v, want %d, %+v", i, n, tail, whole, want)
	}
	err := r.Salvage(func(p []byte, off int64) bool {
		if after == len(items) || off != items[after].offset || !bytes.Equal(p, items[after].payload) {
			t.Fatalf("byte %d: salvaged record at %d", i, off)
		}
		after++
		return true
	})
	if err != nil || after != len(items) {
		t.Fatalf("byte %d: salvaged up to record %d, err %v", i, after, err)
	}
}

// TestEveryTruncation truncates a log at many offsets: the reader must return the whole records
// before the cut, and report the rest as torn.
func TestEveryTruncation(t *testing.T) {
	data, items := threeBlockLog(t)
	for _, n := range places(data, spans(data)) {
		whole := 0
		for whole < len(items) && items[whole].end <= int64(n) {
			whole++
		}
		want := Tail{Kind: Clean, Offset: int64(n), Next: -1}
		if whole < len(items) && items[whole].offset < int64(n) {
			want.Kind, want.Offset = Torn, items[whole].offset
			want.Dropped = int64(n) - want.Offset
		}
		r := NewReader(bytes.NewReader(data[:n]), int64(n), "log")
		got := 0
		for {
			p, off, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if got == whole || off != items[got].offset || !bytes.Equal(p, items[got].payload) {
				t.Fatalf("cut at %d: record %d is wrong", n, got)
			}
			got++
		}
		tail := r.Tail()
		want.Err = tail.Err
		if got != whole || tail != want {
			t.Fatalf("cut at %d: %d records, tail %+v, want %d, %+v", n, got, tail, whole, want)
		}
	}
}

// TestSearchShapes compares the search with a naive one on difficult data: a valid chunk of each
// length among bytes that all look like headers.
func TestSearchShapes(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for _, n := range []int{0, 1, 100, shortChunk - 1, shortChunk, shortChunk + 1, 1000, 20_000, BlockSize - HeaderLen} {
		for _, fill := range []byte{0, 1, 4, 0xff} {
			for range 5 {
				data := bytes.Repeat([]byte{fill}, 3*BlockSize)
				in := rng.IntN(BlockSize - HeaderLen - n + 1)
				at := BlockSize*(1+rng.IntN(2)) + in
				copy(data[at:], rawChunk(typeFull, string(randomBytes(rng, n))))
				_, tail, _ := readAll(t, data)
				if want := bruteSearch(data, 1); tail.Next != want || want > int64(at) {
					t.Fatalf("length %d in %#x at %d: next %d, want %d", n, fill, at, tail.Next, want)
				}
			}
		}
	}
}

// bruteSearch finds the first valid chunk at or after off.
func bruteSearch(data []byte, off int) int64 {
	for ; off+HeaderLen <= len(data); off++ {
		end := off + HeaderLen + int(binary.LittleEndian.Uint16(data[off+4:]))
		blockEnd := off - off%BlockSize + BlockSize
		if kind := data[off+6]; kind < 1 || kind > 4 || end > min(blockEnd, len(data)) {
			continue
		}
		if base.Checksum(data[off+6:end]) == binary.LittleEndian.Uint32(data[off:]) {
			return int64(off)
		}
	}
	return -1
}

func FuzzReader(f *testing.F) {
	small, _ := writeAll(f, []byte("abc"), nil, make([]byte, 300), []byte("z"))
	f.Add(small, uint16(0))
	f.Add(small, uint16(BlockSize-30))
	f.Add(small[:len(small)-3], uint16(BlockSize-8))
	f.Add(append(bytes.Repeat([]byte{1}, 2000), small...), uint16(100))
	f.Add([]byte(rawChunk(typeFirst, "")+rawChunk(typeMiddle, "a")+rawChunk(typeLast, "b")), uint16(BlockSize-7))
	f.Fuzz(func(t *testing.T, data []byte, lead uint16) {
		// A valid record in front moves the data across the end of a block.
		var whole []byte
		if lead >= HeaderLen && lead <= BlockSize {
			whole = []byte(rawChunk(typeFull, string(make([]byte, lead-HeaderLen))))
		}
		whole = append(whole, data...)
		items, tail, salvaged := readAll(t, whole)

		// Written again, the records give a clean log.
		var payloads [][]byte
		end := int64(0)
		for _, it := range items {
			if it.offset < end {
				t.Fatalf("record at %d, after %d", it.offset, end)
			}
			end = it.offset + HeaderLen + int64(len(it.payload))
			payloads = append(payloads, it.payload)
		}
		if tail.Offset < end {
			t.Fatalf("tail %+v, records up to %d", tail, end)
		}
		if again, _, _ := readAll(t, whole[:tail.Offset]); len(again) != len(items) {
			t.Fatalf("cut at the tail, the log has %d records, not %d", len(again), len(items))
		}
		rewritten, _ := writeAll(t, payloads...)
		back, cleanTail, _ := readAll(t, rewritten)
		if cleanTail.Kind != Clean || len(back) != len(items) {
			t.Fatalf("rewritten: %d records of %d, tail %+v", len(back), len(items), cleanTail)
		}

		if ce, ok := tail.Err.(*base.CorruptionError); ok && tail.Next != ce.Offset && ce.Err != errNoLast {
			if want := bruteSearch(whole, int(ce.Offset)+1); tail.Next != want {
				t.Fatalf("next valid chunk at %d, want %d", tail.Next, want)
			}
		}
		last := tail.Next
		for _, it := range salvaged {
			if it.offset < last {
				t.Fatalf("salvaged at %d, after %d", it.offset, last)
			}
			last = it.offset + HeaderLen + int64(len(it.payload))
		}
	})
}

// BenchmarkSearch measures the search over zeros, over random bytes, and over a log in which every
// byte looks like the start of a long chunk.
func BenchmarkSearch(b *testing.B) {
	data := make([]byte, 1<<20)
	for i := range data {
		data[i] = [...]byte{1, 0x10, 1, 0x10, 1}[i%5]
	}
	for _, bm := range []struct {
		name string
		data []byte
	}{{"zeros", make([]byte, 1<<20)}, {"random", randomBytes(rand.New(rand.NewPCG(1, 1)), 1<<20)}, {"headers", data}} {
		b.Run(bm.name, func(b *testing.B) {
			b.SetBytes(int64(len(bm.data)))
			for b.Loop() {
				r := NewReader(bytes.NewReader(bm.data), int64(len(bm.data)), "log")
				if _, _, err := r.Next(); err != io.EOF || r.Tail().Kind == Clean {
					b.Fatal(err, r.Tail())
				}
			}
		})
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{100, 4 << 10, 1 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w := NewWriter(io.Discard)
			p := make([]byte, n)
			b.SetBytes(int64(n))
			for b.Loop() {
				if err := w.Append(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	payloads := make([][]byte, 10_000)
	for i := range payloads {
		payloads[i] = make([]byte, 100)
	}
	data, _ := writeAll(b, payloads...)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		r := NewReader(bytes.NewReader(data), int64(len(data)), "log")
		n := 0
		for {
			if _, _, err := r.Next(); err != nil {
				break
			}
			n++
		}
		if n != len(payloads) || r.Tail().Kind != Clean {
			b.Fatal(n, r.Tail())
		}
	}
}
