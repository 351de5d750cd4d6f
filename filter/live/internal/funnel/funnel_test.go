package funnel

import (
	"math/rand/v2"
	"testing"

	"github.com/cespare/xxhash/v2"
)

func TestSum64(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 100)
	for n := range b {
		for range 20 {
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			want := xxhash.Sum64(b[:n])
			if got := sum64(b[:n]); got != want {
				t.Fatalf("%x: %x, want %x", b[:n], got, want)
			}
		}
	}
	for range 100 {
		v := r.Uint64()
		k, _ := For[uint64](nil)
		if got, want := sum64Of8(v), xxhash.Sum64(k.Append(nil, v)); got != want {
			t.Fatalf("%x: %x, want %x", v, got, want)
		}
	}
}
