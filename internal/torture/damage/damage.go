// Package damage changes the files of a database in many ways and judges what an engine then
// returns. It is independent of any engine, so that several can be compared.
package damage

import (
	"bytes"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"
)

// Files are the files of a database by base name.
type Files map[string][]byte

// Size is the number of bytes in all files.
func (f Files) Size() (n int64) {
	for _, b := range f {
		n += int64(len(b))
	}
	return n
}

// with returns the files with one of them replaced, or removed if b is nil.
func (f Files) with(name string, b []byte) Files {
	g := maps.Clone(f)
	if b == nil {
		delete(g, name)
	} else {
		g[name] = b
	}
	return g
}

// Case is one way to damage a database.
type Case struct {
	Kind   string // what is done, "flip" for example
	Region string // the kind of the damaged file, and of its damaged bytes
	What   string // the full description
	Files  func() Files
}

// Answers is what an engine returns for a database.
type Answers struct {
	OpenErr error
	Scan    map[string]string
	ScanErr error
	Gets    []Get // one for each key that was looked up
	Err     error // any other error
}

// Get is the result of one lookup.
type Get struct {
	Value string
	Found bool
	Err   error
}

// Engine opens a database from files and reads all of it, by a scan and by a
// lookup of each key. It must not change the bytes.
type Engine interface {
	Name() string
	Read(files Files, keys []string) Answers
}

// Outcome is the result of a case.
type Outcome uint8

// The outcomes, from good to bad.
const (
	Right  Outcome = iota // every answer is right
	Error                 // some answers are errors, the others right
	Silent                // a wrong or missing answer and no error
	Panic                 // a crash
	Hang                  // no answer in time
)

// String returns the outcome's name.
func (o Outcome) String() string {
	return [...]string{"right", "error", "silent", "panic", "hang"}[o]
}

// Judge compares answers with the expected contents. The second result says what
// is wrong.
func Judge(a Answers, want map[string]string, keys []string) (Outcome, string) {
	if a.OpenErr != nil {
		return Error, ""
	}
	outcome := Right
	for _, err := range []error{a.Err, a.ScanErr} {
		if err != nil {
			outcome = Error
		}
	}
	for i, k := range keys {
		w, there := want[k]
		switch g := a.Gets[i]; {
		case g.Err != nil:
			outcome = max(outcome, Error)
		case g.Found != there || g.Value != w:
			return Silent, fmt.Sprintf("Get(%q) = %.30q, %v; want %.30q, %v", k, g.Value, g.Found, w, there)
		}
	}
	// A scan that fails may have returned some entries, but no wrong ones.
	for k, v := range a.Scan {
		if w, there := want[k]; !there || w != v {
			return Silent, fmt.Sprintf("the scan returns %q = %.30q; want %.30q, %v", k, v, w, there)
		}
	}
	if a.ScanErr == nil && len(a.Scan) != len(want) {
		return Silent, fmt.Sprintf("the scan returns %d keys of %d", len(a.Scan), len(want))
	}
	return outcome, ""
}

// Masks are the changes of a byte.
var Masks = []struct {
	Name  string
	Apply func(byte) byte
}{
	{"^01", func(b byte) byte { return b ^ 0x01 }},
	{"^80", func(b byte) byte { return b ^ 0x80 }},
	{"^FF", func(b byte) byte { return b ^ 0xff }},
	{"=00", func(byte) byte { return 0 }},
}

// Region names the part of a file that a byte belongs to.
type Region func(name string, offset int) string

// Flips returns a case for each byte of each file and each of the first masks of
// Masks that changes it.
func Flips(files Files, region Region, masks int) []Case {
	var cases []Case
	for _, name := range slices.Sorted(maps.Keys(files)) {
		b := files[name]
		for i, old := range b {
			for _, m := range Masks[:masks] {
				if m.Apply(old) == old {
					continue
				}
				cases = append(cases, Case{"flip", region(name, i), fmt.Sprintf("%s: byte %d %s", name, i, m.Name), func() Files {
					c := bytes.Clone(b)
					c[i] = m.Apply(old)
					return files.with(name, c)
				}})
			}
		}
	}
	return cases
}

// Truncations returns a case for each shorter length of each file.
func Truncations(files Files, region Region) []Case {
	var cases []Case
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for n := range files[name] {
			cases = append(cases, Case{"truncate", region(name, -1), fmt.Sprintf("%s: truncated to %d bytes", name, n), func() Files {
				return files.with(name, files[name][:n:n])
			}})
		}
	}
	return cases
}

// Swaps returns cases with each pair of files of one kind exchanged, each file
// missing, and each file with bytes appended.
func Swaps(files Files, region Region) []Case {
	var cases []Case
	names := slices.Sorted(maps.Keys(files))
	for i, a := range names {
		for _, b := range names[i+1:] {
			if filepath.Ext(a) == filepath.Ext(b) && filepath.Ext(a) != "" {
				cases = append(cases, Case{"swap", region(a, -1), a + " and " + b + " exchanged", func() Files {
					return files.with(a, files[b]).with(b, files[a])
				}})
			}
		}
		if len(files[a]) == 0 {
			continue
		}
		cases = append(cases, Case{"remove", region(a, -1), a + " missing", func() Files { return files.with(a, nil) }})
		for what, tail := range map[string][]byte{
			"zeros": make([]byte, 600), "garbage": bytes.Repeat([]byte{0xa7, 0x31, 0x5c}, 200), "itself": files[a],
		} {
			cases = append(cases, Case{"append", region(a, -1), a + " followed by " + what, func() Files {
				return files.with(a, append(bytes.Clone(files[a]), tail...))
			}})
		}
	}
	return cases
}

// Stale returns a case for each file whose contents differ in old, an earlier
// state of the database or another database: the file with its contents there.
func Stale(files, old Files, region Region) []Case {
	var cases []Case
	for _, name := range slices.Sorted(maps.Keys(files)) {
		b, ok := old[name]
		if ok && !bytes.Equal(b, files[name]) {
			cases = append(cases, Case{"stale", region(name, -1), "an old " + name, func() Files { return files.with(name, b) }})
		}
	}
	return cases
}

// ByKind is a Region that only distinguishes kinds of files.
func ByKind(name string, _ int) string {
	switch {
	case name == "CURRENT", name == "LOCK", name == "FILTERKEY":
		return name
	case strings.HasPrefix(name, "MANIFEST"), strings.HasPrefix(name, "marker.manifest"):
		return "MANIFEST"
	case strings.HasPrefix(name, "OPTIONS"):
		return "OPTIONS"
	}
	switch filepath.Ext(name) {
	case ".log":
		return "log"
	case ".ldb", ".sst":
		return "table"
	}
	return "other"
}

// Tally counts outcomes by kind of damage and region.
type Tally struct {
	Engine   string
	Counts   map[[2]string]*[Hang + 1]int
	Oversize int // cases that took more memory than the size of the files plus 64 MiB
	Bad      []string
	Limit    int // how many bad cases are recorded; Run sets 10
}

// Total returns the number of cases with an outcome.
func (t *Tally) Total(o Outcome) (n int) {
	for _, c := range t.Counts {
		n += c[o]
	}
	return n
}

// Cases returns the number of cases.
func (t *Tally) Cases() (n int) {
	for o := range Hang + 1 {
		n += t.Total(o)
	}
	return n
}

// String returns a table, a line for each kind of damage and region.
func (t *Tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-24s %-10s %-14s %8s %8s %8s %8s %6s %6s\n", "engine", "damage", "to", "cases", "right", "error", "silent", "panic", "hang")
	keys := slices.Collect(maps.Keys(t.Counts))
	sort.Slice(keys, func(i, j int) bool { return keys[i][0]+keys[i][1] < keys[j][0]+keys[j][1] })
	for _, k := range keys {
		c := t.Counts[k]
		fmt.Fprintf(&b, "%-24s %-10s %-14s %8d %8d %8d %8d %6d %6d\n", t.Engine, k[0], k[1],
			c[Right]+c[Error]+c[Silent]+c[Panic]+c[Hang], c[Right], c[Error], c[Silent], c[Panic], c[Hang])
	}
	return b.String()
}

// Verdict examines answers more closely than Judge can; it may change the outcome.
type Verdict func(c Case, a Answers, o Outcome, what string) (Outcome, string)

// timeout is how long an engine may take for one case.
const timeout = 30 * time.Second

// allowance is the memory that a case may take beyond the size of the files.
const allowance = 64 << 20

// Run has an engine read each damaged database. verdict may be nil.
func Run(e Engine, cases []Case, want map[string]string, keys []string, verdict Verdict) *Tally {
	t := &Tally{Engine: e.Name(), Counts: map[[2]string]*[Hang + 1]int{}, Limit: 10}
	var mu sync.Mutex
	var wg sync.WaitGroup
	next := make(chan Case)
	var large []Case // took much memory, but other cases were running
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for c := range next {
				before := allocated()
				o, what := try(e, c, want, keys, verdict)
				grown := allocated() - before
				mu.Lock()
				if grown > uint64(c.Files().Size())+allowance {
					large = append(large, c)
				}
				k := [2]string{c.Kind, c.Region}
				if t.Counts[k] == nil {
					t.Counts[k] = new([Hang + 1]int)
				}
				t.Counts[k][o]++
				if o >= Silent {
					t.note("%v: %s: %s", o, c.What, what)
				}
				mu.Unlock()
			}
		})
	}
	for _, c := range cases {
		next <- c
	}
	close(next)
	wg.Wait()
	for _, c := range large {
		before := allocated()
		try(e, c, want, keys, verdict)
		if grown := allocated() - before; grown > uint64(c.Files().Size())+allowance {
			t.Oversize++
			t.note("%s: reading it allocated %d MiB", c.What, grown>>20)
		}
	}
	return t
}

func (t *Tally) note(format string, args ...any) {
	if len(t.Bad) < t.Limit {
		t.Bad = append(t.Bad, fmt.Sprintf(format, args...))
	}
}

// allocated returns the number of bytes that the process has allocated so far.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// try reads one damaged database.
func try(e Engine, c Case, want map[string]string, keys []string, verdict Verdict) (Outcome, string) {
	type result struct {
		o    Outcome
		what string
	}
	done := make(chan result, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- result{Panic, fmt.Sprint(p)}
			}
		}()
		a := e.Read(c.Files(), keys)
		o, what := Judge(a, want, keys)
		if verdict != nil {
			o, what = verdict(c, a, o, what)
		}
		done <- result{o, what}
	}()
	select {
	case r := <-done:
		return r.o, r.what
	case <-time.After(timeout):
		return Hang, timeout.String()
	}
}
