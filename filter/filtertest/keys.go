package filtertest

import (
	"encoding/binary"
	"fmt"

	"github.com/siftdb/sift/filter"
)

// kind is a kind of key set.
type kind int

const (
	distinct   kind = iota // 16 random bytes
	sequential             // text with a long common prefix and a counter
	repeated               // each key several times, in a row and far apart
	odd                    // all lengths, the empty key, zeros and 0xff
)

func (k kind) String() string {
	return [...]string{"random keys", "sequential keys", "repeated keys", "odd keys"}[k]
}

// mix is a step of splitmix64: a bijection, so that different inputs give different
// keys.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// randomKey appends the i-th random key of a set to buf. Keys of different sets differ.
func (s *suite) randomKey(set, i uint64, buf []byte) []byte {
	buf = binary.LittleEndian.AppendUint64(buf, mix(i))
	return binary.LittleEndian.AppendUint64(buf, mix(s.o.Seed<<8+set))
}

// keys returns n keys of set 0, from which filters are built.
func (s *suite) keys(n int, k kind) []filter.Key { return s.keysOf(0, n, k) }

// keysOf returns n keys of a set. No filter is built from set 1, whose keys are absent.
func (s *suite) keysOf(set uint64, n int, k kind) []filter.Key {
	keys := make([]filter.Key, n)
	buf := make([]byte, 0, 16*n)
	for i := range keys {
		var b []byte
		switch k {
		case sequential:
			b = fmt.Appendf(nil, "tenant/%08d/some/long/path/that/all/keys/share/%d/%08d", s.o.Seed, set, i)
		case repeated:
			b = fmt.Appendf(nil, "%d/%d/%d", s.o.Seed, set, i/2%(n/4+1))
		case odd:
			b = make([]byte, i%97)
			for j := range b {
				switch i % 3 {
				case 0:
					b[j] = 0xff
				case 1:
					b[j] = byte(mix(uint64(i*100 + j)))
				}
			}
		default:
			at := len(buf)
			buf = s.randomKey(set, uint64(i), buf)
			b = buf[at:len(buf):len(buf)]
		}
		keys[i] = filter.NewKey(b)
	}
	return keys
}
