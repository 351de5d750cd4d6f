package manifest

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/siftdb/sift/internal/base"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == '|' }), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func key(user string, seq uint64) []byte {
	return base.AppendInternalKey(nil, []byte(user), seq, base.KindSet)
}

func ptr[T any](v T) *T { return &v }

// fullEdit has every field.
func fullEdit() *Edit {
	return &Edit{
		Comparator: ptr("leveldb.BytewiseComparator"),
		LogNumber:  ptr(uint64(4)), PrevLogNum: ptr(uint64(0)), NextFile: ptr(uint64(1 << 40)), LastSeq: ptr(base.MaxSequence),
		Pointers: []Pointer{{0, key("", 9)}, {6, key("k", 1)}},
		Deleted:  []DeletedTable{{1, 3}, {2, 4}},
		Added: []AddedTable{
			{0, &TableMeta{Num: 7, Size: 0, Smallest: key("", 9), Largest: key("", 8)}},
			{6, &TableMeta{Num: 9, Size: 1 << 50, Smallest: key("a", 9), Largest: key(strings.Repeat("b", 300), 8)}},
		},
	}
}

func TestEditExample(t *testing.T) {
	want := unhex(t, "02 04 | 03 06 | 07 02 05 98 08 09 61 01 03 00 00 00 00 00 00 09 62 01 01 00 00 00 00 00 00")
	e := &Edit{LogNumber: ptr(uint64(4)), NextFile: ptr(uint64(6)),
		Added: []AddedTable{{2, &TableMeta{Num: 5, Size: 1048, Smallest: key("a", 3), Largest: key("b", 1)}}}}
	if got := e.appendTo(nil); !bytes.Equal(got, want) {
		t.Errorf("encoded % x\n   want % x", got, want)
	}
	got, err := DecodeEdit(want)
	if err != nil || !reflect.DeepEqual(got, e) {
		t.Errorf("decoded %+v, %v", got, err)
	}
}

func TestEditRoundTrip(t *testing.T) {
	for _, e := range []*Edit{{}, fullEdit()} {
		b := e.appendTo(nil)
		got, err := DecodeEdit(b)
		if err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("%+v came back as %+v, %v", e, got, err)
		}
		// The edit must not refer to the record.
		for i := range b {
			b[i] = 0xee
		}
		if !reflect.DeepEqual(got, e) {
			t.Error("the edit aliases the record")
		}
	}
}

func TestDecodeEditRefuses(t *testing.T) {
	for _, tc := range []struct {
		desc, hex   string
		unsupported bool
	}{
		{"tag 0", "00", true},
		{"LevelDB's former tag 8", "08 00 01", true},
		{"a tag of pebble", "64 00", true},
		{"a tag of 64 bits", "81 80 80 80 80 80 80 80 80 01", false},
		{"comparator without length", "01", false},
		{"comparator longer than the edit", "01 05 61", false},
		{"comparator of 2^63 bytes", "01 80 80 80 80 80 80 80 80 80 01 61", false},
		{"varint of eleven bytes", "02 80 80 80 80 80 80 80 80 80 80 01", false},
		{"log number cut off", "02 80", false},
		{"log number out of range", "02 ff ff ff ff ff ff ff ff ff 01", false},
		{"next file number out of range", "03 ff ff ff ff ff ff ff ff 7f", false},
		{"last sequence of 57 bits", "04 80 80 80 80 80 80 80 80 01", false},
		{"pointer of level 65536", "05 80 80 04 08 01 01 00 00 00 00 00 00", true},
		{"pointer with a key of 7 bytes", "05 01 07 01 00 00 00 00 00 00", false},
		{"pointer with kind 2", "05 01 08 02 01 00 00 00 00 00 00", false},
		{"deleted table of level 65536", "06 80 80 04 01", true},
		{"deleted table of level 2^32", "06 80 80 80 80 10 01", false},
		{"new table of level 2^31", "07 80 80 80 80 08 05 01 08 01 00 00 00 00 00 00 00 08 01 00 00 00 00 00 00 00", true},
		{"new table with a short key", "07 00 05 01 07 01 00 00 00 00 00 00 08 01 00 00 00 00 00 00 00", false},
		{"new table with an empty key", "07 00 05 01 00 00", false},
		{"new table whose smallest key is above its largest", "07 00 05 01 09 62 01 00 00 00 00 00 00 00 09 61 01 00 00 00 00 00 00 00", false},
		{"new table without its largest key", "07 00 05 01 09 61 01 00 00 00 00 00 00 00", false},
		{"new table with a number out of range", "07 00 ff ff ff ff ff ff ff ff 7f 01 09 61 01 00 00 00 00 00 00 00 09 61 01 00 00 00 00 00 00 00", false},
		{"garbage after a field", "02 04 ff", false},
	} {
		e, err := DecodeEdit(unhex(t, tc.hex))
		if err == nil {
			t.Errorf("%s: decoded as %+v", tc.desc, e)
		} else if errors.Is(err, base.ErrUnsupported) != tc.unsupported {
			t.Errorf("%s: %v", tc.desc, err)
		}
	}
	// The largest file number and the deepest level are in range.
	for _, text := range []string{
		"03 ff ff ff ff ff ff ff ff 3f",
		"06 ff ff 03 01",
		"07 00 ff ff ff ff ff ff ff ff 3f 01 09 61 01 00 00 00 00 00 00 00 09 61 01 00 00 00 00 00 00 00",
	} {
		if _, err := DecodeEdit(unhex(t, text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	// Every prefix of an edit either ends between two fields or is refused.
	b := fullEdit().appendTo(nil)
	for n := range b {
		if e, err := DecodeEdit(b[:n]); err == nil && !bytes.Equal(e.appendTo(nil), b[:n]) {
			t.Errorf("cut to %d bytes it decodes as %+v", n, e)
		}
	}
}

func FuzzDecodeEdit(f *testing.F) {
	f.Add(fullEdit().appendTo(nil))
	f.Add(unhex(f, "02 04 03 06 07 02 05 98 08 09 61 01 03 00 00 00 00 00 00 09 62 01 01 00 00 00 00 00 00"))
	f.Add(unhex(f, "01 80 80 80 80 80 80 80 80 80 01 61"))
	r := rand.New(rand.NewPCG(1, 1))
	b := fullEdit().appendTo(nil)
	for range 20 {
		c := bytes.Clone(b)
		c[r.IntN(len(c))] ^= byte(1 + r.IntN(255))
		f.Add(c)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeEdit(b)
		if err != nil {
			return
		}
		// A decoded edit survives a round trip.
		again, err := DecodeEdit(e.appendTo(nil))
		if err != nil || !reflect.DeepEqual(e, again) {
			t.Fatalf("% x decodes as %+v, then as %+v, %v", b, e, again, err)
		}
		if _, err := (*Version)(nil).Apply(e); err == nil && len(e.Deleted) > 0 {
			t.Fatal("a deletion from nothing was applied")
		}
	})
}
