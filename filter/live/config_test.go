package live

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"reflect"
	"strings"
	"testing"
	"time"
)

// The text of each kind is parsed, printed as it was, converted to JSON and back, and builds the
// filter that it names.
func TestConfig(t *testing.T) {
	for text, want := range map[string]any{
		"bloom(items=1000000,fpr=0.001)":                                                          new(Bloom[string]),
		"bloom(items=100,fpr=1e-09,scheme=guava)":                                                 new(Bloom[string]),
		"bloom(bits=512,hashes=3,scheme=blocked,seed=18446744073709551615)":                       new(Bloom[string]),
		"counting(items=1000,fpr=0.01,seed=4)":                                                    new(Counting[string]),
		"cuckoo(items=1000,fpr=0.01)":                                                             new(Cuckoo[string]),
		"scalable(fpr=0.01)":                                                                      new(Scalable[string]),
		"scalable(items=10,fpr=0.01,growth=4,seed=1)":                                             new(Scalable[string]),
		"generations(items=1000,fpr=0.01,span=1h0m0s,generations=8,scheme=blocked)":               new(Generations[string]),
		"dedup(items=1000,fpr=0.01)":                                                              new(Dedup[string]),
		"dedup(items=1000,fpr=0.01,span=1m30s,window=true)":                                       new(Dedup[string]),
		"rotating(items=1000,fpr=0.01,every=1h0m0s,check=1m0s,max-fpr=0.05)":                      new(Rotating[string]),
		"pair(added=bloom(items=1000,fpr=0.01),removed=bloom(items=10,fpr=0.0001,scheme=guava))":  new(Pair[string]),
		"sharded(shards=4,of=counting(items=300,fpr=0.01))":                                       new(Sharded[string, Filter[string]]),
		"sharded(shards=2,of=pair(added=bloom(items=9,fpr=0.01),removed=bloom(items=1,fpr=0.1)))": new(Sharded[string, Filter[string]]),
	} {
		c, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if c.String() != text {
			t.Errorf("%s: prints as %s", text, c.String())
		}
		data := must(json.Marshal(c))
		var object, quoted Config
		if err := json.Unmarshal(data, &object); err != nil || !reflect.DeepEqual(object, c) {
			t.Errorf("%s: %v from %s (%v)", text, object.String(), data, err)
		}
		if err := json.Unmarshal(must(json.Marshal(text)), &quoted); err != nil || !reflect.DeepEqual(quoted, c) {
			t.Errorf("%s: %v as a JSON string (%v)", text, quoted.String(), err)
		}
		f, err := Build(c, BuildOptions[string]{Source: noSource})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if reflect.TypeOf(f) != reflect.TypeOf(want) {
			t.Errorf("%s: built a %T", text, f)
		}
		if isNew, err := TryAdd(f, "a"); !isNew || err != nil || !f.MayContain("a") {
			t.Errorf("%s: %v %v", text, isNew, err)
		}
	}
	spaced := must(Parse(" bloom ( items = 1e6 , fpr = 1e-3 ) "))
	if spaced.Items != 1_000_000 || spaced.FPR != 0.001 {
		t.Errorf("with spaces: %v", spaced)
	}
	var fromJSON struct{ Seen Config }
	if err := json.Unmarshal([]byte(`{"Seen": {"kind": "dedup", "items": 1000, "fpr": 0.01, "span": "1h"}}`), &fromJSON); err != nil || time.Duration(fromJSON.Seen.Span) != time.Hour {
		t.Errorf("%v %v", fromJSON, err)
	}
}

// Invalid configurations are rejected, and the error names the field.
func TestConfigRejects(t *testing.T) {
	for text, field := range map[string]string{
		"":                                   "kind",
		"blom(items=1,fpr=0.1)":              "kind",
		"bloom(items=1,fpr=0.1":              "configuration",
		"bloom(items)":                       "configuration",
		"bloom(items=1,,fpr=0.1)":            "configuration",
		"bloom(items=1,fpr=0.1,growth=2)":    "growth",
		"bloom(items=1,items=2,fpr=0.1)":     "items",
		"bloom(items=-1,fpr=0.1)":            "items",
		"bloom(items=1.5,fpr=0.1)":           "items",
		"bloom(items=1e40,fpr=0.1)":          "items",
		"bloom(items=x,fpr=0.1)":             "items",
		"bloom(items=1,fpr=0.1,scheme=java)": "scheme",
		"dedup(items=1,fpr=0.1,span=1)":      "span",
		"sharded(shards=2,of=blom(items=1))": "kind",
		"sharded(shards=2,of=(":              "configuration",
		strings.Repeat("sharded(of=", 1000):  "configuration",
	} {
		var o *OptionError
		if _, err := Parse(text); !errors.As(err, &o) || o.Field != field {
			t.Errorf("%.50s: %v, want field %s", text, err, field)
		}
	}
	for text, field := range map[string]string{
		"bloom(fpr=0.1)":                                     "Items",
		"bloom(items=1,fpr=2)":                               "FPR",
		"scalable(fpr=0.1,growth=99)":                        "Growth",
		"rotating(items=1,fpr=0.1)":                          "Source",
		"pair(added=bloom(items=1,fpr=0.1))":                 "removed",
		"sharded(shards=0,of=bloom(items=1,fpr=0.1))":        "Shards",
		"sharded(shards=2)":                                  "of",
		"sharded(shards=2,of=sharded(shards=2))":             "of",
		"sharded(shards=2,of=bloom(items=0,fpr=0.5,seed=1))": "Items",
	} {
		var o *OptionError
		if _, err := Build(must(Parse(text)), BuildOptions[string]{}); !errors.As(err, &o) || o.Field != field {
			t.Errorf("%s: %v, want field %s", text, err, field)
		}
	}
	for _, data := range []string{`{"kind":"bloom","itmes":1}`, `{"kind":"bloom","growth":1}`, `{"kind":1}`, `7`, `"bloom(x=1)"`,
		strings.Repeat(`{"kind":"sharded","of":`, 200) + `{"kind":"bloom"}` + strings.Repeat("}", 200)} {
		var c Config
		if err := json.Unmarshal([]byte(data), &c); err == nil {
			t.Errorf("%.50s: no error", data)
		}
	}
}

// A configuration that Parse accepts is printed as text that Parse accepts.
func FuzzParse(f *testing.F) {
	f.Add("bloom(items=1e6,fpr=0.001)")
	f.Add("sharded(shards=2,of=pair(added=bloom(items=9,fpr=0.01),removed=bloom(items=1,fpr=0.1)))")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(c.String())
		if err != nil || again.String() != c.String() {
			t.Errorf("%q prints as %q, which is %q (%v)", text, c.String(), again.String(), err)
		}
	})
}

// TestConfigShardedRotating checks that each shard of a rotating filter holds only its elements.
func TestConfigShardedRotating(t *testing.T) {
	const n = 16_000
	source := func(context.Context) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			for i := range n {
				if !yield(member(i), nil) {
					return
				}
			}
		}
	}
	for name, count := range map[string]func(context.Context) (uint64, error){
		"not counted": nil,
		"counted":     func(context.Context) (uint64, error) { return n, nil },
	} {
		c := must(Parse("sharded(shards=16,of=rotating(items=1000,fpr=0.01))"))
		f := must(Build(c, BuildOptions[string]{Source: source, Count: count}))
		for _, shard := range f.(*Sharded[string, Filter[string]]).All() {
			if err := shard.(*Rotating[string]).Rebuild(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for i := range n {
			if !f.MayContain(member(i)) {
				t.Fatalf("%s: %d is lost", name, i)
			}
		}
		if p := f.FPR(); p > 0.02 {
			t.Errorf("%s: FPR %v", name, p)
		}
		if bytes := f.MemoryBytes(); bytes > 2*n { // 12 bits per element
			t.Errorf("%s: %d bytes", name, bytes)
		}
	}
}
