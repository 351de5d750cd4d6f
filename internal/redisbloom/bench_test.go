package redisbloom

import (
	"encoding/binary"
	"testing"
)

// A filter far larger than the caches, with next to no item twice.
func BenchmarkAdd(b *testing.B) {
	for layout, name := range []string{"redis", "tight"} {
		b.Run(name, func(b *testing.B) {
			f, err := NewBloom(BloomOptions{Capacity: 100_000_000, Error: 0.01, Expansion: 2, Layout: Layout(layout)})
			if err != nil {
				b.Fatal(err)
			}
			var item [12]byte
			var redo []byte
			b.ResetTimer()
			for i := range b.N {
				binary.LittleEndian.PutUint64(item[:], uint64(i))
				if _, err := f.Add(item[:], 1<<30); err != nil {
					b.Fatal(err)
				}
				if i%100 == 0 {
					redo = f.TakeRedo(redo[:0])
				}
			}
		})
	}
}

func BenchmarkContains(b *testing.B) {
	for layout, name := range []string{"redis", "tight"} {
		for _, c := range []struct {
			name string
			base uint64
		}{{"present", 0}, {"absent", 1 << 40}} {
			b.Run(name+"/"+c.name, func(b *testing.B) {
				const n = 1 << 21
				f, err := NewBloom(BloomOptions{Capacity: n, Error: 0.01, Expansion: 2, Layout: Layout(layout)})
				if err != nil {
					b.Fatal(err)
				}
				var item [12]byte
				for i := range uint64(n) {
					binary.LittleEndian.PutUint64(item[:], i)
					if _, err := f.Add(item[:], 1<<30); err != nil {
						b.Fatal(err)
					}
				}
				f.TakeRedo(nil)
				b.ResetTimer()
				for i := range b.N {
					binary.LittleEndian.PutUint64(item[:], c.base+uint64(i)*0x9e3779b97f4a7c15%n)
					f.Contains(item[:])
				}
			})
		}
	}
}
