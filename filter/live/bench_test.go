package live

import (
	"bytes"
	"context"
	"iter"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkKinds measures operations on each filter with a million elements at 1%, in one
// goroutine: Add of elements that were added before, so that no filter fills up, and lookups
// of present and absent elements.
func BenchmarkKinds(b *testing.B) {
	const n, fpr = 1_000_000, 0.01
	ms, ss := make([]string, n), make([]string, n)
	for i := range n {
		ms[i], ss[i] = member(i), nonMember(i)
	}
	type kind struct {
		name string
		add  func(string)
		has  func(string) bool
	}
	simple := func(name string, f Adder[string]) kind {
		return kind{name, func(v string) { f.Add(v) }, f.MayContain}
	}
	cuckoo := must(NewCuckoo(CuckooOptions[string]{Items: n, FPR: fpr}))
	sharded := must(NewSharded(ShardedOptions[string]{Shards: 16}, func(int) (*Bloom[string], error) {
		return NewBloom(BloomOptions[string]{Items: n / 16, FPR: fpr})
	}))
	o := BloomOptions[string]{Items: n, FPR: fpr, Scheme: Blocked}
	pair := must(NewPair(o, o))
	dedup := must(NewDedup(DedupOptions[string]{Items: n, FPR: fpr}))
	hot := must(NewBloom(o))
	hot.AddMany(ms, nil)
	file := must(os.Create(filepath.Join(b.TempDir(), "cold")))
	b.Cleanup(func() { file.Close() })
	cold := must(OpenCold(file, must(hot.WriteCold(file)), ReadOptions[string]{}))
	layered := NewLayered(Hot[string](hot), cold)
	guarded := must(NewBloom(o))
	guard := must(NewGuard(GuardOptions[string, string]{Keys: Local(guarded), Cache: constCache{}}))
	ctx := context.Background()
	kinds := []kind{
		simple("Bloom", must(NewBloom(BloomOptions[string]{Items: n, FPR: fpr}))),
		simple("BloomBlocked", must(NewBloom(o))),
		simple("BloomGuava", must(NewBloom(BloomOptions[string]{Items: n, FPR: fpr, Scheme: Guava}))),
		simple("Scalable", must(NewScalable(ScalableOptions[string]{Items: n, FPR: fpr}))),
		simple("ScalableFrom100", must(NewScalable(ScalableOptions[string]{Items: 100, FPR: fpr}))),
		simple("Counting", must(NewCounting(CountingOptions[string]{Items: n, FPR: fpr}))),
		{"Cuckoo", func(v string) { cuckoo.AddNew(v) }, cuckoo.MayContain},
		{"Pair", func(v string) { pair.Add(v) }, pair.MayContain},
		simple("Rotating", must(NewRotating(RotatingOptions[string]{Items: n, FPR: fpr, Scheme: Blocked, Source: func(context.Context) iter.Seq2[string, error] { return nil }}))),
		simple("Generations", must(NewGenerations(GenerationsOptions[string]{Items: n, FPR: fpr, Scheme: Blocked}))),
		simple("GenerationsByTime", must(NewGenerations(GenerationsOptions[string]{Items: n, Span: time.Hour, FPR: fpr, Scheme: Blocked}))),
		{"Sharded", func(v string) { sharded.Of(v).Add(v) }, func(v string) bool { return sharded.Of(v).MayContain(v) }},
		{"Cold", nil, func(v string) bool { return must(cold.MayContain(v)) }},
		{"Layered", nil, func(v string) bool { return must(layered.MayContain(v)) }},
		{"Dedup", func(v string) { dedup.Add(v) }, nil},
		{"Guard", func(v string) { guarded.Add(v) }, func(v string) bool { _, err := guard.Get(ctx, v, noRow); return err == nil }},
	}
	for _, k := range kinds {
		if k.add != nil {
			for _, v := range ms {
				k.add(v)
			}
			b.Run("Add/"+k.name, func(b *testing.B) {
				for i := range b.N {
					k.add(ms[i%n])
				}
			})
		}
		if k.has != nil {
			b.Run("Present/"+k.name, func(b *testing.B) {
				for i := range b.N {
					k.has(ms[i%n])
				}
			})
			b.Run("Absent/"+k.name, func(b *testing.B) {
				for i := range b.N {
					k.has(ss[i%n])
				}
			})
		}
	}
}

// constCache has every key.
type constCache struct{}

func (constCache) Get(context.Context, string) (string, bool, error) { return "v", true, nil }
func (constCache) Set(context.Context, string, string) error         { return nil }

func noRow(context.Context, string) (string, error) { return "", ErrAbsent }

// BenchmarkSave writes and reads a filter for a million elements.
func BenchmarkSave(b *testing.B) {
	f := must(NewBloom(BloomOptions[string]{Items: 1_000_000, FPR: 0.01}))
	var buf bytes.Buffer
	f.WriteTo(&buf)
	b.Run("Write", func(b *testing.B) {
		b.SetBytes(int64(buf.Len()))
		for range b.N {
			var out bytes.Buffer
			f.WriteTo(&out)
		}
	})
	b.Run("Read", func(b *testing.B) {
		b.SetBytes(int64(buf.Len()))
		for range b.N {
			must(ReadBloom(bytes.NewReader(buf.Bytes()), ReadOptions[string]{MaxBytes: 1 << 30}))
		}
	})
}
