package sstable

import (
	"encoding/binary"
	"testing"

	"github.com/siftdb/sift/internal/base"
)

// TestEntryLengths decodes entries whose lengths take one, two and three bytes, in all
// combinations, at the end of a block. An entry that lacks its last byte must be rejected.
func TestEntryLengths(t *testing.T) {
	lengths := []int{0, 1, 127, 128, 129, 255, 256, 16383, 16384, 16385}
	for _, shared := range lengths {
		for _, key := range lengths {
			for _, value := range lengths {
				var head []byte
				for _, n := range []int{shared, key, value} {
					head = binary.AppendUvarint(head, uint64(n))
				}
				data := append(head, make([]byte, key+value)...)
				b := block{data: data, entries: len(data)}
				want := entry{shared: shared, key: len(head), value: len(head) + key, end: len(data)}
				if e, ok := b.decode(0); !ok || e != want {
					t.Errorf("%d, %d, %d: %+v, %v, want %+v", shared, key, value, e, ok, want)
				}
				if key+value == 0 {
					continue
				}
				b = block{data: data[:len(data)-1], entries: len(data) - 1}
				if e, ok := b.decode(0); ok {
					t.Errorf("%d, %d, %d, one byte short: %+v", shared, key, value, e)
				}
			}
		}
	}
}

// TestMoreRestartsThanBytes checks that a block with more restart offsets than fit is rejected.
func TestMoreRestartsThanBytes(t *testing.T) {
	for words := 2; words < 6; words++ {
		for n := range 8 {
			data := make([]byte, 4*words)
			binary.LittleEndian.PutUint32(data[len(data)-4:], uint32(n))
			// All offsets are 0: only one is in order.
			var b block
			if err := b.init(data); (err == nil) != (n == 1) {
				t.Errorf("%d restarts in %d bytes: %v", n, len(data), err)
			}
		}
	}
}

// TestSearchRestarts finds the last restart before each key, among one to twenty.
func TestSearchRestarts(t *testing.T) {
	for n := 1; n <= 20; n++ {
		w := blockWriter{interval: 1}
		for i := range n {
			w.add(base.AppendInternalKey(nil, []byte{'a', byte(i)}, 1, KindSet), 0, []byte("v"))
		}
		var b block
		if err := b.init(w.finish()); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if at, err := b.searchRestarts([]byte{'a', byte(i), 0}, 1<<8|1); err != nil || at != b.restart(i) {
				t.Errorf("after key %d of %d: offset %d, %v, want %d", i, n, at, err, b.restart(i))
			}
		}
	}
}
