package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// suite is what can catch mutants: one test of the short form, or all tests of
// a package.
type suite struct {
	Name string
	Pkg  string // directory below the root
	Test string // pattern; "" for all

	// Set by a run without any mutant.
	Reached map[int]bool  // the mutants whose place it comes to
	Took    time.Duration // a mutant that takes much longer hangs
}

// runner runs mutants.
type runner struct {
	root, work string
	suites     []*suite
	until      time.Time // begin none after it; zero: no end

	mu      sync.Mutex
	results map[int]result
	out     *os.File
}

// result is what became of a mutant.
type result struct {
	ID      int
	By      string // what caught it
	Reached bool   // any test came to its place
}

// newRunner builds the test binaries and runs each suite once without a mutant,
// or, if same, takes over what an earlier run has left of that and of results.
func newRunner(root, work string, same bool) (*runner, error) {
	r := &runner{root: root, work: work, results: map[int]result{}}
	state := filepath.Join(work, "suites.json")
	if !same {
		for _, name := range []string{state, r.resultsFile()} {
			if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		}
	}
	b, err := os.ReadFile(state)
	if errors.Is(err, fs.ErrNotExist) {
		err = r.prepare(state)
	} else if err == nil {
		err = json.Unmarshal(b, &r.suites)
	}
	if err != nil {
		return nil, err
	}
	return r, r.readResults()
}

func (r *runner) resultsFile() string { return filepath.Join(r.work, "results.json") }

// bin is the test binary of a package.
func (r *runner) bin(pkg string) string {
	return filepath.Join(r.work, strings.ReplaceAll(filepath.ToSlash(filepath.Join("test", pkg)), "/", "_"))
}

// prepare builds the binaries and finds what each suite reaches: the check of an
// error is reached when there is an error.
func (r *runner) prepare(state string) error {
	for _, name := range short {
		r.suites = append(r.suites, &suite{Name: name, Pkg: "internal/torture", Test: "^" + name + "$"})
	}
	for _, d := range dirs {
		if strings.HasSuffix(d, ".go") {
			d = filepath.Dir(d)
		}
		r.suites = append(r.suites, &suite{Name: "tests of " + d, Pkg: d})
	}
	built := map[string]bool{}
	for _, s := range r.suites {
		if built[s.Pkg] {
			continue
		}
		built[s.Pkg] = true
		build := exec.Command("go", "test", "-c", "-vet=off", "-overlay", filepath.Join(r.work, "overlay.json"), "-o", r.bin(s.Pkg), "./"+filepath.ToSlash(s.Pkg))
		build.Dir = r.root
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("building the mutants: %w\n%s", err, out)
		}
	}
	errs := make([]error, len(r.suites))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(errs)); i = next.Add(1) - 1 {
				errs[i] = r.findReached(r.suites[i])
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	b, err := json.Marshal(r.suites)
	if err != nil {
		return err
	}
	return os.WriteFile(state, b, 0o644)
}

// findReached runs a suite without a mutant.
func (r *runner) findReached(s *suite) error {
	mark, err := os.MkdirTemp(r.work, "reached")
	if err != nil {
		return err
	}
	start := time.Now()
	if out, err := r.test(s, -1, mark); err != nil {
		return fmt.Errorf("%s fails without any mutant: %w\n%s", s.Name, err, out)
	}
	s.Took = time.Since(start)
	marks, err := os.ReadDir(mark)
	if err != nil {
		return err
	}
	s.Reached = map[int]bool{}
	for _, m := range marks {
		id, err := strconv.Atoi(m.Name())
		if err != nil {
			return err
		}
		s.Reached[id] = true
	}
	fmt.Printf("%s reaches %d in %v\n", s.Name, len(marks), s.Took.Round(time.Millisecond))
	return os.RemoveAll(mark)
}

// readResults reads the results so far, and opens their file for more.
func (r *runner) readResults() (err error) {
	r.out, err = os.OpenFile(r.resultsFile(), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	in := bufio.NewScanner(r.out)
	for in.Scan() {
		var x result
		if err := json.Unmarshal(in.Bytes(), &x); err != nil {
			return err
		}
		r.results[x.ID] = x
	}
	return in.Err()
}

// test runs a suite with a mutant switched on, 0 for none and -1 to note those
// whose place is reached.
func (r *runner) test(s *suite, id int, mark string) ([]byte, error) {
	timeout := time.Hour
	if s.Took > 0 {
		timeout = 20*time.Second + 4*s.Took
	}
	args := []string{"-test.failfast", "-test.timeout", timeout.String()}
	if s.Test != "" {
		args = append(args, "-test.run", s.Test)
	}
	cmd := exec.Command(r.bin(s.Pkg), args...)
	cmd.Dir = filepath.Join(r.root, s.Pkg)
	cmd.Env = append(os.Environ(), "SIFT_MUTANT="+strconv.Itoa(id), "SIFT_MUTANT_REACHED="+mark, "GOMAXPROCS=1", "GOTRACEBACK=single")
	return cmd.CombinedOutput()
}

// all runs two mutants at a time and reports.
func (r *runner) all(mutants []mutant) error {
	defer r.out.Close()
	var wg sync.WaitGroup
	next := make(chan mutant)
	for range 2 {
		wg.Go(func() {
			for m := range next {
				x := r.try(m)
				r.mu.Lock()
				fmt.Printf("%v: %s\n", m, x)
				r.results[m.id] = x
				b, err := json.Marshal(x)
				if err == nil {
					_, err = r.out.Write(append(b, '\n'))
				}
				if err != nil {
					fmt.Fprintln(os.Stderr, "mutate: a result is not kept:", err)
				}
				r.mu.Unlock()
			}
		})
	}
	for _, m := range mutants {
		r.mu.Lock()
		_, done := r.results[m.id]
		r.mu.Unlock()
		if done {
			continue
		}
		if !r.until.IsZero() && time.Now().After(r.until) {
			break
		}
		next <- m
	}
	close(next)
	wg.Wait()
	return r.report(mutants)
}

// report counts, and names the survivors.
func (r *runner) report(mutants []mutant) error {
	caught := map[string]int{}
	left, unreached := 0, 0
	var survivors []string
	for _, m := range mutants {
		x, done := r.results[m.id]
		switch {
		case !done:
			left++
		case x.By == "":
			survivors = append(survivors, m.String()+": "+x.String())
			if !x.Reached {
				unreached++
			}
		default:
			by, _, _ := strings.Cut(x.By, ", ")
			caught[m.kind]++
			caught[by]++
		}
	}
	fmt.Printf("%d mutants: %d syncs and %d checks caught, %d survived, %d of those never reached; %d left to run\n",
		len(mutants), caught["sync"], caught["check"], len(survivors), unreached, left)
	for _, s := range r.suites {
		fmt.Printf("  %-28s %4d\n", s.Name, caught[s.Name])
	}
	if len(survivors) > 0 {
		return fmt.Errorf("survivors:\n%s", strings.Join(survivors, "\n"))
	}
	return nil
}

// String says what became of the mutant.
func (x result) String() string {
	switch {
	case x.By != "":
		return "caught by " + x.By
	case !x.Reached:
		return "NEVER REACHED"
	}
	return "SURVIVED"
}

// try runs a mutant through the suites that reach it, those of the short form
// first, until one catches it.
func (r *runner) try(m mutant) result {
	x := result{ID: m.id}
	order := slices.Clone(r.suites)
	// Of the short form's, those that may take long come last.
	slices.SortStableFunc(order, func(a, b *suite) int {
		own := func(s *suite) int {
			if s.Test == "" {
				return 1
			}
			return 0
		}
		return cmp.Or(own(a)-own(b), cmp.Compare(a.Took, b.Took))
	})
	for _, s := range order {
		if !s.Reached[m.id] || s.Test == "" && s.Pkg != m.dir {
			continue
		}
		x.Reached = true
		if out, err := r.test(s, m.id, ""); err != nil {
			x.By = catcher(s.Name, out, err)
			return x
		}
	}
	return x
}

// catcher says in a few words how a test failed.
func catcher(test string, out []byte, err error) string {
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return test + ", " + strings.TrimSpace(line)
		}
	}
	if !bytes.Contains(out, []byte("--- FAIL: ")) {
		return test + ", " + err.Error()
	}
	return test
}
