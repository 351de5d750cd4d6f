package ribbon_test

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/filter/internal/ribbon"
)

func BenchmarkFloor(b *testing.B) {
	const n, perTurn = 3_200_000, 1 << 14
	present := keys(1, n)
	block := buildTheirs(present)
	var blocks [][]byte
	var u0 [][]byte
	var readers []filter.Reader
	p := filter.Ribbon(10)
	units := buildOurs(b, p, present)
	for range 64 {
		blocks = append(blocks, slices.Clone(block))
		var u [][]byte
		for _, x := range units {
			u = append(u, slices.Clone(x))
		}
		u0 = append(u0, u[0])
		r, err := p.Open(u)
		if err != nil {
			b.Fatal(err)
		}
		readers = append(readers, r)
	}
	asked := keys(2, 64*perTurn)
	policy := bloom.FilterPolicy(10)
	theirs := func(turn int) {
		k, step := asked[turn*perTurn%len(asked):][:perTurn], turn*31
		for i := range k {
			if policy.MayContain(pebble.TableFilter, blocks[(i*7919+step)&(len(blocks)-1)], k[i]) {
				sink++
			}
		}
	}
	b.Run("ours", func(b *testing.B) {
		turns(b, perTurn, func(turn int) {
			k, step := asked[turn*perTurn%len(asked):][:perTurn], turn*31
			for i := range k {
				if readers[(i*7919+step)&(len(readers)-1)].MayContain(filter.NewKey(k[i])) {
					sink++
				}
			}
		}, theirs)
	})
	hashed := make([]filter.Key, len(asked))
	for i, k := range asked {
		hashed[i] = filter.NewKey(k)
	}
	b.Run("prehashed", func(b *testing.B) {
		turns(b, perTurn, func(turn int) {
			k, step := hashed[turn*perTurn%len(asked):][:perTurn], turn*31
			for i := range k {
				if readers[(i*7919+step)&(len(readers)-1)].MayContain(k[i]) {
					sink++
				}
			}
		}, theirs)
	})
	b.Run("hash4", func(b *testing.B) {
		turns(b, perTurn, func(turn int) {
			k, step := asked[turn*perTurn%len(asked):][:perTurn], turn*31
			for i := range k {
				bl := u0[(i*7919+step)&(len(u0)-1)]
				h := filter.Hash(k[i])
				at, _ := bits.Mul64(h, uint64(len(bl)/32-1))
				d := bl[at*32 : at*32+64]
				if d[0]&d[8]&d[16]&d[24]^d[32]&d[40]&d[48]&d[56] == 255 {
					sink++
				}
			}
		}, theirs)
	})
	b.Run("hashthr", func(b *testing.B) {
		turns(b, perTurn, func(turn int) {
			k, step := asked[turn*perTurn%len(asked):][:perTurn], turn*31
			for i := range k {
				bl := u0[(i*7919+step)&(len(u0)-1)]
				h := filter.Hash(k[i])
				at, _ := bits.Mul64(h, uint64(len(bl)/32-10))
				if bl[len(bl)-28-int(at/64)]&3 == 0 {
					continue
				}
				if (bl[at*32]^bl[at*32+63])&15 == 0 {
					sink++
				}
			}
		}, theirs)
	})
	b.Run("kernel", func(b *testing.B) {
		turns(b, perTurn, func(turn int) {
			k, step := asked[turn*perTurn%len(asked):][:perTurn], turn*31
			for i := range k {
				bl := u0[(i*7919+step)&(len(u0)-1)]
				if kernel(bl, filter.Hash(k[i])) {
					sink++
				}
			}
		}, theirs)
	})
	b.Run("kernelthr", func(b *testing.B) {
		turns(b, perTurn, func(turn int) {
			k, step := asked[turn*perTurn%len(asked):][:perTurn], turn*31
			for i := range k {
				bl := u0[(i*7919+step)&(len(u0)-1)]
				if kernelthr(bl, filter.Hash(k[i])) {
					sink++
				}
			}
		}, theirs)
	})
	b.Run("kernelbl", func(b *testing.B) {
		turns(b, perTurn, func(turn int) {
			k, step := asked[turn*perTurn%len(asked):][:perTurn], turn*31
			for i := range k {
				bl := u0[(i*7919+step)&(len(u0)-1)]
				sink += int(kernelbl(bl, filter.Hash(k[i])))
			}
		}, theirs)
	})
	b.Run("kernelblpre", func(b *testing.B) {
		turns(b, perTurn, func(turn int) {
			k, step := hashed[turn*perTurn%len(asked):][:perTurn], turn*31
			for i := range k {
				bl := u0[(i*7919+step)&(len(u0)-1)]
				sink += int(kernelbl(bl, k[i].Hash))
			}
		}, theirs)
	})
	b.Run("kernelpre", func(b *testing.B) {
		turns(b, perTurn, func(turn int) {
			k, step := hashed[turn*perTurn%len(asked):][:perTurn], turn*31
			for i := range k {
				bl := u0[(i*7919+step)&(len(u0)-1)]
				if kernel(bl, k[i].Hash) {
					sink++
				}
			}
		}, theirs)
	})
	var tables []ribbon.Table
	{
		var bl ribbon.Builder
		for _, k := range present {
			bl.Add(filter.Hash(k))
		}
		cols := []ribbon.Columns{{0, 4, 0}, {4, 4, 0}, {8, 2, 0}}
		f := bl.Build(cols, 0)
		for range len(readers) {
			var pl []ribbon.Plane
			for i := range cols {
				pl = append(pl, ribbon.Plane{cols[i], slices.Clone(f.Planes[i])})
			}
			t, err := ribbon.NewTable(f.Layers, slices.Clone(f.Thresholds), pl)
			if err != nil {
				b.Fatal(err)
			}
			tables = append(tables, t)
		}
	}
	b.Run("direct", func(b *testing.B) {
		turns(b, perTurn, func(turn int) {
			k, step := asked[turn*perTurn%len(asked):][:perTurn], turn*31
			for i := range k {
				if tables[(i*7919+step)&(len(readers)-1)].Contains(filter.Hash(k[i])) {
					sink++
				}
			}
		}, theirs)
	})
	b.Run("oneline", func(b *testing.B) {
		turns(b, perTurn, func(turn int) {
			k, step := asked[turn*perTurn%len(asked):][:perTurn], turn*31
			for i := range k {
				bl := u0[(i*7919+step)&(len(u0)-1)]
				h := filter.Hash(k[i])
				at, _ := bits.Mul64(h, uint64(len(bl)/64))
				if bl[at*64]&15 == 0 {
					sink++
				}
			}
		}, theirs)
	})
	b.Run("64B", func(b *testing.B) {
		turns(b, perTurn, func(turn int) {
			k, step := asked[turn*perTurn%len(asked):][:perTurn], turn*31
			for i := range k {
				bl := u0[(i*7919+step)&(len(u0)-1)]
				h := filter.Hash(k[i])
				at, _ := bits.Mul64(h, uint64(len(bl)/32-1))
				if (bl[at*32]^bl[at*32+63])&15 == 0 {
					sink++
				}
			}
		}, theirs)
	})
	b.Run("128line", func(b *testing.B) {
		turns(b, perTurn, func(turn int) {
			k, step := asked[turn*perTurn%len(asked):][:perTurn], turn*31
			for i := range k {
				bl := blocks[(i*7919+step)&(len(u0)-1)]
				h := filter.Hash(k[i])
				at, _ := bits.Mul64(h, uint64(len(bl)/64))
				if bl[at*64]&15 == 0 {
					sink++
				}
			}
		}, theirs)
	})
}

//go:noinline
func kernel(bl []byte, h uint64) bool {
	le := binary.LittleEndian
	x, y := bits.Mul64(h, 0x9e3779b97f4a7c15)
	h = x ^ y
	start, _ := bits.Mul64(h, uint64(len(bl)/32-20)*64)
	coeff, s := h*0xd6e8feb86659fd93|1, start%64
	d := (*[64]byte)(bl[start/64*32:])
	lo, hi, print := coeff<<s, coeff>>1>>(63-s), uint32(h*0xa0761d6478bd642f>>32)
	x0 := le.Uint64(d[0:])&lo ^ le.Uint64(d[32:])&hi
	x1 := le.Uint64(d[8:])&lo ^ le.Uint64(d[40:])&hi
	x2 := le.Uint64(d[16:])&lo ^ le.Uint64(d[48:])&hi
	x3 := le.Uint64(d[24:])&lo ^ le.Uint64(d[56:])&hi
	bad := uint32(bits.OnesCount64(x0)) ^ print
	bad |= uint32(bits.OnesCount64(x1)) ^ print>>1
	bad |= uint32(bits.OnesCount64(x2)) ^ print>>2
	bad |= uint32(bits.OnesCount64(x3)) ^ print>>3
	return bad&1 == 0
}

//go:noinline
func kernelthr(bl []byte, h uint64) bool {
	le := binary.LittleEndian
	x, y := bits.Mul64(h, 0x9e3779b97f4a7c15)
	h = x ^ y
	start, _ := bits.Mul64(h, uint64(len(bl)/32-20)*64)
	b := start >> 7
	if bl[len(bl)-29-int(b>>2)]>>(b&3*2)&3 == 0 && start&127 < 10 {
		return true
	}
	coeff, s := h*0xd6e8feb86659fd93|1, start%64
	d := (*[64]byte)(bl[start/64*32:])
	lo, hi, print := coeff<<s, coeff>>1>>(63-s), uint32(h*0xa0761d6478bd642f>>32)
	x0 := le.Uint64(d[0:])&lo ^ le.Uint64(d[32:])&hi
	x1 := le.Uint64(d[8:])&lo ^ le.Uint64(d[40:])&hi
	x2 := le.Uint64(d[16:])&lo ^ le.Uint64(d[48:])&hi
	x3 := le.Uint64(d[24:])&lo ^ le.Uint64(d[56:])&hi
	bad := uint32(bits.OnesCount64(x0)) ^ print
	bad |= uint32(bits.OnesCount64(x1)) ^ print>>1
	bad |= uint32(bits.OnesCount64(x2)) ^ print>>2
	bad |= uint32(bits.OnesCount64(x3)) ^ print>>3
	return bad&1 == 0
}

//go:noinline
func kernelbl(bl []byte, h uint64) uint32 {
	le := binary.LittleEndian
	x, y := bits.Mul64(h, 0x9e3779b97f4a7c15)
	h = x ^ y
	start, _ := bits.Mul64(h, uint64(len(bl)/32-20)*64)
	coeff, s := h*0xd6e8feb86659fd93|1, start%64
	d := (*[64]byte)(bl[start/64*32:])
	lo, hi, print := coeff<<s, coeff>>1>>(63-s), uint32(h*0xa0761d6478bd642f>>32)
	x0 := le.Uint64(d[0:])&lo ^ le.Uint64(d[32:])&hi
	x1 := le.Uint64(d[8:])&lo ^ le.Uint64(d[40:])&hi
	x2 := le.Uint64(d[16:])&lo ^ le.Uint64(d[48:])&hi
	x3 := le.Uint64(d[24:])&lo ^ le.Uint64(d[56:])&hi
	bad := uint32(bits.OnesCount64(x0)) ^ print
	bad |= uint32(bits.OnesCount64(x1)) ^ print>>1
	bad |= uint32(bits.OnesCount64(x2)) ^ print>>2
	bad |= uint32(bits.OnesCount64(x3)) ^ print>>3
	return bad & 1
}
