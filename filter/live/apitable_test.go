package live

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// tableKinds are the columns of the table of methods in docs/applications.md.
var tableKinds = []reflect.Type{
	reflect.TypeFor[*Bloom[string]](),
	reflect.TypeFor[*Scalable[string]](),
	reflect.TypeFor[*Counting[string]](),
	reflect.TypeFor[*Cuckoo[string]](),
	reflect.TypeFor[*Pair[string]](),
	reflect.TypeFor[*Rotating[string]](),
	reflect.TypeFor[*Generations[string]](),
	reflect.TypeFor[*Dedup[string]](),
	reflect.TypeFor[*Sharded[string, *Bloom[string]]](),
	reflect.TypeFor[*Layered[string]](),
	reflect.TypeFor[*Cold[string]](),
}

// tableOrder is the order of the methods that several kinds have.
var tableOrder = []string{
	"Add", "AddMany", "MayContain", "MayContainMany", "Delete",
	"Merge", "Compatible", "Clone", "Equal", "Reset",
	"ApproxCount", "FillRatio", "FPR", "MemoryBytes",
	"WriteTo", "ReadFrom", "MarshalBinary", "UnmarshalBinary",
}

// missingMethods lists the reasons why kinds lack methods: for each reason, the methods and the
// kinds.
var missingMethods = []struct {
	reason  string
	methods []string
	kinds   []string
}{
	{"it is written once; `Newer` puts a filter in front of it that takes additions, and `Load` makes it a `Bloom`",
		[]string{"Add", "AddMany", "Delete", "Merge", "Compatible", "Clone", "Equal", "Reset"}, []string{"Cold"}},
	{"that would read the whole file: `Load` does, and its `Bloom` has the method",
		[]string{"ApproxCount", "FillRatio", "FPR"}, []string{"Cold"}},
	{"a layer may be the caller's own, which only answers lookups; `Layers` returns those in memory",
		[]string{"Add", "AddMany", "Delete", "Merge", "Compatible", "Clone", "Equal", "Reset", "ApproxCount", "FillRatio", "FPR"}, []string{"Layered"}},
	{"several elements share its bits, so none can be cleared; `Counting` and `Cuckoo` can delete",
		[]string{"Delete"}, []string{"Bloom", "Scalable", "Rotating", "Generations", "Dedup"}},
	{"`Of(v)` returns the shard; whether it has `Delete` is known when the program is compiled",
		[]string{"Delete"}, []string{"Sharded"}},
	{"it has parts of fixed capacity: two that are half full cannot be merged into one",
		[]string{"Merge", "Compatible"}, []string{"Scalable", "Generations"}},
	{"it mirrors its source: the next rebuild would undo the change",
		[]string{"Merge", "Compatible", "Reset"}, []string{"Rotating"}},
}

// reasonFor returns the number of the reason why a kind lacks a method, from 1 on, or 0 if there is
// none.
func reasonFor(kind, method string) int {
	for i, h := range missingMethods {
		if slices.Contains(h.kinds, kind) && slices.Contains(h.methods, method) {
			return i + 1
		}
	}
	return 0
}

func kindName(t reflect.Type) string {
	name, _, _ := strings.Cut(t.Elem().Name(), "[")
	return name
}

// results describes what a method returns.
func results(m reflect.Method) string {
	var out []string
	for i := range m.Type.NumOut() {
		t := m.Type.Out(i)
		name := t.Name()
		if name == "" {
			name = t.String()
		}
		if t == m.Type.In(0) {
			name = "itself"
		}
		out = append(out, name)
	}
	if len(out) == 0 {
		return "yes"
	}
	return strings.Join(out, ", ")
}

// methodTable formats the table of kinds and methods.
func methodTable() string {
	kindsOf := map[string]map[string]string{} // method, kind, results
	for _, t := range tableKinds {
		for i := range t.NumMethod() {
			m := t.Method(i)
			if kindsOf[m.Name] == nil {
				kindsOf[m.Name] = map[string]string{}
			}
			kindsOf[m.Name][kindName(t)] = results(m)
		}
	}
	var b bytes.Buffer
	b.WriteString("| |")
	for _, t := range tableKinds {
		fmt.Fprintf(&b, " %s |", kindName(t))
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(tableKinds)) + "\n")
	row := func(name string) {
		fmt.Fprintf(&b, "| `%s` |", name)
		for _, t := range tableKinds {
			cell, ok := kindsOf[name][kindName(t)]
			if !ok {
				cell = fmt.Sprintf("– (%d)", reasonFor(kindName(t), name))
			}
			fmt.Fprintf(&b, " %s |", cell)
		}
		b.WriteString("\n")
	}
	for _, name := range tableOrder {
		row(name)
	}
	own := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(kindsOf)) {
		if slices.Contains(tableOrder, name) {
			continue
		}
		for kind := range kindsOf[name] {
			own[kind] = append(own[kind], "`"+name+"`")
		}
	}
	b.WriteString("| further methods |")
	for _, t := range tableKinds {
		fmt.Fprintf(&b, " %s |", strings.Join(own[kindName(t)], " "))
	}
	b.WriteString("\n\nWhy a method is missing:\n\n")
	for i, h := range missingMethods {
		fmt.Fprintf(&b, "%d. %s\n", i+1, h.reason)
	}
	return b.String()
}

// Each missing method has exactly one reason, and each reason is for a missing method.
func TestMethodTableHoles(t *testing.T) {
	for _, kind := range tableKinds {
		for _, method := range tableOrder {
			_, has := kind.MethodByName(method)
			if reason := reasonFor(kindName(kind), method) != 0; reason == has {
				t.Errorf("%s.%s exists: %v, has a reason why it is missing: %v", kindName(kind), method, has, reason)
			}
		}
	}
	for i, h := range missingMethods {
		for _, kind := range h.kinds {
			for _, method := range h.methods {
				if reasonFor(kind, method) != i+1 {
					t.Errorf("%s.%s has two reasons", kind, method)
				}
			}
		}
	}
}

// The table of methods in docs/applications.md is up to date.
func TestMethodTable(t *testing.T) {
	const path, begin, end = "../../docs/applications.md", "<!-- methods, by TestMethodTable -->\n", "<!-- end of methods -->\n"
	page := string(must(os.ReadFile(path)))
	from, to := strings.Index(page, begin), strings.Index(page, end)
	if from < 0 || to < from {
		t.Fatalf("%s has no markers for the table", path)
	}
	from += len(begin)
	if want := methodTable(); page[from:to] != want {
		if *updateGolden {
			if err := os.WriteFile(path, []byte(page[:from]+want+page[to:]), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		t.Errorf("the table of methods is out of date; -live.update writes it:\n%s", want)
	}
}
