package sstable

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestDefaultLayout checks that tables have blocks of 4 KiB by default, and a restart every 16
// entries in data blocks and in the index.
func TestDefaultLayout(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 9))
	var list []kv // 136 blocks: with 15 or 17 of them per restart, the index would have another number of restarts
	for _, e := range numbered(13_440) {
		e.value = string(make([]byte, rng.IntN(60)))
		list = append(list, e)
	}
	want, _ := buildTable(t, list, &WriterOptions{BlockBytes: 4096, RestartInterval: 16})
	got, _ := buildTable(t, list, nil)
	if !bytes.Equal(got, want) {
		t.Error("a table without options differs from one with blocks of 4096 bytes and restarts every 16 entries")
	}
	longest := uint64(0) // of a block of two entries
	for n := 3900; n < 4100; n++ {
		data, _ := buildTable(t, []kv{{"a", 1, KindSet, ""}, {"b", 1, KindSet, string(make([]byte, n))}}, &WriterOptions{DisableCompression: true})
		if x := openTable(t, data, nil).index.Load(); x.numBlocks() == 1 {
			longest = max(longest, x.handle(0).Length)
		}
	}
	if longest != 4096 {
		t.Errorf("blocks have up to %d bytes", longest)
	}
	r := openTable(t, got, nil)
	_, h := r.Footer()
	data, err := r.readBlock(h, "index block")
	if err != nil {
		t.Fatal(err)
	}
	var b block
	if err := b.init(data); err != nil || b.restarts != (r.NumDataBlocks()+15)/16 || b.restarts == (r.NumDataBlocks()+14)/15 || b.restarts == (r.NumDataBlocks()+16)/17 {
		t.Errorf("%d restarts in the index of %d blocks, %v", b.restarts, r.NumDataBlocks(), err)
	}
	first, err := r.DataBlock(0)
	if err != nil || first.NumRestarts != (first.NumEntries+15)/16 {
		t.Errorf("%d restarts for %d entries, %v", first.NumRestarts, first.NumEntries, err)
	}
}
