package record

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/siftdb/sift/internal/base"
)

// item is a record with its place in the log.
type item struct {
	payload []byte
	offset  int64
	end     int64 // of its last chunk
}

// readAll reads a log to its end and checks what must hold of any log.
func readAll(t testing.TB, data []byte) (items []item, tail Tail, salvaged []item) {
	t.Helper()
	r := NewReader(bytes.NewReader(data), int64(len(data)), "000003.log")
	for {
		p, off, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("Next: %v", err)
		}
		items = append(items, item{payload: bytes.Clone(p), offset: off})
	}
	if _, _, err := r.Next(); err != io.EOF {
		t.Fatalf("Next after the end: %v", err)
	}
	tail = r.Tail()
	if tail.Offset+tail.Dropped != int64(len(data)) {
		t.Fatalf("tail %+v of %d bytes", tail, len(data))
	}
	if (tail.Kind == Clean) != (tail.Err == nil) || (tail.Kind == Damaged) != (tail.Next >= 0) {
		t.Fatalf("tail %+v", tail)
	}
	if tail.Err != nil {
		var ce *base.CorruptionError
		if !errors.As(tail.Err, &ce) || ce.Path != "000003.log" || ce.Offset < tail.Offset {
			t.Fatalf("tail error %v, tail %+v", tail.Err, tail)
		}
	}
	err := r.Salvage(func(p []byte, off int64) bool {
		salvaged = append(salvaged, item{payload: bytes.Clone(p), offset: off})
		return true
	})
	if err != nil {
		t.Fatalf("Salvage: %v", err)
	}
	return items, tail, salvaged
}

// writeAll makes a log of the payloads.
func writeAll(t testing.TB, payloads ...[]byte) ([]byte, []item) {
	t.Helper()
	var buf bytes.Buffer
	w := NewWriter(&buf)
	items := make([]item, len(payloads))
	for i, p := range payloads {
		begin := w.Offset()
		if rest := BlockSize - begin%BlockSize; rest < HeaderLen {
			begin += rest
		}
		if err := w.Append(p); err != nil {
			t.Fatal(err)
		}
		items[i] = item{p, begin, w.Offset()}
	}
	if w.Offset() != int64(buf.Len()) {
		t.Fatalf("Offset %d, wrote %d", w.Offset(), buf.Len())
	}
	return buf.Bytes(), items
}

func sameItems(t testing.TB, what string, got, want []item) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d records, want %d", what, len(got), len(want))
	}
	for i := range got {
		if got[i].offset != want[i].offset || !bytes.Equal(got[i].payload, want[i].payload) {
			t.Fatalf("%s: record %d at %d of %d bytes, want at %d of %d bytes", what, i,
				got[i].offset, len(got[i].payload), want[i].offset, len(want[i].payload))
		}
	}
}

func randomBytes(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// rawChunk frames one chunk.
func rawChunk(kind byte, payload string) string {
	b := make([]byte, HeaderLen, HeaderLen+len(payload))
	binary.LittleEndian.PutUint16(b[4:], uint16(len(payload)))
	b[6] = kind
	b = append(b, payload...)
	binary.LittleEndian.PutUint32(b, base.Checksum(b[6:]))
	return string(b)
}

func TestFormatExample(t *testing.T) {
	const want = "f270e89d" + "0300" + "01" + "616263"
	data, _ := writeAll(t, []byte("abc"))
	if got := hex.EncodeToString(data); got != want {
		t.Fatalf("log is %s, want %s", got, want)
	}
	items, tail, _ := readAll(t, data)
	sameItems(t, "example", items, []item{{payload: []byte("abc")}})
	if tail.Kind != Clean {
		t.Fatalf("tail %+v", tail)
	}
}

func TestBlockBoundaries(t *testing.T) {
	sizes := []int{0, 1, 100_000, 2*BlockSize - 2*HeaderLen, 3 * flushBytes}
	for n := 32_750; n <= 32_780; n++ {
		sizes = append(sizes, n)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range sizes {
		for _, m := range []int{0, 1, 40_000} {
			payloads := [][]byte{randomBytes(rng, n), randomBytes(rng, m), randomBytes(rng, 10)}
			data, want := writeAll(t, payloads...)
			got, tail, _ := readAll(t, data)
			sameItems(t, fmt.Sprintf("sizes %d, %d", n, m), got, want)
			if tail.Kind != Clean {
				t.Fatalf("sizes %d, %d: tail %+v", n, m, tail)
			}
		}
	}
}

// TestExactSevenLeft pins the empty first chunk at the end of a block.
func TestExactSevenLeft(t *testing.T) {
	data, _ := writeAll(t, make([]byte, BlockSize-2*HeaderLen), []byte("x"))
	want := rawChunk(typeFirst, "") + rawChunk(typeLast, "x")
	if got := string(data[BlockSize-HeaderLen:]); got != want {
		t.Fatalf("%x, want %x", got, want)
	}
}

func TestRoundTripRandom(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 7))
		var payloads [][]byte
		for range 200 {
			n := rng.IntN(200)
			if rng.IntN(10) == 0 {
				n = rng.IntN(3 * BlockSize)
			}
			payloads = append(payloads, randomBytes(rng, n))
		}
		data, want := writeAll(t, payloads...)
		got, tail, _ := readAll(t, data)
		sameItems(t, fmt.Sprintf("seed %d", seed), got, want)
		if tail.Kind != Clean {
			t.Fatalf("seed %d: tail %+v", seed, tail)
		}

		// Parts and groups change nothing but the number of writes.
		var grouped bytes.Buffer
		w := NewWriter(&grouped)
		for _, p := range payloads {
			i := rng.IntN(len(p) + 1)
			j := i + rng.IntN(len(p)-i+1)
			if err := w.AddParts(p[:i], p[i:j], nil, p[j:]); err != nil {
				t.Fatal(err)
			}
			if rng.IntN(4) == 0 {
				if err := w.Flush(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(grouped.Bytes(), data) {
			t.Fatalf("seed %d: a log written in parts and groups differs", seed)
		}
	}
}

// scriptWriter fails one call of Write.
type scriptWriter struct {
	bytes.Buffer
	calls int
	most  int // largest number of bytes in a call
	limit int // bytes that the failing call accepts
	fail  int // the call that fails; 0 is the first
	err   error
}

func (s *scriptWriter) Write(p []byte) (int, error) {
	s.calls++
	s.most = max(s.most, len(p))
	if s.calls-1 == s.fail {
		n, _ := s.Buffer.Write(p[:min(s.limit, len(p))])
		return n, s.err
	}
	return s.Buffer.Write(p)
}

func TestOneWriteARecord(t *testing.T) {
	s := &scriptWriter{fail: -1}
	w := NewWriter(s)
	for i, n := range []int{0, 10, 100_000, 600_000} {
		if err := w.AppendParts(make([]byte, n), make([]byte, n/3)); err != nil {
			t.Fatal(err)
		}
		if s.calls != i+1 {
			t.Fatalf("%d writes after %d records", s.calls, i+1)
		}
	}
	for range 10 {
		if err := w.AddParts([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if s.calls != 4 || w.Offset() == int64(s.Len()) {
		t.Fatalf("AddParts wrote")
	}
	if err := w.Append(nil); err != nil || s.calls != 5 || w.Offset() != int64(s.Len()) {
		t.Fatalf("a group of 11 records made %d writes, err %v", s.calls-4, err)
	}
	if err := w.Flush(); err != nil || s.calls != 5 {
		t.Fatalf("with nothing to write Flush made %d writes, err %v", s.calls-5, err)
	}
	if err := w.Append(make([]byte, 10*flushBytes)); err != nil || s.most > 2*flushBytes {
		t.Fatalf("a huge record made writes of %d bytes, err %v", s.most, err)
	}
}

func TestWriteErrorSticks(t *testing.T) {
	cause := errors.New("disk failure")
	for _, tc := range []struct {
		desc  string
		limit int
		err   error
		want  error
	}{
		{"nothing written", 0, cause, cause},
		{"some written", 5, cause, cause},
		{"all written and yet an error", 1 << 20, cause, cause},
		{"short write without an error", 5, nil, io.ErrShortWrite},
	} {
		s := &scriptWriter{fail: 1, limit: tc.limit, err: tc.err}
		w := NewWriter(s)
		if err := w.Append([]byte("first")); err != nil {
			t.Fatal(err)
		}
		err := w.Append([]byte("second"))
		if !errors.Is(err, tc.want) {
			t.Fatalf("%s: %v, want %v", tc.desc, err, tc.want)
		}
		calls := s.calls
		for _, again := range []error{w.Append([]byte("third")), w.AddParts(nil), w.Flush(), w.AppendParts()} {
			if again != err {
				t.Fatalf("%s: then %v, want %v", tc.desc, again, err)
			}
		}
		if s.calls != calls {
			t.Fatalf("%s: written to after the failure", tc.desc)
		}
	}
}

func TestAppendDoesNotAllocate(t *testing.T) {
	w := NewWriter(io.Discard)
	header, body := make([]byte, 12), make([]byte, 1000)
	n := testing.AllocsPerRun(1000, func() {
		if err := w.AppendParts(header, body); err != nil {
			t.Fatal(err)
		}
	})
	if n > 0 {
		t.Fatalf("%v allocations per record", n)
	}
}

// TestStrict checks the records, the tail and the salvaged records of small handmade logs.
func TestStrict(t *testing.T) {
	full := func(s string) string { return rawChunk(typeFull, s) }
	zeros := strings.Repeat("\x00", BlockSize)
	a, b := full("a"), full("b") // 8 bytes each
	// A chunk that fills the block after one of 8 bytes.
	fill := full(strings.Repeat("f", BlockSize-8-HeaderLen))
	for _, tc := range []struct {
		desc     string
		data     string
		records  string // one letter each
		kind     TailKind
		offset   int64
		bad      int64
		next     int64
		cause    error
		salvaged string
	}{
		{desc: "empty file"},
		{desc: "a tail of zeros shorter than a header", data: a + "\x00\x00", records: "a", kind: Zeros, offset: 8, bad: 8, next: -1, cause: errZeros},
		{desc: "a preallocated tail", data: a + zeros, records: "a", kind: Zeros, offset: 8, bad: 8, next: -1, cause: errZeros},
		{desc: "a preallocated tail of several blocks", data: a + fill + zeros + zeros[:100], records: "af", kind: Zeros, offset: BlockSize, bad: BlockSize, next: -1, cause: errZeros},
		{desc: "nothing but zeros", data: zeros, kind: Zeros, next: -1, cause: errZeros},
		{desc: "zeros with one bit in the last byte", data: a + zeros + zeros[:200] + "\x01", records: "a", kind: Torn, offset: 8, bad: 8, next: -1, cause: errZeros},
		{desc: "a record that is torn before zeros", data: a + full("bbbb")[:9] + zeros, records: "a", kind: Torn, offset: 8, bad: 8, next: -1, cause: ErrChecksum},
		{desc: "a record that has begun before zeros", data: a + rawChunk(typeFirst, "b") + zeros, records: "a", kind: Torn, offset: 8, bad: 16, next: -1, cause: errZeros},
		{desc: "zeros and then a record in the same block", data: a + zeros[:100] + b, records: "a", kind: Damaged, offset: 8, bad: 8, next: 108, cause: errZeros, salvaged: "b"},
		{desc: "zeros up to the end of the block and then a record", data: a + zeros[8:] + b, records: "a", kind: Damaged, offset: 8, bad: 8, next: BlockSize, cause: errZeros, salvaged: "b"},
		{desc: "cut in the header", data: a + b[:3], records: "a", kind: Torn, offset: 8, bad: 8, next: -1, cause: errCut},
		{desc: "cut in the payload", data: a + b[:7], records: "a", kind: Torn, offset: 8, bad: 8, next: -1, cause: errCut},
		{desc: "checksum", data: a + "X" + b[1:], records: "a", kind: Torn, offset: 8, bad: 8, next: -1, cause: ErrChecksum},
		{desc: "checksum of a record that another follows", data: a + "X" + b[1:] + a, records: "a", kind: Damaged, offset: 8, bad: 8, next: 16, cause: ErrChecksum, salvaged: "a"},
		{desc: "unknown type", data: rawChunk(5, "a") + b, kind: Damaged, next: 8, cause: errType, salvaged: "b"},
		{desc: "type 0 with a valid checksum", data: rawChunk(0, ""), kind: Torn, next: -1, cause: errType},
		{desc: "length exceeds the block", data: a + "abcd\xff\xff\x01" + b, records: "a", kind: Damaged, offset: 8, bad: 8, next: 15, cause: errLength, salvaged: "b"},
		{desc: "length exceeds the file", data: a + "abcd\x50\x00\x01" + b, records: "a", kind: Damaged, offset: 8, bad: 8, next: 15, cause: errCut, salvaged: "b"},
		{desc: "first without its last at the end", data: a + rawChunk(typeFirst, "b"), records: "a", kind: Torn, offset: 8, bad: 16, next: -1, cause: errCut},
		{desc: "middle without its last at the end", data: rawChunk(typeFirst, "a") + rawChunk(typeMiddle, "b"), kind: Torn, bad: 16, next: -1, cause: errCut},
		{desc: "first and then full", data: a + rawChunk(typeFirst, "x") + b, records: "a", kind: Damaged, offset: 8, bad: 8, next: 16, cause: errNoLast, salvaged: "b"},
		{desc: "first and then first", data: rawChunk(typeFirst, "x") + rawChunk(typeFirst, "") + rawChunk(typeLast, "b"), kind: Damaged, next: 8, cause: errNoLast, salvaged: "b"},
		{desc: "middle without first", data: a + rawChunk(typeMiddle, "x") + b, records: "a", kind: Damaged, offset: 8, bad: 8, next: 8, cause: errNoFirst, salvaged: "b"},
		{desc: "last without first at the end", data: a + rawChunk(typeLast, "x"), records: "a", kind: Damaged, offset: 8, bad: 8, next: 8, cause: errNoFirst},
		{desc: "bad middle", data: rawChunk(typeFirst, "x") + "X" + rawChunk(typeMiddle, "y")[1:] + rawChunk(typeLast, "z") + b, kind: Damaged, bad: 8, next: 16, cause: ErrChecksum, salvaged: "b"},
		{desc: "a valid chunk begins within the bad one's header", data: a + "\xff\xff\xff" + b, records: "a", kind: Damaged, offset: 8, bad: 8, next: 11, cause: errType, salvaged: "b"},
		{desc: "past the damage, a record whose middle is bad", data: "X" + a[1:] + rawChunk(typeFirst, "x") + "X" + rawChunk(typeMiddle, "y")[1:] + rawChunk(typeLast, "z") + b, kind: Damaged, next: 8, cause: ErrChecksum, salvaged: "b"},
		{desc: "past the damage, a record that another interrupts", data: "X" + a[1:] + rawChunk(typeFirst, "x") + b + rawChunk(typeLast, "z") + a, kind: Damaged, next: 8, cause: ErrChecksum, salvaged: "ba"},
		{desc: "past the damage, a valid checksum of an unknown type", data: "X" + a[1:] + rawChunk(5, "x") + b, kind: Damaged, next: 16, cause: ErrChecksum, salvaged: "b"},
		{desc: "past the damage, an empty first chunk that ends its block", data: "X" + a[1:] + full(strings.Repeat("f", BlockSize-8-2*HeaderLen)) + rawChunk(typeFirst, "") + rawChunk(typeLast, "s"), kind: Damaged, next: 8, cause: ErrChecksum, salvaged: "fs"},
		{desc: "all but an empty first chunk of a block is bad", data: "X" + full(strings.Repeat("f", BlockSize-2*HeaderLen))[1:] + rawChunk(typeFirst, "") + rawChunk(typeLast, "s"), kind: Damaged, next: BlockSize - HeaderLen, cause: ErrChecksum, salvaged: "s"},
		{desc: "type 0 with a length", data: a + zeros[:4] + "\x01\x00\x00x", records: "a", kind: Torn, offset: 8, bad: 8, next: -1, cause: errType},
		{desc: "two bad places", data: a + "X" + b[1:] + a + "X" + b[1:] + b, records: "a", kind: Damaged, offset: 8, bad: 8, next: 16, cause: ErrChecksum, salvaged: "ab"},
		{desc: "the padding of a block is not checked", data: full(strings.Repeat("f", BlockSize-HeaderLen-6)) + "filler" + b, records: "fb", offset: BlockSize + 8},
		{desc: "the file ends in the padding of a block", data: full(strings.Repeat("f", BlockSize-HeaderLen-6)) + "fil", records: "f", offset: BlockSize - 3},
		{desc: "the file ends with a block", data: a + fill, records: "af", offset: BlockSize},
		{desc: "a chunk that would span blocks is invalid", data: a + "X" + fill[1:len(fill)-12] + full(strings.Repeat("s", 20)), records: "a", kind: Torn, offset: 8, bad: 8, next: -1, cause: ErrChecksum},
	} {
		t.Run(tc.desc, func(t *testing.T) {
			letters := func(items []item) (s string) {
				for _, it := range items {
					s += string(it.payload[:1])
				}
				return s
			}
			items, tail, salvaged := readAll(t, []byte(tc.data))
			want := Tail{Kind: tc.kind, Offset: tc.offset, Next: tc.next}
			if tc.kind == Clean {
				want.Offset, want.Next = int64(len(tc.data)), -1
			}
			want.Dropped, want.Err = int64(len(tc.data))-want.Offset, tail.Err
			if letters(items) != tc.records || tail != want || letters(salvaged) != tc.salvaged {
				t.Fatalf("records %q, tail %+v, salvaged %q", letters(items), tail, letters(salvaged))
			}
			if !errors.Is(tail.Err, tc.cause) {
				t.Fatalf("tail error %v, want cause %v", tail.Err, tc.cause)
			}
			if ce := (*base.CorruptionError)(nil); errors.As(tail.Err, &ce) && ce.Offset != tc.bad {
				t.Fatalf("bad chunk at %d, want %d", ce.Offset, tc.bad)
			}
		})
	}
}

func TestSalvageStops(t *testing.T) {
	a := rawChunk(typeFull, "a")
	two := rawChunk(typeFirst, "f") + rawChunk(typeLast, "l")
	for _, rest := range []string{a + a + a, two + two + two, a + two + a} {
		data := "X" + a[1:] + rest
		r := NewReader(strings.NewReader(data), int64(len(data)), "log")
		if _, _, err := r.Next(); err != io.EOF {
			t.Fatal(err)
		}
		n := 0
		if err := r.Salvage(func([]byte, int64) bool { n++; return n < 2 }); err != nil || n != 2 {
			t.Fatalf("%d calls, err %v", n, err)
		}
	}
}

func TestTailKinds(t *testing.T) {
	for k, want := range map[TailKind]string{Clean: "clean", Zeros: "zeros", Torn: "torn", Damaged: "damaged"} {
		if got := k.String(); got != want {
			t.Errorf("%d is %q, want %q", k, got, want)
		}
	}
}

// flakyReader fails from the n-th call on, or only then.
type flakyReader struct {
	io.ReaderAt
	n    int
	err  error
	once bool
}

func (f *flakyReader) ReadAt(p []byte, off int64) (int, error) {
	if f.n--; f.n == -1 || f.n < 0 && !f.once {
		return 0, f.err
	}
	return f.ReaderAt.ReadAt(p, off)
}

func TestReadErrors(t *testing.T) {
	cause := errors.New("bad sector")
	// A damaged record in the first block, evidence in the third.
	data, _ := writeAll(t, []byte("a"), make([]byte, 2*BlockSize), []byte("b"))
	data[10] ^= 1
	clear(data[100:])
	data = append(data, rawChunk(typeFull, "z")...)
	for n := range 4 {
		r := NewReader(&flakyReader{ReaderAt: bytes.NewReader(data), n: n, err: cause}, int64(len(data)), "000003.log")
		var err error
		for err == nil {
			_, _, err = r.Next()
		}
		if n < 3 {
			if !errors.Is(err, cause) || !strings.Contains(err.Error(), "000003.log") || errors.Is(err, base.ErrCorruption) {
				t.Fatalf("%d reads: %v", n, err)
			}
			if _, _, again := r.Next(); again != err {
				t.Fatalf("%d reads: then %v", n, again)
			}
		} else if err != io.EOF || r.Tail().Kind != Damaged {
			t.Fatalf("%d reads: %v, tail %+v", n, err, r.Tail())
		}
	}
	// The file has shrunk since its size was read.
	r := NewReader(bytes.NewReader(data), int64(len(data))+10, "000003.log")
	var err error
	for err == nil {
		_, _, err = r.Next()
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("shrunken file: %v", err)
	}
}

// TestSalvageReadErrors fails each read while Salvage looks for records after damage: an unread
// record must not pass for a missing one.
func TestSalvageReadErrors(t *testing.T) {
	gaps, _ := writeAll(t, []byte("a"), make([]byte, 2*BlockSize), []byte("b"))
	clear(gaps[100 : BlockSize+300])
	gaps = append(gaps, rawChunk(typeFull, "z")...)
	// Another damaged stretch, and a record after it.
	gaps = append(gaps, make([]byte, 4*BlockSize-len(gaps)%BlockSize)...)
	gaps = append(gaps, rawChunk(typeFull, "y")...)
	gaps = append(gaps, make([]byte, 2*BlockSize)...)
	// After the damage everything is intact, over several blocks.
	whole, _ := writeAll(t, []byte("a"), make([]byte, 2*BlockSize), []byte("y"))
	for _, data := range [][]byte{gaps, whole} {
		data[7] ^= 1
		salvageReadErrors(t, data)
	}
}

// salvageReadErrors checks that Salvage either finds the record "y" or returns the read error.
func salvageReadErrors(t *testing.T, data []byte) {
	t.Helper()
	cause := errors.New("bad sector")
	for _, once := range []bool{false, true} {
		for n := 0; ; n++ {
			flaky := &flakyReader{ReaderAt: bytes.NewReader(data), n: 1 << 30, err: cause, once: once}
			r := NewReader(flaky, int64(len(data)), "000003.log")
			var err error
			for err == nil {
				_, _, err = r.Next()
			}
			if err != io.EOF || r.Tail().Kind != Damaged {
				t.Fatalf("%v, tail %+v", err, r.Tail())
			}
			flaky.n = n
			found := 0
			err = r.Salvage(func(payload []byte, _ int64) bool {
				if string(payload) == "y" {
					found++
				}
				return true
			})
			if flaky.n >= 0 { // no read has failed
				if err != nil || found != 1 {
					t.Errorf("%v, and the record is found %d times", err, found)
				}
				if n == 0 {
					t.Error("no read failed")
				}
				break
			}
			if !errors.Is(err, cause) {
				t.Fatalf("read %d fails: %v", n, err)
			}
		}
	}
}

// TestZerosReadErrors fails each read of a log with zeros after its records: the error must be
// returned.
func TestZerosReadErrors(t *testing.T) {
	cause := errors.New("bad sector")
	data, _ := writeAll(t, []byte("a"))
	data = append(data, make([]byte, 3*BlockSize)...)
	for _, once := range []bool{false, true} {
		for n := 0; ; n++ {
			flaky := &flakyReader{ReaderAt: bytes.NewReader(data), n: n, err: cause, once: once}
			r := NewReader(flaky, int64(len(data)), "000003.log")
			var err error
			for err == nil {
				_, _, err = r.Next()
			}
			if flaky.n >= 0 {
				if err != io.EOF || r.Tail().Kind != Zeros || n < 3 {
					t.Errorf("%v after %d reads, tail %+v", err, n, r.Tail())
				}
				break
			}
			if !errors.Is(err, cause) {
				t.Fatalf("read %d fails: %v, tail %+v", n, err, r.Tail())
			}
		}
	}
}

// failingWriter fails after a number of bytes.
type failingWriter struct {
	left  int
	cause error
}

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, w.cause
	}
	return len(p), nil
}

// TestHugeRecordWriteError checks that a write error in the middle of a record that takes several
// writes is returned, and returned again by Flush.
func TestHugeRecordWriteError(t *testing.T) {
	cause := errors.New("disk full")
	for _, space := range []int{0, flushBytes + BlockSize, 2*flushBytes + 2*BlockSize} {
		w := NewWriter(&failingWriter{space, cause})
		if err := w.AddParts(make([]byte, 4*flushBytes)); !errors.Is(err, cause) {
			t.Errorf("space for %d bytes: %v", space, err)
		}
		if err := w.Flush(); !errors.Is(err, cause) {
			t.Errorf("space for %d bytes: then %v", space, err)
		}
	}
}
