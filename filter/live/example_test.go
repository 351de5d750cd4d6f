package live_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/siftdb/sift/filter/live"
)

func ExampleBloom() {
	seen, err := live.NewBloom(live.BloomOptions[string]{Items: 1_000_000, FPR: 0.01})
	if err != nil {
		panic(err)
	}
	fmt.Println(seen.Add("alice"), seen.Add("alice"))
	fmt.Println(seen.MayContain("alice"), seen.MayContain("bob"))
	// Output:
	// true false
	// true false
}

// A Java service writes a filter with BloomFilter.writeTo, or reads one that Go wrote.
func ExampleReadGuava() {
	f, _ := live.NewBloom(live.BloomOptions[int64]{Items: 1000, FPR: 0.01, Scheme: live.Guava})
	f.Add(42)
	var file bytes.Buffer
	f.WriteGuava(&file) // for BloomFilter.readFrom(in, Funnels.longFunnel())

	g, err := live.ReadGuava(&file, live.ReadOptions[int64]{MaxBytes: 1 << 20})
	fmt.Println(g.MayContain(42), g.MayContain(43), err)
	// Output: true false <nil>
}

// A filter that is shared with a Java service that uses Funnels.unencodedCharsFunnel().
func ExampleGuavaUTF16() {
	f, _ := live.NewBloom(live.BloomOptions[string]{Items: 1000, FPR: 0.01, Scheme: live.Guava, Funnel: live.GuavaUTF16})
	f.Add("café")
	fmt.Printf("%x %v\n", live.GuavaUTF16(nil, "é"), f.MayContain("café"))
	// Output: e900 true
}

// How many users came on both days, from two filters that do not store their IDs.
func ExampleBloom_ApproxIntersection() {
	o := live.BloomOptions[int64]{Items: 10_000, FPR: 0.01}
	monday, _ := live.NewBloom(o)
	tuesday, _ := live.NewBloom(o)
	for user := range int64(6000) {
		monday.Add(user)
		tuesday.Add(user + 2000)
	}
	n, err := monday.ApproxIntersection(tuesday)
	fmt.Println(n > 3800 && n < 4200, err)
	// Output: true <nil>
}

func ExampleDedup() {
	d, _ := live.NewDedup(live.DedupOptions[string]{Items: 1_000_000, FPR: 0.001})
	for v := range d.Unique(slices.Values([]string{"a", "b", "a", "c", "b"})) {
		fmt.Print(v, " ")
	}
	fmt.Printf("of %d, %d dropped", d.Seen(), d.Dropped())
	// Output: a b c of 5, 2 dropped
}

type memory map[string]string

func (m memory) Get(_ context.Context, k string) (string, bool, error) {
	v, ok := m[k]
	return v, ok, nil
}
func (m memory) Set(_ context.Context, k, v string) error { m[k] = v; return nil }

func ExampleGuard() {
	ctx := context.Background()
	database := map[string]string{"alice": "alice@example.com"}
	keys, _ := live.NewBloom(live.BloomOptions[string]{Items: 1000, FPR: 0.001})
	keys.Add("alice")
	guard, _ := live.NewGuard(live.GuardOptions[string, string]{Keys: live.Local(keys), Cache: memory{}})

	load := func(_ context.Context, k string) (string, error) {
		fmt.Println("asking the database for", k)
		if v, ok := database[k]; ok {
			return v, nil
		}
		return "", live.ErrAbsent
	}
	for _, k := range []string{"alice", "alice", "nobody"} {
		v, err := guard.Get(ctx, k, load)
		fmt.Println(v, errors.Is(err, live.ErrAbsent))
	}
	database["carol"] = "carol@example.com" // first the database,
	guard.Learn(ctx, "carol")               // then the filter
	v, _ := guard.Get(ctx, "carol", load)
	fmt.Println(v)
	// Output:
	// asking the database for alice
	// alice@example.com false
	// alice@example.com false
	//  true
	// asking the database for carol
	// carol@example.com
}

// With a filter that deletes, keys that are removed from the database can be removed from the
// filter. Its Add can fail, because it can be full.
func ExampleLocalFallible() {
	ctx := context.Background()
	database := map[string]string{"alice": "alice@example.com", "bob": "bob@example.com"}
	keys, _ := live.NewCuckoo(live.CuckooOptions[string]{Items: 1000, FPR: 0.001})
	guard, _ := live.NewGuard(live.GuardOptions[string, string]{Keys: live.LocalFallible(keys)})
	for k := range database {
		if err := guard.Learn(ctx, k); err != nil {
			fmt.Println(err) // the filter is full
		}
	}
	delete(database, "bob") // first the database,
	keys.Delete("bob")      // then the filter

	for _, k := range []string{"alice", "bob"} {
		v, err := guard.Get(ctx, k, func(_ context.Context, k string) (string, error) {
			fmt.Println("asking the database for", k)
			return database[k], nil
		})
		fmt.Println(v, errors.Is(err, live.ErrAbsent))
	}
	// Output:
	// asking the database for alice
	// alice@example.com false
	//  true
}
