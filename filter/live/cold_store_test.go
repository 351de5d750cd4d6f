package live_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter/live"
)

// inStore reads a file that is kept in a store in pieces of 4 KiB.
type inStore struct{ db *sift.DB }

const piece = 4096

func pieceKey(i int64) []byte { return binary.BigEndian.AppendUint64([]byte("cold/"), uint64(i)) }

func (s inStore) ReadAt(b []byte, at int64) (n int, err error) {
	for n < len(b) && err == nil {
		err = s.db.View(pieceKey(at/piece), func(p []byte) error {
			if at%piece >= int64(len(p)) {
				return io.EOF
			}
			k := copy(b[n:], p[at%piece:])
			n, at = n+k, at+int64(k)
			return nil
		})
	}
	return n, err
}

// A small filter in memory, and a more exact one in a store: the first excludes most absent
// keys, and the others cost one read.
func ExampleLayered() {
	dir, _ := os.MkdirTemp("", "cold")
	defer os.RemoveAll(dir)
	db, err := sift.Open(dir, nil)
	if err != nil {
		panic(err)
	}
	defer db.Close()

	coarse, _ := live.NewBloom(live.BloomOptions[int]{Items: 10_000, FPR: 0.1, Seed: 1})
	exact, _ := live.NewBloom(live.BloomOptions[int]{Items: 10_000, FPR: 0.0001, Seed: 2, Scheme: live.Blocked})
	for i := range 10_000 {
		coarse.Add(i)
		exact.Add(i)
	}
	var file bytes.Buffer
	exact.WriteCold(&file)
	size := int64(file.Len())
	for i := int64(0); file.Len() > 0; i++ {
		db.Put(pieceKey(i), file.Next(piece), sift.NoSync)
	}

	cold, err := live.OpenCold(inStore{db}, size, live.ReadOptions[int]{})
	if err != nil {
		panic(err)
	}
	both := live.NewLayered(live.Hot[int](coarse), cold)
	present, wrong := 0, 0
	for i := range 20_000 {
		if positive, err := both.MayContain(i); err != nil {
			panic(err)
		} else if positive && i < 10_000 {
			present++
		} else if positive {
			wrong++
		}
	}
	fmt.Println(present, "present,", wrong < 5, cold.Reads()-10_000 < 1200)
	// Output: 10000 present, true true
}
