package filter_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log"

	"github.com/siftdb/sift/filter"
)

// A filter is built from keys, stored as bytes, and probed for any key.
func Example() {
	policy := filter.Bloom(10)
	w := policy.NewWriter()
	for _, k := range []string{"apple", "banana", "cherry"} {
		w.Add(filter.NewKey([]byte(k)))
	}
	units, err := w.Finish()
	if err != nil {
		log.Fatal(err)
	}

	// Later, from the bytes and the family stored with them.
	r, err := filter.Open(policy.Family(), units)
	if err != nil {
		log.Fatal(err) // or proceed as if there were no filter
	}
	for _, k := range []string{"banana", "lemon"} {
		fmt.Println(k, r.MayContain(filter.NewKey([]byte(k))))
	}
	// Output:
	// banana true
	// lemon false
}

// Policies have names, for configuration files and command lines.
func ExampleParse() {
	p, err := filter.Parse("fuse(12)")
	fmt.Println(p.Name(), p.Family(), err)
	_, err = filter.Parse("bloom(99)")
	fmt.Println(err)
	// Output:
	// fuse(12) sift.Fuse <nil>
	// filter: policy "bloom(99)": bits per key 99 is outside [1, 30]
}

// The size of each kind of filter over a billion keys at an FPR of 0.1%.
func ExampleCompareSizes() {
	sizes, err := filter.CompareSizes(1e9, 0.001)
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range sizes {
		fmt.Printf("%-20s %5.2f bits/key %5.2f GiB  FPR %.4f%%  %.2f × limit\n",
			s.Name, s.BitsPerKey, s.Bytes/(1<<30), 100*s.FPR, s.OverLimit)
	}
	// Output:
	// limit                 9.97 bits/key  1.16 GiB  FPR 0.1000%  1.00 × limit
	// classic bloom        14.38 bits/key  1.67 GiB  FPR 0.1000%  1.44 × limit
	// bloom(15.55)         15.55 bits/key  1.81 GiB  FPR 0.0998%  1.56 × limit
	// fuse(10)             11.25 bits/key  1.31 GiB  FPR 0.0977%  1.13 × limit
	// ribbon(fpr=0.001)    10.01 bits/key  1.16 GiB  FPR 0.1000%  1.00 × limit
	// rocksdb-bloom(8)      8.00 bits/key  0.93 GiB  FPR 22.7472%  3.74 × limit
}

// The size of filters of 12 bits per key over a billion keys, without building them.
func ExampleExpect() {
	for _, p := range []filter.Policy{filter.Bloom(12), filter.Ribbon(12)} {
		s, _ := filter.Expect(p, 1e9)
		fmt.Printf("%-10s %.2f GiB, FPR %.4f%%\n", s.Name, s.Bytes/(1<<30), 100*s.FPR)
	}
	// Output:
	// bloom(12)  1.40 GiB, FPR 0.4144%
	// ribbon(12) 1.40 GiB, FPR 0.0252%
}

// Probing for many keys at once overlaps their cache misses.
func ExampleReader_mayContainMany() {
	w := filter.Fuse(8).NewWriter()
	w.Add(filter.NewKey([]byte("apple")))
	units, err := w.Finish()
	if err != nil {
		log.Fatal(err)
	}
	r, err := filter.Fuse(8).Open(units)
	if err != nil {
		log.Fatal(err)
	}
	keys := []filter.Key{filter.NewKey([]byte("apple")), filter.NewKey([]byte("pear"))}
	positive := make([]bool, len(keys))
	r.MayContainMany(keys, positive)
	fmt.Println(positive)
	// Output: [true false]
}

// A range filter is built from numbers, each with a prefix, and probed for ranges of them.
func ExampleRange() {
	policy := filter.Range(16, 0)
	w := policy.NewWriter()
	for _, second := range []uint64{100, 250, 9000} {
		w.Add([]byte("device/7/"), second)
	}
	block, err := w.Finish()
	if err != nil {
		log.Fatal(err)
	}
	r, err := policy.Open(block)
	if err != nil {
		log.Fatal(err) // or proceed as if there were no filter
	}
	fmt.Println(r.MayContainRange([]byte("device/7/"), 200, 300))
	fmt.Println(r.MayContainRange([]byte("device/7/"), 300, 400))
	fmt.Printf("FPR for 100 numbers: at most %.2f%%\n", 100*filter.RangeFPR(16, 100))
	// Output:
	// true
	// false
	// FPR for 100 numbers: at most 0.61%
}

// Only a policy with the same secret opens a keyed filter.
func ExampleKeyed() {
	var secret filter.Secret
	rand.Read(secret[:])
	policy, err := filter.Keyed(filter.Ribbon(10), secret)
	if err != nil {
		log.Fatal(err)
	}
	w := policy.NewWriter()
	w.Add(filter.NewKey([]byte("apple")))
	units, err := w.Finish()
	if err != nil {
		log.Fatal(err)
	}
	r, err := policy.Open(units)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(policy.Name(), r.MayContain(filter.NewKey([]byte("apple"))))

	other, err := filter.Keyed(filter.Ribbon(10), filter.Secret{})
	if err != nil {
		log.Fatal(err)
	}
	_, err = other.Open(units)
	fmt.Println(errors.Is(err, filter.ErrSecret))
	// Output:
	// keyed(ribbon(10)) true
	// true
}
