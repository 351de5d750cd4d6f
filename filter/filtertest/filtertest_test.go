package filtertest_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/filter/filtertest"
)

// recorder is a TB that records failures.
type recorder struct{ failures []string }

func (r *recorder) Helper()             {}
func (r *recorder) Logf(string, ...any) {}
func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// bad is a policy with one violation of the contract.
type bad struct {
	filter.Policy
	writer func(filter.Writer) filter.Writer
	open   func(good filter.Policy, units [][]byte) (filter.Reader, error)
}

func (b bad) NewWriter() filter.Writer {
	w := b.Policy.NewWriter()
	if b.writer != nil {
		return b.writer(w)
	}
	return w
}

func (b bad) Open(units [][]byte) (filter.Reader, error) {
	if b.open != nil {
		return b.open(b.Policy, units)
	}
	return b.Policy.Open(units)
}

// writerFunc changes the result of Finish, given the number of keys.
type writerFunc struct {
	filter.Writer
	finish func(numKeys int, units [][]byte) ([][]byte, error)
}

func (w writerFunc) Finish() ([][]byte, error) {
	n := w.NumKeys()
	units, err := w.Writer.Finish()
	if err != nil {
		return nil, err
	}
	return w.finish(n, units)
}

func finish(f func(numKeys int, units [][]byte) ([][]byte, error)) func(filter.Writer) filter.Writer {
	return func(w filter.Writer) filter.Writer { return writerFunc{w, f} }
}

// readerFunc changes some of a reader's answers.
type readerFunc struct {
	filter.Reader
	mayContain func(filter.Reader, filter.Key) bool
	many       func(filter.Reader, []filter.Key, []bool)
	fpr        func(filter.Reader) float64
}

func (r readerFunc) MayContain(k filter.Key) bool {
	if r.mayContain != nil {
		return r.mayContain(r.Reader, k)
	}
	return r.Reader.MayContain(k)
}

func (r readerFunc) MayContainMany(keys []filter.Key, positive []bool) {
	switch {
	case r.many != nil:
		r.many(r.Reader, keys, positive)
	case r.mayContain != nil:
		for i, k := range keys {
			positive[i] = r.mayContain(r.Reader, k)
		}
	default:
		r.Reader.MayContainMany(keys, positive)
	}
}

func (r readerFunc) FPR() float64 {
	if r.fpr != nil {
		return r.fpr(r.Reader)
	}
	return r.Reader.FPR()
}

// bytesFunc excludes every unhashed key.
type bytesFunc struct{ filter.Reader }

func (bytesFunc) MayContainBytes([]byte) bool { return false }

func reader(rf readerFunc) func(filter.Policy, [][]byte) (filter.Reader, error) {
	return func(good filter.Policy, units [][]byte) (filter.Reader, error) {
		r, err := good.Open(units)
		if err != nil {
			return nil, err
		}
		rf := rf
		rf.Reader = r
		return rf, nil
	}
}

// keepsKeys is a writer that keeps its keys across Finish.
type keepsKeys struct {
	filter.Writer
	keys []filter.Key
}

func (w *keepsKeys) Add(k filter.Key) {
	w.keys = append(w.keys, k)
	w.Writer.Add(k)
}

func (w *keepsKeys) Finish() ([][]byte, error) {
	units, err := w.Writer.Finish()
	if len(w.keys) > 2000 {
		for _, k := range w.keys {
			w.Writer.Add(k)
		}
		return w.Writer.Finish()
	}
	return units, err
}

// sharesBuffer is a writer that returns the same buffer from each Finish.
type sharesBuffer struct {
	filter.Writer
	buf []byte
}

func (w *sharesBuffer) Finish() ([][]byte, error) {
	units, err := w.Writer.Finish()
	if err != nil {
		return nil, err
	}
	w.buf = append(w.buf[:0], units[0]...)
	return [][]byte{w.buf}, nil
}

// reseal gives a changed Bloom block a valid checksum.
func reseal(block []byte) {
	binary.LittleEndian.PutUint64(block[len(block)-8:], xxhash.Sum64(block[:len(block)-8]))
}

type blockFunc struct {
	filter.BlockPolicy
	f func(good filter.BlockPolicy, block []byte, k filter.Key) bool
}

func (b blockFunc) MayContainBlock(block []byte, k filter.Key) bool {
	return b.f(b.BlockPolicy, block, k)
}

var sink []byte

func TestRunCatches(t *testing.T) {
	good := filter.Bloom(10)
	rocks := filter.RocksDBBloom(10)
	var once sync.Mutex
	count := 0
	for _, c := range []struct {
		desc string
		p    filter.Policy
		o    filtertest.Options
		want string // part of some failure
	}{
		{"one bit wrong among a million keys", bad{Policy: good, writer: finish(func(n int, units [][]byte) ([][]byte, error) {
			if n == 1_000_000 {
				b := units[0]
				i := 600_000
				for b[i] == 0 {
					i++
				}
				b[i] &= b[i] - 1
				reseal(b)
			}
			return units, nil
		})}, filtertest.Options{MaxKeys: 1_000_000}, "was added and is excluded"},
		{"keys kept across Finish", bad{Policy: good, writer: func(w filter.Writer) filter.Writer { return &keepsKeys{Writer: w} }},
			filtertest.Options{}, "used again"},
		{"a buffer used again", bad{Policy: good, writer: func(w filter.Writer) filter.Writer { return &sharesBuffer{Writer: w} }},
			filtertest.Options{}, "changed when the writer was used again"},
		{"panics on short bytes", bad{Policy: good, open: func(good filter.Policy, units [][]byte) (filter.Reader, error) {
			if len(units) > 0 {
				_ = units[0][len(units[0])-16]
			}
			return good.Open(units)
		}}, filtertest.Options{}, "panic"},
		{"MayContainBytes excludes keys", bad{Policy: good, open: func(good filter.Policy, units [][]byte) (filter.Reader, error) {
			r, err := good.Open(units)
			return bytesFunc{r}, err
		}}, filtertest.Options{}, "MayContainBytes"},
		{"panics in a block", blockFunc{good.(filter.BlockPolicy), func(good filter.BlockPolicy, block []byte, k filter.Key) bool {
			_ = block[len(block)-16]
			return good.MayContainBlock(block, k)
		}}, filtertest.Options{}, "panic"},
		{"MayContainBlock is always true", blockFunc{good.(filter.BlockPolicy), func(filter.BlockPolicy, []byte, filter.Key) bool { return true }},
			filtertest.Options{}, "MayContainBlock is true for the absent key"},
		{"a short block excludes", blockFunc{good.(filter.BlockPolicy), func(good filter.BlockPolicy, block []byte, k filter.Key) bool {
			return len(block) >= 16 && good.MayContainBlock(block, k)
		}}, filtertest.Options{}, "block cut to"},
		{"FPR higher than reported", bad{Policy: filter.Bloom(8), open: reader(readerFunc{fpr: func(filter.Reader) float64 { return 0.0097 }})},
			filtertest.Options{}, "FPR is 0.0097"},
		{"FPR 1.5 times as high as reported", bad{Policy: good, open: reader(readerFunc{fpr: func(r filter.Reader) float64 { return r.FPR() / 1.5 }})},
			filtertest.Options{}, "are not excluded"},
		{"returns true for every key", bad{Policy: good, open: reader(readerFunc{mayContain: func(filter.Reader, filter.Key) bool { return true }})},
			filtertest.Options{}, "are not excluded"},
		{"FPR is NaN", bad{Policy: good, open: reader(readerFunc{fpr: func(filter.Reader) float64 { return float64(len(sink)) / float64(len(sink)) }})},
			filtertest.Options{}, "FPR"},
		{"allocates", bad{Policy: good, open: reader(readerFunc{mayContain: func(r filter.Reader, k filter.Key) bool {
			once.Lock()
			sink = append([]byte(nil), k.Bytes...)
			once.Unlock()
			return r.MayContain(k)
		}})}, filtertest.Options{}, "allocates"},
		{"MayContainMany and MayContain differ", bad{Policy: good, open: reader(readerFunc{many: func(r filter.Reader, keys []filter.Key, positive []bool) {
			r.MayContainMany(keys, positive)
			if len(keys) == 77 {
				positive[76] = !positive[76]
			}
		}})}, filtertest.Options{}, "MayContainMany"},
		{"MayContainMany writes too far", bad{Policy: good, open: reader(readerFunc{many: func(r filter.Reader, keys []filter.Key, positive []bool) {
			r.MayContainMany(keys, positive)
			clear(positive[len(keys):])
		}})}, filtertest.Options{}, "wrote to positive"},
		{"a truncated block excludes", bad{Policy: rocks, open: func(good filter.Policy, units [][]byte) (filter.Reader, error) {
			r, err := good.Open(units)
			if err != nil && len(units) > 0 {
				return good.Open([][]byte{make([]byte, 5)})
			}
			return readerFunc{Reader: r, mayContain: func(r filter.Reader, k filter.Key) bool { return r.SizeBytes() > 5 && r.MayContain(k) }}, err
		}}, filtertest.Options{Unsealed: true}, "cut to"},
		{"no checksum", rocks, filtertest.Options{}, "flipped by"},
		{"other bytes each time", bad{Policy: good, writer: finish(func(n int, units [][]byte) ([][]byte, error) {
			if n > 100 {
				count++
				units[0][count%64] = 0xff
				reseal(units[0])
			}
			return units, nil
		})}, filtertest.Options{}, "other bytes"},
		{"trusts a count", bad{Policy: good, open: func(good filter.Policy, units [][]byte) (filter.Reader, error) {
			if len(units) > 0 && len(units[0]) > 16 {
				n := binary.LittleEndian.Uint32(units[0][len(units[0])-16:])
				sink = make([]byte, min(n, 1<<22))
			}
			return good.Open(units)
		}}, filtertest.Options{}, "Open allocates"},
		{"no units", bad{Policy: good, writer: finish(func(int, [][]byte) ([][]byte, error) { return nil, nil })},
			filtertest.Options{}, "no units"},
		{"an error from Finish", bad{Policy: good, writer: finish(func(int, [][]byte) ([][]byte, error) { return nil, fmt.Errorf("full") })},
			filtertest.Options{}, "full"},
		{"no reader", bad{Policy: good, open: func(filter.Policy, [][]byte) (filter.Reader, error) { return nil, nil }},
			filtertest.Options{}, "no reader"},
		{"changes the units", bad{Policy: good, open: func(good filter.Policy, units [][]byte) (filter.Reader, error) {
			r, err := good.Open(units)
			if err == nil {
				units[0][0] ^= 1
			}
			return r, err
		}}, filtertest.Options{}, "changed the units"},
	} {
		t.Run(c.desc, func(t *testing.T) {
			if c.o.MaxKeys == 0 {
				c.o.MaxKeys = 10_000
			}
			var r recorder
			filtertest.RunWith(&r, c.p, c.o)
			for _, f := range r.failures {
				if strings.Contains(f, c.want) {
					return
				}
			}
			t.Errorf("no failure contains %q; there are %d:\n%s", c.want, len(r.failures), strings.Join(r.failures, "\n"))
		})
	}
}

// badRange is a range policy whose Open violates the contract.
type badRange struct {
	filter.RangePolicy
	open func(good filter.RangePolicy, block []byte) (filter.RangeReader, error)
}

func (b badRange) Open(block []byte) (filter.RangeReader, error) { return b.open(b.RangePolicy, block) }

// TestRunRangeReportsOpen checks that violations of the contract by Open are reported as such, and
// cause no panic.
func TestRunRangeReportsOpen(t *testing.T) {
	fails := func(filter.RangePolicy, []byte) (filter.RangeReader, error) { return nil, fmt.Errorf("never") }
	nothing := func(filter.RangePolicy, []byte) (filter.RangeReader, error) { return nil, nil }
	damaged := func(good filter.RangePolicy, block []byte) (filter.RangeReader, error) {
		r, err := good.Open(block)
		if err != nil {
			return nil, nil
		}
		return r, nil
	}
	for _, c := range []struct {
		desc string
		open func(filter.RangePolicy, []byte) (filter.RangeReader, error)
		o    filtertest.Options
		want string
	}{
		{"an error", fails, filtertest.Options{}, "Open of a fresh filter: never"},
		{"no reader", nothing, filtertest.Options{}, "Open of a fresh filter returns no reader"},
		{"no reader after damage", damaged, filtertest.Options{}, "a changed byte at 0 returns no reader"},
		{"no reader after damage, unsealed", damaged, filtertest.Options{Unsealed: true}, "a changed byte at 0 returns no reader"},
	} {
		t.Run(c.desc, func(t *testing.T) {
			c.o.MaxKeys = 1000
			var r recorder
			filtertest.RunRangeWith(&r, badRange{filter.Range(10, 0), c.open}, c.o)
			found := false
			for _, f := range r.failures {
				found = found || strings.Contains(f, c.want)
				if strings.Contains(f, "panic") {
					t.Error(f)
				}
			}
			if !found {
				t.Errorf("no failure contains %q; there are %d:\n%s", c.want, len(r.failures), strings.Join(r.failures, "\n"))
			}
		})
	}
}

// TestRunAccepts checks that Run reports nothing for a valid policy, for several seeds.
func TestRunAccepts(t *testing.T) {
	for seed := uint64(2); seed < 6; seed++ {
		filtertest.RunWith(t, filter.Bloom(10), filtertest.Options{MaxKeys: 10_000, Seed: seed})
	}
}
