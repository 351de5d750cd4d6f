package ribbon_test

import (
	"math/bits"
	"slices"
	"testing"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/filter/internal/ribbon"
)

func BenchmarkMany(b *testing.B) {
	const n, perTurn = 2_000_000, 1 << 14
	present := keys(1, n)
	var bl ribbon.Builder
	for _, k := range present {
		bl.Add(filter.Hash(k))
	}
	cols := []ribbon.Columns{{0, 4, 0}, {4, 4, 0}, {8, 2, 0}}
	f := bl.Build(cols, 0)
	var t1, t3 []ribbon.Table
	var pl0 [][]byte
	for range 128 {
		var pl []ribbon.Plane
		for i := range cols {
			pl = append(pl, ribbon.Plane{cols[i], slices.Clone(f.Planes[i])})
		}
		th := slices.Clone(f.Thresholds)
		t, _ := ribbon.NewTable(f.Layers, th, pl)
		t3 = append(t3, t)
		t, _ = ribbon.NewTable(f.Layers, th, pl[:1])
		t1 = append(t1, t)
		pl0 = append(pl0, pl[0].Data)
	}
	asked := make([]uint64, 64*perTurn)
	for i, k := range keys(2, len(asked)) {
		asked[i] = filter.Hash(k)
	}
	one := func(turn int) {
		k, step := asked[turn*perTurn%len(asked):][:perTurn], turn*31
		for i := range k {
			if t3[(i/64+step)&127].Contains(k[i]) {
				sink++
			}
		}
	}
	batch := func(tt []ribbon.Table, max int) func(turn int) {
		return func(turn int) {
			k, step := asked[turn*perTurn%len(asked):][:perTurn], turn*31
			var maybe [64]bool
			for i := 0; i < len(k); i += max {
				tt[(i/64+step)&127].ContainsMany(k[i:i+max], maybe[:])
			}
		}
	}
	b.Run("three", func(b *testing.B) { turns(b, perTurn, batch(t3, 64), one) })
	b.Run("one", func(b *testing.B) { turns(b, perTurn, batch(t1, 64), one) })
	b.Run("three16", func(b *testing.B) { turns(b, perTurn, batch(t3, 16), one) })
	floor := func(span int) func(turn int) {
		return func(turn int) {
			k, step := asked[turn*perTurn%len(asked):][:perTurn], turn*31
			s := byte(0)
			for i, h := range k {
				p := pl0[(i/64+step)&127]
				at, _ := bits.Mul64(h, uint64(len(p)/32-4))
				s ^= p[at*32] ^ p[int(at)*32+span]
			}
			sink += int(s)
		}
	}
	b.Run("floor1", func(b *testing.B) { turns(b, perTurn, floor(0), one) })
	b.Run("floor64", func(b *testing.B) { turns(b, perTurn, floor(63), one) })
}
