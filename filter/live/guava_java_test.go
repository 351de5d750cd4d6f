package live

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// guavaJars are the paths where Guava may be: that of Debian's libguava-java, and the user's own.
var guavaJars = []string{"/usr/share/java/guava.jar", os.Getenv("GUAVA_JAR")}

// A Java program with Guava writes the same bytes as Go, and gives the same answers from Go's
// files: for each kind of element and both strategies, for present and absent elements.
func TestGuavaJava(t *testing.T) {
	jar := ""
	for _, j := range guavaJars {
		if _, err := os.Stat(j); err == nil && j != "" {
			jar = j
		}
	}
	if jar == "" {
		t.Skip("Guava is not installed (libguava-java, or GUAVA_JAR)")
	}
	if _, err := exec.LookPath("javac"); err != nil {
		t.Skip("javac is not installed")
	}
	const n, fpp = 3000, 0.02
	dir := t.TempDir()
	type check struct {
		name   string
		file   []byte
		answer func(i int) bool
	}
	var checks []check
	for _, s := range []Scheme{Guava, GuavaMitz32} {
		strategy := map[Scheme]string{Guava: "MURMUR128_MITZ_64", GuavaMitz32: "MURMUR128_MITZ_32"}[s]
		text := func(i int) string { return fmt.Sprint("user:商品😀", i) }
		add := func(kind string, file []byte, answer func(i int) bool) {
			name := kind + "-" + strategy
			if err := os.WriteFile(filepath.Join(dir, "go-"+name), file, 0o600); err != nil {
				t.Fatal(err)
			}
			checks = append(checks, check{name, file, answer})
		}
		for _, kind := range []string{"utf8", "utf16"} {
			o := BloomOptions[string]{Items: n, FPR: fpp, Scheme: s}
			if kind == "utf16" {
				o.Funnel = GuavaUTF16
			}
			file, answer := guavaFile(t, o, n, text)
			add(kind, file, answer)
		}
		file, answer := guavaFile(t, BloomOptions[int32]{Items: n, FPR: fpp, Scheme: s}, n, func(i int) int32 { return int32(i)*7919 - 5000 })
		add("int", file, answer)
		file, answer = guavaFile(t, BloomOptions[int64]{Items: n, FPR: fpp, Scheme: s}, n, func(i int) int64 { return int64(i)*1_000_003*1_000_003 - 1<<40 })
		add("long", file, answer)
		file, answer = guavaFile(t, BloomOptions[[]byte]{Items: n, FPR: fpp, Scheme: s}, n, func(i int) []byte { return []byte{byte(i), byte(i >> 8), byte(i >> 16)} })
		add("bytes", file, answer)
	}

	cmd := exec.Command("java", "-cp", jar, "testdata/java/GuavaFile.java", dir, fmt.Sprint(n), fmt.Sprint(fpp))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	if got := strings.Count(string(out), "expectedFpp"); got != len(checks) {
		t.Errorf("Java processed %d filters of %d:\n%s", got, len(checks), out)
	}
	for _, c := range checks {
		java, err := os.ReadFile(filepath.Join(dir, "java-"+c.name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(java, c.file) {
			t.Errorf("%s: Java wrote %d bytes, Go %d, and they differ", c.name, len(java), len(c.file))
		}
		answers, err := os.ReadFile(filepath.Join(dir, "answers-"+c.name))
		if err != nil {
			t.Fatal(err)
		}
		if len(answers) != 5*n {
			t.Fatalf("%s: %d answers", c.name, len(answers))
		}
		positive := 0
		for i, a := range answers {
			if (a == 1) != c.answer(i) {
				t.Fatalf("%s: element %d: Java returns %d, Go %v", c.name, i, a, c.answer(i))
			}
			if i < n && a != 1 {
				t.Fatalf("%s: element %d is lost", c.name, i)
			}
			positive += int(a)
		}
		if fp := positive - n; fp == 0 || fp > 4*n/20 {
			t.Errorf("%s: %d false positives of %d", c.name, fp, 4*n)
		}
	}
}

// guavaFile returns a filter of n elements in Guava's format, and the lookups of the filter that
// is read back from it.
func guavaFile[T any](t *testing.T, o BloomOptions[T], n int, element func(i int) T) ([]byte, func(i int) bool) {
	f := must(NewBloom(o))
	for i := range n {
		f.Add(element(i))
	}
	var b bytes.Buffer
	if _, err := f.WriteGuava(&b); err != nil {
		t.Fatal(err)
	}
	g, err := ReadGuava(bytes.NewReader(b.Bytes()), ReadOptions[T]{MaxBytes: 1 << 20, Funnel: o.Funnel})
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), func(i int) bool { return g.MayContain(element(i)) }
}
