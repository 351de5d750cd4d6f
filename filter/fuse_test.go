package filter

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
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
