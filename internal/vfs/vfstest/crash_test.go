package vfstest

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

// outcomes counts what a power cut after n operations leaves under the names,
// over the two extremes and 400 seeds.
func outcomes(t *testing.T, m *Mem, n int, names ...string) map[string]int {
	t.Helper()
	seen := map[string]int{}
	for s := range Survival(402) {
		img := m.CrashImage(n, s)
		var got []string
		for _, name := range names {
			got = append(got, get(t, img, name))
		}
		seen[strings.Join(got, " ")]++
	}
	return seen
}

// oneOf checks that the outcomes that were seen are exactly those wanted.
func oneOf(t *testing.T, desc string, seen map[string]int, want ...string) {
	t.Helper()
	var got []string
	for s := range seen {
		got = append(got, s)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", desc, got, want)
	}
}

// TestCrashNames checks what a power cut may do to directory entries. "-" stands for a missing
// file.
func TestCrashNames(t *testing.T) {
	for _, tc := range []struct {
		desc  string
		do    func(t *testing.T, m *Mem)
		names string
		want  []string
	}{
		{"a new file that was synced may have no name",
			func(t *testing.T, m *Mem) { put(t, m, "n", "N", true) }, "n", []string{"-", "N"}},
		{"after SyncDir it has",
			func(t *testing.T, m *Mem) { put(t, m, "n", "N", true); must(t, m.SyncDir("/")) }, "n", []string{"N"}},
		{"SyncDir does not sync the data",
			func(t *testing.T, m *Mem) { put(t, m, "n", "", false); must(t, m.SyncDir("/")) }, "n", []string{""}},
		{"a removed file may come back",
			func(t *testing.T, m *Mem) { must(t, m.Remove("a")) }, "a", []string{"-", "A"}},
		{"after SyncDir it does not",
			func(t *testing.T, m *Mem) { must(t, m.Remove("a")); must(t, m.SyncDir("/")) }, "a", []string{"-"}},
		{"a rename may be undone, but is never half done",
			func(t *testing.T, m *Mem) { must(t, m.Rename("a", "b")) }, "a b", []string{"A B", "- A"}},
		{"after SyncDir it is done",
			func(t *testing.T, m *Mem) { must(t, m.Rename("a", "b")); must(t, m.SyncDir(".")) }, "a b", []string{"- A"}},
		{"a link may vanish, though the file remains",
			func(t *testing.T, m *Mem) { must(t, m.Link("a", "n")) }, "a n", []string{"A -", "A A"}},
		{"changes of different names persist in any order",
			func(t *testing.T, m *Mem) { must(t, m.Remove("a")); must(t, m.Remove("b")) },
			"a b", []string{"A B", "A -", "- B", "- -"}},
		{"changes of one name persist in order",
			func(t *testing.T, m *Mem) {
				put(t, m, "n", "1", true)
				must(t, m.Remove("n"))
				put(t, m, "n", "2", true)
			}, "n", []string{"-", "1", "2"}},
		{"a name that is used again implies that the rename away from it happened",
			func(t *testing.T, m *Mem) {
				must(t, m.Rename("a", "n"))
				put(t, m, "a", "2", true)
			}, "a n", []string{"A -", "- A", "2 A"}},
		{"replacing a file may leave the old one, or none",
			func(t *testing.T, m *Mem) { put(t, m, "a", "2", true) }, "a", []string{"A", "-", "2"}},
		{"a synced file survives under whichever name survives",
			func(t *testing.T, m *Mem) {
				put(t, m, "n", "N", true)
				must(t, m.SyncDir("/"))
				must(t, m.Link("n", "n2"))
				must(t, m.Remove("n"))
			}, "n n2", []string{"N -", "N N", "- N", "- -"}},
		{"data written after a rename is in the renamed file",
			func(t *testing.T, m *Mem) {
				f, err := m.Create("n")
				must(t, err)
				must(t, m.Rename("n", "b"))
				must(t, m.SyncDir("/"))
				_, err = io.WriteString(f, "N")
				must(t, err)
				must(t, f.Sync())
			}, "n b", []string{"- N"}},
		{"a new directory and all in it may vanish",
			func(t *testing.T, m *Mem) {
				must(t, m.MkdirAll("d"))
				put(t, m, "d/n", "N", true)
				must(t, m.SyncDir("d"))
			}, "d/n", []string{"-", "N"}},
		{"after SyncDir of its parent it does not",
			func(t *testing.T, m *Mem) {
				must(t, m.MkdirAll("d"))
				must(t, m.SyncDir("/"))
				put(t, m, "d/n", "N", true)
				must(t, m.SyncDir("d"))
			}, "d/n", []string{"N"}},
		{"SyncDir of another directory does nothing",
			func(t *testing.T, m *Mem) {
				must(t, m.MkdirAll("d"))
				must(t, m.SyncDir("/"))
				put(t, m, "d/n", "N", true)
				must(t, m.SyncDir("/"))
			}, "d/n", []string{"-", "N"}},
		{"a move is durable with the directory of the new name",
			func(t *testing.T, m *Mem) {
				must(t, m.MkdirAll("d"))
				must(t, m.SyncDir("/"))
				must(t, m.Rename("a", "d/n"))
				must(t, m.SyncDir("/"))
			}, "a d/n", []string{"A -", "- A"}},
		{"with that, the removal of the old name is durable, too",
			func(t *testing.T, m *Mem) {
				must(t, m.MkdirAll("d"))
				must(t, m.SyncDir("/"))
				must(t, m.Rename("a", "d/n"))
				must(t, m.SyncDir("d"))
			}, "a d/n", []string{"- A"}},
		{"replacing CURRENT without its data synced may leave it empty",
			func(t *testing.T, m *Mem) {
				put(t, m, "tmp", "2", false)
				must(t, m.Rename("tmp", "a"))
				must(t, m.SyncDir("/"))
			}, "a", []string{"", "2", "\x00", "*"}},
	} {
		t.Run(tc.desc, func(t *testing.T) {
			m := NewMem()
			put(t, m, "a", "A", true)
			put(t, m, "b", "B", true)
			must(t, m.SyncDir("/"))
			tc.do(t, m)
			seen := outcomes(t, m, m.NumOps(), strings.Fields(tc.names)...)
			for s, n := range seen { // garbage is "*"
				if len(s) == 1 && !strings.Contains("-AB12N\x00", s) {
					delete(seen, s)
					seen["*"] += n
				}
			}
			oneOf(t, m.String(), seen, tc.want...)
		})
	}
}

// TestCrashEveryOperation follows one file's name and data through the list of
// operations.
func TestCrashEveryOperation(t *testing.T) {
	m := NewMem()
	f, err := m.Create("f")
	must(t, err)
	_, err = io.WriteString(f, "one")
	must(t, err)
	must(t, f.Sync())
	must(t, m.SyncDir("/"))
	_, err = io.WriteString(f, "two")
	must(t, err)
	must(t, m.Remove("f"))
	want := []string{"0 create f", "1 write f 0+3", "2 sync f", "3 sync-dir /", "4 write f 3+3", "5 remove f"}
	var got []string
	for _, o := range m.Ops(0, m.NumOps()) {
		got = append(got, o.String())
	}
	if !slices.Equal(got, want) {
		t.Fatalf("operations %q, want %q", got, want)
	}
	// Also backwards, which replays the operations from the start.
	for _, n := range []int{0, 1, 2, 3, 4, 5, 6, 3, 0, 6} {
		lost, kept := get(t, m.CrashImage(n, LoseUnsynced), "f"), get(t, m.CrashImage(n, KeepUnsynced), "f")
		wantLost := []string{"-", "-", "-", "-", "one", "one", "one"}[n]
		wantKept := []string{"-", "", "one", "one", "one", "onetwo", "-"}[n]
		if lost != wantLost || kept != wantKept {
			t.Errorf("after %d operations: %q and %q, want %q and %q", n, lost, kept, wantLost, wantKept)
		}
	}
}

// TestCrashData checks that the synced part of a file stays, and that the seeds cover everything
// that can happen to the rest.
func TestCrashData(t *testing.T) {
	const synced, size = 700, 5000
	data := bytes.Repeat([]byte{0xaa}, size)
	m := NewMem()
	f, err := m.Create("f")
	must(t, err)
	must(t, m.SyncDir("/"))
	_, err = f.Write(data[:synced])
	must(t, err)
	must(t, f.Sync())
	_, err = f.Write(data[synced:2000])
	must(t, err)
	_, err = f.Write(data[2000:])
	must(t, err)

	count := map[string]int{}
	for seed := range uint64(2000) {
		got := get(t, m.CrashImage(m.NumOps(), TearUnsynced(seed)), "f")
		if len(got) < synced || len(got) > size || got[:synced] != string(data[:synced]) {
			t.Fatalf("seed %d: synced bytes changed", seed)
		}
		switch {
		case len(got) == synced:
			count["lost"]++
		case len(got) == size:
			count["whole length"]++
		case len(got)%sectorSize == 0:
			count["cut at a sector"]++
		default:
			count["cut within a sector"]++
		}
		rest, holeBefore := []byte(got[synced:]), false
		for at := synced; len(rest) > 0; {
			n := min(sectorSize-at%sectorSize, len(rest))
			switch s := rest[:n]; {
			case bytes.Equal(s, data[:n]):
				count["kept sector"]++
				if holeBefore {
					count["kept after lost"]++
				}
			case bytes.Equal(s, make([]byte, n)):
				count["zero sector"]++
				holeBefore = true
			default:
				if n == sectorSize && (bytes.IndexByte(s[:100], 0xaa) == 0 && bytes.IndexByte(s[100:], 0xaa) == 0) {
					t.Fatalf("seed %d: a sector is partly kept", seed)
				}
				count["garbage sector"]++
				holeBefore = true
			}
			rest, at = rest[n:], at+n
		}
		if got == string(data) {
			count["all kept"]++
		}
	}
	for _, what := range []string{"lost", "whole length", "cut at a sector", "cut within a sector",
		"kept sector", "kept after lost", "zero sector", "garbage sector", "all kept"} {
		if count[what] < 50 {
			t.Errorf("%s: only %d of 2000; all: %v", what, count[what], count)
		}
	}

	must(t, f.Sync())
	oneOf(t, "synced", outcomes(t, m, m.NumOps(), "f"), string(data))
}

// TestCrashIsReproducible makes the same images twice, in different orders, and
// checks that an image and its origin do not affect each other.
func TestCrashIsReproducible(t *testing.T) {
	build := func() *Mem {
		m := NewMem()
		for i := range 20 {
			put(t, m, fmt.Sprint("f", i), strings.Repeat(fmt.Sprint(i), 1000), i%3 == 0)
			if i%4 == 0 {
				must(t, m.SyncDir("/"))
			}
			if i > 5 {
				must(t, m.Rename(fmt.Sprint("f", i-3), fmt.Sprint("g", i%7)))
			}
		}
		return m
	}
	contents := func(m *Mem) string {
		s := m.String()
		names, err := m.List("/")
		must(t, err)
		for _, n := range names {
			s += get(t, m, n)
		}
		return s
	}
	a, b := build(), build()
	n := a.NumOps()
	images := map[[2]int]string{}
	for i := range n + 1 {
		for seed := range 5 {
			images[[2]int{i, seed}] = contents(a.CrashImage(i, TearUnsynced(uint64(seed))))
		}
	}
	different := map[string]bool{}
	for i := n; i >= 0; i -= 3 {
		for seed := range 5 {
			want := images[[2]int{i, seed}]
			if contents(b.CrashImage(i, TearUnsynced(uint64(seed)))) != want {
				t.Fatalf("the image after %d operations, seed %d, differs", i, seed)
			}
			different[want] = true
		}
	}
	if len(different) < n {
		t.Fatalf("only %d different images", len(different))
	}

	before := contents(a)
	img := a.CrashImage(n, KeepUnsynced)
	same := contents(img)
	if same != before {
		t.Fatalf("all kept, the image is\n%swant\n%s", img, a)
	}
	f, err := a.Create("more")
	must(t, err)
	_, err = io.WriteString(f, "MORE")
	must(t, err)
	put(t, a, "f0", "changed", true)
	must(t, a.Remove("g2"))
	if contents(img) != same {
		t.Error("the image changed with its origin")
	}
	before = contents(a)
	put(t, img, "f1", "changed", true)
	must(t, img.Remove("g3"))
	if contents(a) != before {
		t.Error("the origin changed with its image")
	}

	// The initial contents of an image are durable, and its own operations count from 0.
	again := a.CrashImage(n, KeepUnsynced)
	if again.NumOps() != 0 || contents(again.CrashImage(0, LoseUnsynced)) != same {
		t.Error("the initial contents of an image are not durable")
	}
	put(t, again, "new", "x", true)
	must(t, again.Remove("f0"))
	if lost := again.CrashImage(again.NumOps(), LoseUnsynced); contents(lost) != same {
		t.Error("an image's image is wrong")
	}
}

// TestDropUnsynced checks a failed Sync that loses unsynced data.
func TestDropUnsynced(t *testing.T) {
	m := NewMem()
	file, err := m.Create("f")
	must(t, err)
	f := file.(*memFile)
	must(t, m.SyncDir("/"))
	write := func(s string) {
		t.Helper()
		_, err := io.WriteString(f, s)
		must(t, err)
	}
	check := func(desc, lost, kept string) {
		t.Helper()
		n := m.NumOps()
		if got := get(t, m.CrashImage(n, LoseUnsynced), "f"); got != lost {
			t.Errorf("%s: %q, want %q", desc, got, lost)
		}
		if got := get(t, m.CrashImage(n, KeepUnsynced), "f"); got != kept {
			t.Errorf("%s: if unsynced data is kept: %q, want %q", desc, got, kept)
		}
		for s := range outcomes(t, m, n, "f") {
			if !strings.HasPrefix(s, lost) || len(s) > len(kept) {
				t.Errorf("%s: a tear gives %q", desc, s)
			}
		}
	}
	write("one")
	must(t, f.Sync())
	write("two")
	must(t, f.dropUnsynced())
	check("lost", "one", "one")
	if s := get(t, m, "f"); s != "onetwo" {
		t.Errorf("before the power cut: %q", s)
	}
	must(t, f.Sync())
	check("synced with nothing new", "one", "one")
	write("three")
	check("written on", "one", "one\x00\x00\x00three")
	must(t, f.Sync())
	check("synced again", "one\x00\x00\x00three", "one\x00\x00\x00three")
	write("four")
	must(t, f.dropUnsynced())
	write("five")
	must(t, f.dropUnsynced())
	write("six")
	must(t, f.Sync())
	must(t, f.dropUnsynced()) // with nothing to lose
	want := "one\x00\x00\x00three" + strings.Repeat("\x00", 8) + "six"
	check("lost twice", want, want)
}

// BenchmarkCrashImages makes the images of a small workload: 56 operations on 8
// files, 100 KB in all.
func BenchmarkCrashImages(b *testing.B) {
	m := NewMem()
	for i := range 8 {
		f, err := m.Create(fmt.Sprint(i))
		must(b, err)
		for range 5 {
			_, err := f.Write(make([]byte, 2500))
			must(b, err)
		}
		if i%2 == 0 {
			must(b, f.Sync())
			must(b, m.SyncDir("/"))
		}
	}
	n, i := m.NumOps(), 0
	for b.Loop() {
		m.CrashImage(i/100%(n+1), Survival(i%100))
		i++
	}
}
