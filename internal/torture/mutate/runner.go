package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// suite is a test that can catch mutants, of the short form or of a package.
type suite struct {
	Name string
	Pkg  string // directory below the root
	Test string // pattern
	Own  bool   // belongs to a package, not to the short form

	// Set by a run without any mutant.
	Reached map[int]bool  // the mutants whose code it executes
	Took    time.Duration // a mutant with which it takes much longer counts as hanging
}

// runner runs mutants.
type runner struct {
	root, work string
	dirs       []string // of the packages that are changed
	short      []string // tests of the short form; nil: only run the tests of the packages
	suites     []*suite
	until      time.Time     // none begins after it; zero: no limit
	parallel   int           // how many run at a time
	quick      time.Duration // skip tests that take longer; 0: none
	anywhere   bool          // tests of other packages than the mutant's may catch it, too
	race       bool          // the tests run under the race detector, in their short form, the first test of short first
	args       []string      // more arguments of the tests
	limit      time.Duration // what a run may take beyond eight times what it takes without a mutant

	mu      sync.Mutex
	results map[int]result
	out     *os.File
	earlier map[string]string // by the mutants' names: what caught them last time
}

// result is the outcome of a mutant.
type result struct {
	ID      int
	Name    string
	By      string // what caught it
	Reached bool   // a test executes its code
}

// newRunner builds the test binaries and runs each suite once without a mutant. If same is
// set, it reuses what an earlier run left of that, and its results.
func newRunner(root, work string, same bool, o options) (*runner, error) {
	r := &runner{root: root, work: work, dirs: o.dirs, short: short, parallel: max(o.parallel, 1), quick: o.quick, anywhere: o.constants, race: o.locks, limit: o.limit, results: map[int]result{}, earlier: map[string]string{}}
	switch {
	case o.bounds || o.constants:
		r.short = nil
	case o.stress:
		r.short, r.dirs = []string{"TestStress"}, nil
		r.args = []string{"-hang=15s"}
	case o.locks:
		r.short = concurrent
	}
	state := filepath.Join(work, "suites.json")
	if !same {
		if err := r.outdate(state); err != nil {
			return nil, err
		}
	}
	if err := readLines(r.earlierFile(), func(x result) { r.earlier[x.Name] = x.suite() }); err != nil {
		return nil, err
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
	if err := readLines(r.resultsFile(), func(x result) { r.results[x.ID] = x }); err != nil {
		return nil, err
	}
	r.out, err = os.OpenFile(r.resultsFile(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	return r, err
}

func (r *runner) resultsFile() string { return filepath.Join(r.work, "results.json") }
func (r *runner) earlierFile() string { return filepath.Join(r.work, "earlier.json") }

// outdate turns the results into earlier ones.
func (r *runner) outdate(state string) error {
	if err := os.Remove(state); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	b, err := os.ReadFile(r.resultsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f, err := os.OpenFile(r.earlierFile(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.Write(b); err != nil {
		f.Close()
		return err
	}
	return errors.Join(f.Close(), os.Remove(r.resultsFile()))
}

// readLines calls fn for each result in a file, if the file exists.
func readLines(name string, fn func(result)) error {
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range bytes.Lines(b) {
		var x result
		if err := json.Unmarshal(line, &x); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fn(x)
	}
	return nil
}

// bin returns the path of a package's test binary.
func (r *runner) bin(pkg string) string {
	return filepath.Join(r.work, strings.ReplaceAll(filepath.ToSlash(filepath.Join("test", pkg)), "/", "_"))
}

// prepare builds the binaries and finds what each suite reaches: the check of an
// error is reached when there is an error.
func (r *runner) prepare(state string) error {
	if r.short != nil {
		if err := r.build("internal/torture"); err != nil {
			return err
		}
	}
	for _, name := range r.short {
		r.suites = append(r.suites, &suite{Name: name, Pkg: "internal/torture", Test: "^" + name + "$"})
	}
	for _, d := range r.dirs {
		if strings.HasSuffix(d, ".go") {
			d = filepath.Dir(d)
		}
		if slices.ContainsFunc(r.suites, func(s *suite) bool { return s.Pkg == d }) {
			continue
		}
		if err := r.build(d); err != nil {
			return err
		}
		out, err := exec.Command(r.bin(d), "-test.list", "^(Test|Fuzz|Example)").Output()
		if err != nil {
			return fmt.Errorf("listing the tests of %s: %w", d, err)
		}
		for _, name := range strings.Fields(string(out)) {
			if r.race && d == "." && !rootConcurrent.MatchString(name) {
				continue
			}
			r.suites = append(r.suites, &suite{Name: path.Join("sift", filepath.ToSlash(d), name), Pkg: d, Test: "^" + name + "$", Own: true})
		}
	}
	errs := make([]error, len(r.suites))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range r.parallel {
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

// build builds the tests of a package.
func (r *runner) build(pkg string) error {
	build := exec.Command("go", "test", "-c", "-vet=off", "-race="+strconv.FormatBool(r.race),
		"-overlay", filepath.Join(r.work, "overlay.json"), "-o", r.bin(pkg), "./"+filepath.ToSlash(pkg))
	build.Dir = r.root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the mutants: %w\n%s", err, out)
	}
	return nil
}

// findReached runs a suite without a mutant.
func (r *runner) findReached(s *suite) error {
	mark, err := os.MkdirTemp(r.work, "reached")
	if err != nil {
		return err
	}
	if err := os.Chmod(mark, 0o777); err != nil { // tests may do things as another user
		return err
	}
	out, took, err := r.test(s, -1, mark)
	if err == errLimit && r.quick > 0 {
		fmt.Printf("%s is not quick and is left out\n", s.Name)
		return os.RemoveAll(mark)
	}
	if err != nil {
		if !s.Own {
			return fmt.Errorf("%s fails without any mutant: %w\n%s", s.Name, err, out)
		}
		// Some tests inspect compiled code or measure memory, which are different here.
		fmt.Printf("%s fails without any mutant and is left out: %v\n", s.Name, err)
		return os.RemoveAll(mark)
	}
	s.Took = took
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

// spareCPU is the CPU time, in seconds, that a suite may take beyond ten times what it takes
// without a mutant. A mutant that loops takes all of it.
const spareCPU = 5

// test runs a suite with a mutant switched on: 0 for none, -1 to record which ones are
// reached. It returns what the tests print and how long they take.
func (r *runner) test(s *suite, id int, mark string) ([]byte, time.Duration, error) {
	// A mutant may loop forever, or allocate without bound.
	limits, processors := `ulimit -v 8000000; exec "$@"`, "1"
	if r.race { // the detector reserves many addresses, and should see goroutines run in parallel
		limits, processors = `exec "$@"`, "2"
	}
	if s.Took > 0 {
		limits = fmt.Sprintf("ulimit -t %d; ", int(10*s.Took/time.Second)+spareCPU) + limits
	}
	args := []string{"-c", limits, "bash", r.bin(s.Pkg), "-test.failfast", "-test.short=" + strconv.FormatBool(r.race), "-test.timeout=1h", "-test.run", s.Test}
	cmd := exec.Command("bash", append(args, r.args...)...)
	cmd.Dir = filepath.Join(r.root, s.Pkg)
	cmd.Env = append(os.Environ(), "SIFT_MUTANT="+strconv.Itoa(id), "SIFT_MUTANT_REACHED="+mark,
		"GOMAXPROCS="+processors, "GOTRACEBACK=single", "GORACE=halt_on_error=1")
	cmd.WaitDelay = time.Second // a process that a test has left behind may keep the output open
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	limit := r.limit + 8*s.Took
	switch {
	case s.Took == 0 && r.quick > 0:
		limit = 4 * r.quick
	case s.Took == 0:
		limit = time.Hour
	}
	// Counting ticks leaves out the time during which this process is suspended.
	for ticks := range limit / tick {
		select {
		case err := <-done:
			return out.Bytes(), min(time.Since(start), (ticks+1)*tick), err
		case <-time.After(tick):
		}
	}
	cmd.Process.Kill()
	<-done
	return out.Bytes(), limit, errLimit
}

const tick = 50 * time.Millisecond

var errLimit = errors.New("the time limit")

// all runs the mutants, r.parallel at a time, and reports.
func (r *runner) all(mutants []mutant) error {
	defer r.out.Close()
	var wg sync.WaitGroup
	next := make(chan mutant)
	for range r.parallel {
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
					fmt.Fprintln(os.Stderr, "mutate: a result was not stored:", err)
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

// report prints counts, and returns an error that lists the survivors.
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
			caught[m.kind]++
			caught[x.suite()]++
		}
	}
	fmt.Printf("%d mutants: %d syncs, %d checks, %d wakeups, %d bounds, %d conditions, %d constants, %d early and %d late unlocks caught, %d survived, %d of those never reached; %d left to run\n",
		len(mutants), caught["sync"], caught["check"], caught["wake"], caught["bound"], caught["logic"], caught["plus1"]+caught["minus1"],
		caught["early"], caught["late"], len(survivors), unreached, left)
	for _, s := range r.suites {
		if caught[s.Name] > 0 {
			fmt.Printf("  %-40s %4d\n", s.Name, caught[s.Name])
		}
	}
	if len(survivors) > 0 {
		return fmt.Errorf("survivors:\n%s", strings.Join(survivors, "\n"))
	}
	return nil
}

// String describes the outcome of the mutant.
func (x result) String() string {
	switch {
	case x.By != "":
		return "caught by " + x.By
	case !x.Reached:
		return "NEVER REACHED"
	}
	return "SURVIVED"
}

// suite returns what caught the mutant, "" if nothing did.
func (x result) suite() string {
	by, _, _ := strings.Cut(x.By, ", ")
	return by
}

// try runs a mutant through the suites that reach it until one catches it: those of the short form,
// those of the mutant's package, and the quick ones of the root package. The one that caught it
// last time comes first, then quick ones before slow ones.
func (r *runner) try(m mutant) result {
	x := result{ID: m.id, Name: m.name}
	last := r.earlier[m.name]
	if last == "" && r.race {
		last = r.short[0]
	}
	took := func(s *suite) time.Duration {
		if s.Name == last {
			return 0
		}
		return s.Took
	}
	var order []*suite
	for _, s := range r.suites {
		quick := s.Pkg == "." && s.Took < 3*time.Second
		if s.Reached[m.id] && (r.quick == 0 || s.Took <= r.quick) && (!s.Own || s.Pkg == m.dir || quick || r.anywhere) {
			order = append(order, s)
		}
	}
	x.Reached = len(order) > 0
	slices.SortStableFunc(order, func(a, b *suite) int { return cmp.Compare(took(a), took(b)) })
	for len(order) > 0 {
		var n int
		for n = batch(order); n > 1 && r.passes(order[:n], m.id); n = batch(order) {
			if order = order[n:]; len(order) == 0 {
				return x
			}
		}
		// One of them fails, or disturbs another: run each by itself.
		for _, s := range order[:n] {
			if out, _, err := r.test(s, m.id, ""); err != nil {
				x.By = catcher(s.Name, out, err)
				return x
			}
		}
		order = order[n:]
	}
	return x
}

// batch returns how many of the first suites are quick enough to share a process.
func batch(order []*suite) int {
	took, n := time.Duration(0), 0
	for _, s := range order {
		if took += s.Took; n > 0 && (took > 3*time.Second || s.Pkg != order[0].Pkg) {
			break
		}
		n++
	}
	return n
}

// passes reports whether suites of one package succeed in one process, with a mutant.
func (r *runner) passes(some []*suite, id int) bool {
	all := &suite{Pkg: some[0].Pkg}
	var tests []string
	for _, s := range some {
		all.Took += s.Took
		tests = append(tests, s.Test)
	}
	all.Test = strings.Join(tests, "|")
	_, _, err := r.test(all, id, "")
	return err == nil
}

// catcher describes briefly how a test failed.
func catcher(test string, out []byte, err error) string {
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") || strings.HasPrefix(line, "WARNING: DATA RACE") {
			return test + ", " + strings.TrimSpace(line)
		}
	}
	if !bytes.Contains(out, []byte("--- FAIL: ")) {
		return test + ", " + err.Error()
	}
	return test
}
