package sstable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
)

// longEntries returns randomEntries with values that are long enough for hash indexes.
func longEntries(rng *rand.Rand, n int) []kv {
	list := randomEntries(rng, n)
	for i := range list {
		if list[i].kind == KindSet || rng.IntN(2) == 0 {
			list[i].kind = KindSet
			list[i].value = fmt.Sprint(i, strings.Repeat("v", 60+rng.IntN(100)))
		}
	}
	return list
}

// sameAnswers compares the answers of a block with a hash index and without one. before
// and last are the bounds that the table was made with.
func sameAnswers(b, hashed *block, before, last []byte, targets [][]byte, trailers []uint64) error {
	for _, target := range targets {
		for _, trailer := range trailers {
			if before != nil && compareTo(before, target, trailer) >= 0 || compareTo(last, target, trailer) < 0 {
				continue // for another block
			}
			f, ranOff, err := b.get(target, trailer)
			pf, pRanOff, pErr := hashed.get(target, trailer)
			switch {
			case (err != nil) != (pErr != nil) || f.ok != pf.ok || f.trailer != pf.trailer,
				f.ok && !bytes.Equal(b.data[f.value:f.end], hashed.data[pf.value:pf.end]):
				return fmt.Errorf("%q/%x: %+v, %v; without a table %+v, %v", target, trailer, pf, pErr, f, err)
			case ranOff && !pRanOff, !f.ok && !ranOff && pRanOff && bytes.Equal(target, base.UserKey(last)):
				return fmt.Errorf("%q/%x: ranOff is %v; without a table %v", target, trailer, pRanOff, ranOff)
			}
		}
	}
	return nil
}

// sameEntries compares the entries of two blocks, from the front and from each restart.
func sameEntries(b, hashed *block) error {
	type pair struct{ key, value string }
	entries := func(b *block) (list []pair, err error) {
		err = b.each(func(k, v []byte) error {
			list = append(list, pair{string(k), string(v)})
			return nil
		})
		return list, err
	}
	want, err := entries(b)
	if err != nil {
		return err
	}
	got, err := entries(hashed)
	if err != nil || !slices.Equal(got, want) {
		return fmt.Errorf("%v; %d entries, want the same %d", err, len(got), len(want))
	}
	again := new(block)
	if err := again.init(hashed.data); err != nil || again.entries != hashed.entries || again.restarts != b.restarts {
		return fmt.Errorf("parsing the rewritten block: %v", err)
	}
	for i := range b.restarts {
		k, ok := b.restartKey(i)
		p, pOK := hashed.restartKey(i)
		if ok != pOK || !bytes.Equal(k, p) {
			return fmt.Errorf("restart %d is at %q, want %q", i, p, k)
		}
	}
	return nil
}

// TestHashIndex checks that blocks with a hash index have the same entries and answers as the
// original blocks.
func TestHashIndex(t *testing.T) {
	hashed, versions := 0, 0
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 4))
		list := longEntries(rng, 1+rng.IntN(300))
		data, _ := buildTable(t, list, &WriterOptions{
			BlockBytes: 300 + rng.IntN(6000), RestartInterval: 1 + rng.IntN(20), DisableCompression: true,
		})
		r := openTable(t, data, nil)
		var targets [][]byte
		trailers := []uint64{0, base.Trailer(base.MaxSequence, base.KindSeek)}
		for _, e := range list {
			targets = append(targets, []byte(e.key), []byte(e.key+"\x00"), []byte(e.key[:len(e.key)/2]))
			trailers = append(trailers, base.Trailer(e.seq, base.KindSeek))
		}
		rng.Shuffle(len(trailers)-2, func(i, j int) { trailers[i+2], trailers[j+2] = trailers[j+2], trailers[i+2] })
		trailers = trailers[:min(len(trailers), 30)]
		for i := range r.index.Load().numBlocks() {
			var buf Buffer
			b, err := r.dataBlock(r.index.Load(), i, &buf)
			if err != nil {
				t.Fatal(err)
			}
			var before []byte
			if i > 0 {
				before = r.index.Load().separator(new(separatorBuf), i-1)
			}
			last := r.index.Load().separator(new(separatorBuf), i)
			k := b.keep(before, last)
			if k.slots == nil {
				continue
			}
			hashed++
			if err := sameEntries(b, k); err != nil {
				t.Fatalf("seed %d, block %d: %v", seed, i, err)
			}
			if err := sameAnswers(b, k, before, last, targets, trailers); err != nil {
				t.Fatalf("seed %d, block %d: %v", seed, i, err)
			}
			entries := 0
			_ = b.each(func(_, _ []byte) error {
				entries++
				return nil
			})
			if used := len(k.slots) - countZero(k.slots); used < entries {
				versions++
			}
			buf.Release()
		}
	}
	if hashed < 300 {
		t.Errorf("only %d blocks have a hash index", hashed)
	}
	if versions < 100 {
		t.Errorf("only %d blocks have several versions of a key", versions)
	}
}

func countZero(slots []uint32) (n int) {
	for _, s := range slots {
		if s == 0 {
			n++
		}
	}
	return n
}

// TestHashIndexModel compares tables whose cached blocks have hash indexes with a sorted slice.
func TestHashIndexModel(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 5))
		list := longEntries(rng, 300)
		data, _ := buildTable(t, list, &WriterOptions{BlockBytes: 300 + rng.IntN(3000), RestartInterval: 1 + rng.IntN(20)})
		r := openTable(t, data, &ReaderOptions{Cache: NewBlockCache(8 << 20)})
		for range 2 {
			for _, e := range list {
				for _, seq := range []uint64{0, e.seq - 1, e.seq, e.seq + 1, base.MaxSequence} {
					for _, key := range []string{e.key, e.key + "\x00", e.key + "a", e.key[:len(e.key)/2]} {
						if err := checkGet(r, list, key, seq&base.MaxSequence); err != nil {
							t.Fatalf("seed %d: %v", seed, err)
						}
					}
				}
			}
			if err := checkScan(r, list, nil); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			checkMoves(t, fmt.Sprint("seed ", seed), rng, r, list)
		}
		n := 0
		for i := range r.numBlocks {
			if b := r.index.Load().cachedBlock(i, r.io); b != nil && b.slots != nil {
				n++
			}
		}
		if n < r.numBlocks/2 {
			t.Errorf("seed %d: only %d of %d blocks have a hash index", seed, n, r.numBlocks)
		}
	}
}

// blockOf returns a block of the entries.
func blockOf(t testing.TB, interval int, list ...kv) *block {
	t.Helper()
	w := blockWriter{interval: interval}
	for _, e := range list {
		k := e.ikey()
		w.add(k, w.shared(k), []byte(e.value))
	}
	b := new(block)
	if err := b.init(bytes.Clone(w.finish())); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestHashIndexRefused checks that a block that cannot have a hash index is copied unchanged.
func TestHashIndexRefused(t *testing.T) {
	v := strings.Repeat("v", 100)
	ikey := func(s string) []byte { return kv{s, 1, KindSet, ""}.ikey() }
	many := func(n int, format, value string) (list []kv) {
		for i := range n {
			list = append(list, kv{fmt.Sprintf(format, i), 1, KindSet, value})
		}
		return list
	}
	good := many(20, "key%04d", v)
	descending := slices.Clone(good)
	descending[7], descending[8] = descending[8], descending[7]
	prefixes := many(20, strings.Repeat("p", 200)+"%04d", v)
	doubled := slices.Insert(slices.Clone(good), 4, good[4])
	off := blockOf(t, 4, good...)
	off.data[off.entries+4]++ // a restart within an entry
	broken := blockOf(t, 4, good...)
	e, _ := broken.decode(broken.restart(2))
	broken.data[e.end] = 0x7f // shares more than the previous key has
	for _, c := range []struct {
		desc         string
		b            *block
		before, last []byte
		hashed       bool
	}{
		{"good", blockOf(t, 4, good...), ikey("key"), ikey("key1"), true},
		{"good, the first block", blockOf(t, 4, good...), nil, ikey("key1"), true},
		{"bounds that equal its keys", blockOf(t, 4, good[1:]...), ikey("key0000"), ikey("key0019"), true},
		{"short entries", blockOf(t, 4, many(100, "key%04d", "value")...), nil, ikey("l"), false},
		{"values of 16 bytes", blockOf(t, 16, many(130, "key:%012d", "0123456789abcdef")...), ikey("key:000000000"), ikey("key:000000001"), true},
		{"a large block", blockOf(t, 4, many(20, "key%04d", strings.Repeat("v", 4000))...), nil, ikey("l"), false},
		{"long keys", blockOf(t, 4, many(20, strings.Repeat("k", 600)+"%d", v)...), nil, ikey("l"), false},
		{"long prefixes that the separators do not share", blockOf(t, 16, prefixes...), nil, ikey("q"), false},
		{"long prefixes that the separators share", blockOf(t, 16, prefixes...), ikey(prefixes[0].key[:203]), ikey(prefixes[19].key), true},
		{"descending keys", blockOf(t, 4, descending...), nil, ikey("l"), false},
		{"a duplicate key", blockOf(t, 4, doubled...), nil, ikey("l"), false},
		{"a key before the bounds", blockOf(t, 4, good...), ikey("key0000"), ikey("l"), false},
		{"a key after the bounds", blockOf(t, 4, good...), nil, ikey("key0018"), false},
		{"restart within an entry", off, nil, ikey("l"), false},
		{"a broken entry", broken, nil, ikey("l"), false},
	} {
		k := c.b.keep(c.before, c.last)
		if (k.slots != nil) != c.hashed {
			t.Errorf("%s: %d slots", c.desc, len(k.slots))
		}
		if k.slots == nil && (!bytes.Equal(k.data, c.b.data) || k.entries != c.b.entries || k.restarts != c.b.restarts) {
			t.Errorf("%s: the copy differs", c.desc)
		}
		if &k.data[0] == &c.b.data[0] {
			t.Errorf("%s: the copy shares memory", c.desc)
		}
		if limit := c.b.memory() + int64(len(c.b.data))*3/8 + 512; k.memory() > limit {
			t.Errorf("%s: %d bytes, want at most %d", c.desc, k.memory(), limit)
		}
	}
}

// TestHashIndexFlips flips each bit of a block: its answers must be the same with and without a
// hash index.
func TestHashIndexFlips(t *testing.T) {
	list := numbered(9)
	var targets [][]byte
	for i := range list {
		list[i].kind, list[i].value = KindSet, strings.Repeat("value", 12)
		targets = append(targets, []byte(list[i].key), []byte(list[i].key+"a"))
	}
	good := blockOf(t, 3, list...)
	before, last := kv{"key", 1, KindSet, ""}.ikey(), kv{"key00000099", 1, KindSet, ""}.ikey()
	trailers := []uint64{0, base.Trailer(4, base.KindSeek), base.Trailer(base.MaxSequence, base.KindSeek)}
	hashed := 0
	for i := range 8 * len(good.data) {
		data := bytes.Clone(good.data)
		data[i/8] ^= 1 << (i % 8)
		b := new(block)
		if b.init(data) != nil {
			continue
		}
		k := b.keep(before, last)
		if k.slots == nil {
			continue
		}
		hashed++
		if err := sameEntries(b, k); err != nil {
			t.Fatalf("bit %d: %v", i, err)
		}
		if err := sameAnswers(b, k, before, last, targets, trailers); err != nil {
			t.Fatalf("bit %d: %v", i, err)
		}
	}
	if hashed < len(good.data) || hashed > 8*len(good.data)-200 {
		t.Errorf("%d of %d blocks have a hash index", hashed, 8*len(good.data))
	}
}

// TestHashCollisions checks that a block with too many keys for one slot gets no hash index, and
// that keys with the same tag are distinguished.
func TestHashCollisions(t *testing.T) {
	b := newHashedBlock(40)
	for i := range maxHashProbe {
		if !b.addSlot(3<<58|uint64(i), i) {
			t.Fatalf("key %d gets no slot", i)
		}
	}
	if b.addSlot(3<<58, 99) {
		t.Error("a key gets a slot too far from its home slot")
	}
	entries := []kv{{"a", 9, KindSet, "1"}, {"b", 9, KindSet, "2"}, {"c", 9, KindSet, "3"}}
	b = blockOf(t, 16, entries...)
	b.slots = make([]uint32, 13)
	at := 0
	for range entries {
		e, _ := b.decode(at)
		for _, other := range entries { // every key's slots lead to every entry
			b.addSlot(filter.Hash([]byte(other.key)), at)
		}
		at = e.end
	}
	for _, e := range entries {
		f, _, err := b.get([]byte(e.key), base.Trailer(9, base.KindSeek))
		if err != nil || !f.ok || string(b.data[f.value:f.end]) != e.value {
			t.Errorf("%q: %+v, %v", e.key, f, err)
		}
	}
	if f, _, err := b.get([]byte("d"), base.Trailer(9, base.KindSeek)); f.ok || err != nil {
		t.Errorf("an absent key: %+v, %v", f, err)
	}
}

// TestSlots checks that a hash index has enough slots.
func TestSlots(t *testing.T) {
	for _, n := range []int{1, 32, 33, 64, 65, 96, 97, 128, 129, 192, 193, 5000} {
		b := newHashedBlock(n)
		if len(b.slots) < n || countZero(b.slots) != len(b.slots) {
			t.Errorf("%d slots, want %d or more, all free", len(b.slots), n)
		}
	}
}
