package filter

import (
	"bytes"
	"encoding/hex"
	"testing"
)

func TestJoinUnits(t *testing.T) {
	block, err := JoinUnits([][]byte{[]byte("ab"), []byte("c")})
	if err != nil {
		t.Fatal(err)
	}
	const want = "63" + "0000000000000000000000000000000000000000000000" + "0100000000000000" +
		"6162" + "2000000000000000" + "020000006a756e74"
	if got := hex.EncodeToString(block); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	units, err := SplitUnits(block)
	if err != nil || len(units) != 2 || string(units[0]) != "ab" || string(units[1]) != "c" {
		t.Errorf("split gives %q, %v", units, err)
	}
	for n := range len(block) {
		if units, err := SplitUnits(block[:n]); err == nil {
			t.Errorf("the first %d bytes split into %q", n, units)
		}
	}
	for i := range block {
		b := bytes.Clone(block)
		for _, flip := range []byte{0x01, 0x80, 0xff} {
			b[i] = block[i] ^ flip
			units, err := SplitUnits(b)
			if err != nil {
				continue
			}
			again, err := JoinUnits(units)
			if err != nil || !bytes.Equal(again, b) {
				t.Errorf("byte %d flipped: %q, which do not join to that", i, units)
			}
		}
	}
	if _, err := JoinUnits(nil); err == nil {
		t.Error("no units are joined")
	}
	if _, err := JoinUnits(make([][]byte, 65)); err == nil {
		t.Error("65 units are joined")
	}
}
