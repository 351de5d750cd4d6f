package xxh3

import "testing"

// input returns n bytes from a linear congruential generator.
func input(n int) []byte {
	b := make([]byte, n)
	x := uint64(1)
	for i := range b {
		x = x*6364136223846793005 + 1442695040888963407
		b[i] = byte(x >> 56)
	}
	return b
}

// TestSum64 compares Sum64 with another implementation of the specification, github.com/zeebo/xxh3
// 1.1.0, for prefixes of one input.
func TestSum64(t *testing.T) {
	b := input(5000)
	for _, c := range []struct {
		n    int
		want uint64
	}{
		{0, 0x2d06800538d394c2},
		{1, 0xc00f9d4f580c0c3a},
		{2, 0xb248061fb52bd64c},
		{3, 0xe92112d1e602af4a},
		{4, 0x9008de7e100606d1},
		{7, 0x7187a1232e2d811b},
		{8, 0xcca6ee6f8e080c52},
		{9, 0x568f9d2e69ad8bd0},
		{15, 0xf79a07c55bebf28a},
		{16, 0x600a07a4f5a9911c},
		{17, 0xdeab0265f35dfc24},
		{32, 0xd04581c566616653},
		{33, 0xe2f96cd271e72881},
		{64, 0xad0685dabb3ce66b},
		{65, 0x7d4e3da065c21b2d},
		{96, 0xbf9a1938301428ca},
		{97, 0xae7c260494b7847c},
		{128, 0x410bd3b4d8d84f51},
		{129, 0x55964eec39625032},
		{144, 0x827fbbc03ec48dd7},
		{240, 0x977b659bdc81fdb1},
		{241, 0x2cb1ed4a30c8bded},
		{256, 0x7fd97c6450f19383},
		{1023, 0x296b8bdbd696752e},
		{1024, 0x5ec111a1e5a293ae},
		{1025, 0x5ea0264528a903fc},
		{1088, 0x5caa733531330766},
		{1089, 0x093aae8d6736e7b3},
		{2048, 0x82651c64d545e737},
		{5000, 0x215db44dee9150c0},
	} {
		if got := Sum64(b[:c.n]); got != c.want {
			t.Errorf("%d bytes: %#016x, want %#016x", c.n, got, c.want)
		}
	}
	var all uint64
	for n := range len(b) + 1 {
		all = all*31 + Sum64(b[:n])
	}
	if want := uint64(0xfdec948b521011e6); all != want {
		t.Errorf("all prefixes: %#016x, want %#016x", all, want)
	}
	if n := testing.AllocsPerRun(10, func() { Sum64(b) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
