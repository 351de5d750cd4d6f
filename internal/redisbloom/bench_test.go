package redisbloom

import (
	"encoding/binary"
	"fmt"
	"testing"
)

// A filter far larger than the caches, with hardly any duplicates.
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

// Ten items at a time, in a filter larger than the private caches of a core and in one that fits
// into them.
func BenchmarkAddTen(b *testing.B) {
	for _, capacity := range []uint64{100_000, 20_000_000} {
		for _, many := range []bool{false, true} {
			name := map[bool]string{false: "Add", true: "AddMany"}[many]
			b.Run(fmt.Sprintf("%d/%s", capacity, name), func(b *testing.B) {
				f, err := NewBloom(BloomOptions{Capacity: capacity, Error: 0.01, Expansion: 2})
				if err != nil {
					b.Fatal(err)
				}
				clear(f.links[0].data) // makes the system provide the pages
				var items [10][]byte
				for i := range items {
					items[i] = make([]byte, 12)
				}
				var redo []byte
				var added []bool
				b.ResetTimer()
				for n := range b.N {
					for i, item := range items {
						binary.LittleEndian.PutUint64(item, uint64(10*n+i))
					}
					added = added[:0]
					if many {
						added, err = f.AddMany(items[:], 0, added)
					} else {
						for _, item := range items {
							var isNew bool
							isNew, err = f.Add(item, 0)
							added = append(added, isNew)
						}
					}
					if err != nil {
						b.Fatal(err)
					}
					f.links[0].count = 0 // never full
					if n%100 == 0 {
						redo = f.TakeRedo(redo[:0])
					}
				}
			})
		}
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

// TestEmptyRedoIsSmall checks that the memory that an empty redo log keeps is small compared with
// the filter, which is what counts.
func TestEmptyRedoIsSmall(t *testing.T) {
	b, err := NewBloom(BloomOptions{Capacity: 1000, Error: 0.01, Expansion: 2})
	if err != nil {
		t.Fatal(err)
	}
	k, err := NewCuckoo(CuckooOptions{Capacity: 1024, BucketSize: 2, MaxIterations: 20, Expansion: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 700 {
		item := fmt.Appendf(nil, "%d", i)
		if _, err := b.Add(item, 1<<20); err != nil {
			t.Fatal(err)
		}
		if err := k.Add(item, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	b.TakeRedo(nil)
	k.TakeRedo(nil)
	if n := cap(b.redo); n > int(b.Bytes())/4 {
		t.Errorf("a Bloom filter of %d bytes keeps %d for its redo log", b.Bytes(), n)
	}
	if n := cap(k.redo); n > int(k.Bytes())/4 {
		t.Errorf("a cuckoo filter of %d bytes keeps %d for its redo log", k.Bytes(), n)
	}
}
