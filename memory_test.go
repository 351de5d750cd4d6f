package sift

import "testing"

// TestResolveMemory: in little memory the defaults are small, and in much they are not large.
func TestResolveMemory(t *testing.T) {
	for _, c := range []struct {
		limit, memory, cacheBytes int64
		memtableBytes             int
	}{
		{0, 1 << 30, 8 << 20, 16 << 20},
		{1 << 20, 1 << 20, 32 << 10, 1 << 20},
		{64 << 20, 32 << 20, 1 << 20, 1 << 20},
		{512 << 20, 256 << 20, 8 << 20, 8 << 20},
		{1 << 40, 1 << 39, 8 << 20, 16 << 20},
	} {
		var o Options
		o.resolveMemory(c.limit)
		if o.Memory != c.memory || o.MapBytes > c.limit/4 || o.CacheBytes != c.cacheBytes || o.MemtableBytes != c.memtableBytes {
			t.Errorf("%d bytes of memory: %d, %d mapped, cache %d, memtable %d", c.limit, o.Memory, o.MapBytes, o.CacheBytes, o.MemtableBytes)
		}
		if rest := o.memoryShares(); rest < o.Memory/4 || rest > o.Memory {
			t.Errorf("%d bytes of memory: %d of %d are left", c.limit, rest, o.Memory)
		}
		given := Options{Memory: 64 << 20, MemtableBytes: 1 << 20, CacheBytes: -1, MapBytes: -1}
		want := given
		if given.resolveMemory(c.limit); given.Memory != want.Memory || given.MemtableBytes != want.MemtableBytes || given.CacheBytes != want.CacheBytes || given.MapBytes != want.MapBytes || given.cacheGrows {
			t.Errorf("%d bytes of memory: what was given became %+v", c.limit, given)
		}
	}
}
