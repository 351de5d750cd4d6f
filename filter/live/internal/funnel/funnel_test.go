package funnel

import (
	"math/rand/v2"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// TestSum64 checks that Sum64 is XXH64 of the bytes that Append appends.
func TestSum64(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 100 {
		for range 20 {
			b := make([]byte, n)
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			check(t, nil, b)
			check(t, nil, string(b))
			check(t, func(dst []byte, v string) []byte { return append(dst, "x"+v...) }, string(b))
		}
		v := r.Uint64()
		check(t, nil, v)
		check(t, nil, int(v))
		check(t, nil, int64(v))
		check(t, nil, uint32(v))
		check(t, nil, int16(v))
		check(t, nil, uint8(v))
	}
}

func check[T any](t *testing.T, funnel func([]byte, T) []byte, v T) {
	t.Helper()
	k, err := For(funnel)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := k.Sum64(v), xxhash.Sum64(k.Append(nil, v)); got != want {
		t.Errorf("%T %v: %x, want %x", v, v, got, want)
	}
}
