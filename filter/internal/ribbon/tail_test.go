package ribbon

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// TestProbeTail compares ProbeTail with probeTailPlain: on an intact block, with each bit of its
// layers and its tail flipped, and with any number of bytes missing at the beginning.
func TestProbeTail(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var b Builder
	const n = 3000
	hashes := make([]uint64, n)
	for i := range hashes {
		hashes[i] = rng.Uint64()
		b.Add(hashes[i])
	}
	f := b.Build([]Columns{{Count: PlaneColumns}}, 0)
	segments, _, err := f.Layers.Sizes()
	if err != nil || f.Layers.Len() < 2 {
		t.Fatal(f.Layers, err)
	}
	block := append([]byte("other"), f.Planes[0]...)
	block = append(append(block, f.Thresholds...), f.Layers...)
	tail := len(block)
	block = binary.LittleEndian.AppendUint32(block, uint32(segments))
	block = append(block, 0, 0, 0, 0, PlaneColumns, byte(f.Layers.Len()), 0, 0)
	if f.Layers.BumpsBucket(f.Thresholds) {
		block[len(block)-1] = 1
	}
	block = append(block, 1, 2, 3, 4)
	block = binary.LittleEndian.AppendUint64(block, 5)
	block = append(block, "trailer."...)
	for range n {
		hashes = append(hashes, rng.Uint64())
	}
	var verdicts [3]int
	for i, h := range hashes {
		got, want := ProbeTail(block, h), probeTailPlain(block, h)
		if got != want || i < n && got == Rejected {
			t.Fatalf("hash %d: %d, plain %d", i, got, want)
		}
		verdicts[got]++
	}
	if verdicts[Rejected] < n*8/10 || verdicts[Passed] < n/2 || verdicts[Elsewhere] == 0 {
		t.Errorf("verdicts %v", verdicts)
	}
	for i := tail - len(f.Layers); i < len(block); i++ {
		for bit := range 8 {
			block[i] ^= 1 << bit
			for _, h := range hashes[n-20 : n+20] {
				if got, want := ProbeTail(block, h), probeTailPlain(block, h); got != want {
					t.Fatalf("byte %d, bit %d: %d, plain %d", i-tail, bit, got, want)
				}
			}
			block[i] ^= 1 << bit
		}
	}
	for cut := range len(block) - TailSize {
		for _, h := range hashes[n-2 : n+2] {
			if got, want := ProbeTail(block[cut:], h), probeTailPlain(block[cut:], h); got != want {
				t.Fatalf("without the first %d bytes: %d, plain %d", cut, got, want)
			}
		}
	}
}
