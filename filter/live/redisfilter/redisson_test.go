package redisfilter

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/minio/highwayhash"
)

// rowsOf returns the rows of a file of vectors.
func rowsOf(t testing.TB, name string) [][]string {
	text, err := os.ReadFile("testdata/redisson/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "codec\t") {
			rows = append(rows, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
		}
	}
	return rows
}

func TestRedissonHash(t *testing.T) {
	rows := rowsOf(t, "highwayhash128.tsv")
	for _, r := range rows {
		sum := highwayhash.Sum128(must(hex.DecodeString(r[0])), redissonKey)
		if a, b := binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:]); fmt.Sprintf("%016x", a) != r[4] || fmt.Sprintf("%016x", b) != r[5] {
			t.Errorf("%s: %016x %016x, want %s %s", r[0], a, b, r[4], r[5])
		}
	}
	if len(rows) != 101 {
		t.Errorf("%d vectors were checked, want 101", len(rows))
	}
}

func TestRedissonConfig(t *testing.T) {
	rows := rowsOf(t, "config.tsv")
	for _, r := range rows {
		n, p := must(strconv.ParseUint(r[0], 10, 64)), must(strconv.ParseFloat(r[1], 64))
		size, hashes, err := redissonSize(n, p)
		if strings.HasPrefix(r[3], "Illegal") {
			if err == nil {
				t.Errorf("%s at %s: size %d, but Redisson rejects it", r[0], r[1], size)
			}
			continue
		}
		if err != nil || fmt.Sprint(size) != r[2] || fmt.Sprint(hashes) != r[3] {
			t.Errorf("%s at %s: size %d, %d hashes (%v), want %s and %s", r[0], r[1], size, hashes, err, r[2], r[3])
		}
		if old, now := javaDecimal(p), javaDouble(p); old != r[4] || now != r[5] {
			t.Errorf("%s: %s and %s, want %s and %s", r[1], old, now, r[4], r[5])
		}
	}
	if len(rows) != 13 {
		t.Errorf("%d vectors were checked, want 13", len(rows))
	}
	for _, n := range []uint64{449_000_000, math.MaxUint64} {
		if _, _, err := redissonSize(n, 0.01); err == nil {
			t.Errorf("%d elements: no error", n)
		}
	}
}

func TestRedissonBits(t *testing.T) {
	longs, strs, ints := redissonCodec[int64](), redissonCodec[string](), redissonCodec[int32]()
	blobs, kinds := redissonCodec[[]byte](), map[string]int{}
	for _, r := range rowsOf(t, "indexes.tsv") {
		encoded := must(hex.DecodeString(r[3]))
		size, hashes := must(strconv.ParseUint(r[6], 10, 64)), must(strconv.Atoi(r[7]))
		var got []string
		for _, b := range appendRedissonBits(nil, encoded, size, hashes) {
			got = append(got, strconv.FormatUint(b, 10))
		}
		if strings.Join(got, ",") != r[8] {
			t.Errorf("%s %q: bits %v, want %s", r[0], r[2], got, r[8])
		}
		if !strings.HasPrefix(r[0], "StringCodec") {
			continue // encoded by Kryo
		}
		kinds[r[1]]++
		var mine []byte
		switch r[1] {
		case "String":
			mine = strs(nil, r[2])
		case "Long":
			mine = longs(nil, must(strconv.ParseInt(r[2], 10, 64)))
		case "Integer":
			mine = ints(nil, int32(must(strconv.ParseInt(r[2], 10, 32))))
		}
		if !bytes.Equal(mine, encoded) || !bytes.Equal(blobs(nil, encoded), encoded) {
			t.Errorf("%s %q: encoded as %x, want %x", r[1], r[2], mine, encoded)
		}
	}
	if kinds["String"] != 77 || kinds["Long"] != 77 || kinds["Integer"] != 35 {
		t.Errorf("checked %v", kinds)
	}
	if redissonCodec[float64]() != nil || redissonCodec[uint64]() != nil {
		t.Error("a codec for a type that Java's LongCodec does not support")
	}
}

// Whole filters have the same string in Redis as Redisson's, bit for bit, and the same count.
func TestRedissonFilters(t *testing.T) {
	s := newServer(t)
	ctx := context.Background()
	c := s.client(t, 3)
	for _, name := range []string{"f1", "f2"} {
		var v struct {
			ExpectedInsertions uint64
			FalseProbability   float64
			Size               uint64
			HashIterations     int
			AddReturnedTrue    int
			Count              uint64
		}
		if err := json.Unmarshal(must(os.ReadFile("testdata/redisson/"+name+".json")), &v); err != nil {
			t.Fatal(err)
		}
		bitmap := must(os.ReadFile("testdata/redisson/" + name + ".bitmap.bin"))
		n := map[string]int{"f1": 5000, "f2": 1000}[name]
		f, err := OpenRedisson(ctx, c, name, RedissonOptions[string]{Items: v.ExpectedInsertions, FPR: v.FalseProbability})
		if err != nil {
			t.Fatal(err)
		}
		if f.Bits() != v.Size || f.Hashes() != v.HashIterations {
			t.Errorf("%s: %d bits, %d hashes", name, f.Bits(), f.Hashes())
		}
		items := make([]string, n)
		for i := range items {
			items[i] = fmt.Sprint("item:", i)
		}
		isNew, added := make([]bool, n), 0
		if err := f.AddMany(ctx, items, isNew); err != nil {
			t.Fatal(err)
		}
		for _, yes := range isNew {
			if yes {
				added++
			}
		}
		if added != v.AddReturnedTrue {
			t.Errorf("%s: %d elements were new, in Redisson %d", name, added, v.AddReturnedTrue)
		}
		if got := c.Get(ctx, name).Val(); got != string(bitmap) {
			t.Errorf("%s: the bits differ from Redisson's", name)
		}
		if got := must(f.ApproxCount(ctx)); got != v.Count {
			t.Errorf("%s: count %d, in Redisson %d", name, got, v.Count)
		}
		if got := c.HGetAll(ctx, "{"+name+"}:config").Val(); fmt.Sprint(got) != fmt.Sprintf("map[expectedInsertions:%d falseProbability:%v hashIterations:%d size:%d]",
			v.ExpectedInsertions, v.FalseProbability, v.HashIterations, v.Size) {
			t.Errorf("%s: configuration %v", name, got)
		}
		// The other way round: a filter that Redisson wrote.
		c.Set(ctx, "java", bitmap, 0)
		c.HSet(ctx, "{java}:config", "size", v.Size, "hashIterations", v.HashIterations,
			"expectedInsertions", v.ExpectedInsertions, "falseProbability", javaDecimal(v.FalseProbability))
		g, err := OpenRedisson(ctx, c, "java", RedissonOptions[string]{})
		if err != nil {
			t.Fatal(err)
		}
		allKnown(t, g, items)
		absent, positive, fp := make([]string, 100_000), make([]bool, 100_000), 0
		for i := range absent {
			absent[i] = fmt.Sprint("absent:", i)
		}
		if err := g.MayContainMany(ctx, absent, positive); err != nil {
			t.Fatal(err)
		}
		for _, m := range positive {
			if m {
				fp++
			}
		}
		if want := map[string]int{"f1": 2, "f2": 1114}[name]; fp != want {
			t.Errorf("%s: %d false positives, in Redisson %d", name, fp, want)
		}
		c.Del(ctx, "java", "{java}:config")
	}
}

func TestRedissonChecks(t *testing.T) {
	s := newServer(t)
	ctx := context.Background()
	c := s.client(t, 2)
	if _, err := OpenRedisson(ctx, c, "f", RedissonOptions[string]{}); !errors.Is(err, ErrMissing) {
		t.Errorf("no filter: %v", err)
	}
	f, err := OpenRedisson(ctx, c, "f", RedissonOptions[int]{Items: 1000, FPR: 1e-5, OldConfig: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.HGet(ctx, "{f}:config", "falseProbability").Val(); got != "0.000010" {
		t.Errorf("falseProbability %s", got)
	}
	if yes, err := f.Add(ctx, 5); !yes || err != nil {
		t.Error(yes, err)
	}
	if _, err := OpenRedisson(ctx, c, "f", RedissonOptions[int]{Items: 1001, FPR: 1e-5}); !errors.Is(err, ErrIncompatible) {
		t.Errorf("other parameters: %v", err)
	}
	c.HSet(ctx, "{f}:config", "size", 100)
	if positive, err := f.MayContain(ctx, 5); !positive || !errors.Is(err, ErrIncompatible) {
		t.Errorf("size has changed: %v, %v", positive, err)
	}
	if _, err := f.Add(ctx, 6); !errors.Is(err, ErrIncompatible) {
		t.Errorf("size has changed: %v", err)
	}
	c.Del(ctx, "{f}:config")
	if positive, err := f.MayContain(ctx, 5); !positive || !errors.Is(err, ErrMissing) {
		t.Errorf("configuration is gone: %v, %v", positive, err)
	}
	if redissonConfigKey("{tag}f") != "{tag}f:config" {
		t.Error("name with a tag")
	}
	c.HSet(ctx, "{bad}:config", "size", "4294967295", "hashIterations", 1, "expectedInsertions", 1, "falseProbability", "0.1")
	if _, err := OpenRedisson(ctx, c, "bad", RedissonOptions[int]{}); !errors.Is(err, ErrFormat) {
		t.Errorf("size 2^32-1: %v", err)
	}
	if _, err := OpenRedisson(ctx, c, "x", RedissonOptions[float64]{Items: 1, FPR: 0.1}); err == nil {
		t.Error("floats need a codec")
	}
}

func FuzzDecodeRedisson(f *testing.F) {
	f.Add("9585", "7", "1000", "0.01")
	f.Add("23962645", "17", "1000000", "1.0E-5")
	f.Fuzz(func(t *testing.T, size, hashes, items, fpr string) {
		m, k, err := decodeRedisson(map[string]string{"size": size, "hashIterations": hashes, "expectedInsertions": items, "falseProbability": fpr})
		if err != nil {
			return
		}
		for _, b := range appendRedissonBits(nil, []byte("a"), m, k) {
			if b >= m {
				t.Errorf("bit %d of %d", b, m)
			}
		}
	})
}
