// Package filtertest tests whether a filter policy satisfies the contract of filter.Policy
// or filter.RangePolicy:
//
//	func TestMyPolicy(t *testing.T) { filtertest.Run(t, mine.Policy()) }
//
// Run builds filters over zero to a million keys; probes for every key; compares the
// false positive rate with the reader's FPR; reuses writers after Finish; probes from
// several goroutines; counts allocations; and damages filters at every byte. RunRange does
// the same for range filters, except that it probes from a single goroutine. A seed
// determines the keys, and each failure prints it.
package filtertest

import (
	"fmt"
	"testing"

	"github.com/siftdb/sift/filter"
)

// TB is the part of testing.TB that Run requires.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Logf(format string, args ...any)
}

// Options relaxes the contract that Run checks. The zero value relaxes nothing.
type Options struct {
	// Unsealed is for families without a checksum: flipped bits may then cause false
	// negatives, but no panic. For units of a wrong length, Open must still fail, or return
	// a reader that excludes no key.
	Unsealed bool
	// Salted is for families whose filters are randomized: filters over the same keys may
	// differ.
	Salted bool
	// MaxKeys bounds the number of keys of the filters whose answers are compared; some steps use
	// up to 2,000 keys regardless. Default: 1,000,000, or 100,000 with -short; a tenth of that for
	// range policies.
	MaxKeys int
	// RangeUnit is for range policies that ignore the lowest bits of numbers: a range counts
	// as empty only if it is empty when widened to multiples of this unit. Default: 1.
	RangeUnit uint64
	// Seed selects the keys. Default: 1.
	Seed uint64
}

// Run reports to t each way in which p violates the contract of filter.Policy.
func Run(t TB, p filter.Policy) {
	t.Helper()
	RunWith(t, p, Options{})
}

// RunWith is Run with options.
func RunWith(t TB, p filter.Policy, o Options) {
	t.Helper()
	if o.Seed == 0 {
		o.Seed = 1
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = 1_000_000
		if testing.Testing() && testing.Short() {
			o.MaxKeys = 100_000
		}
	}
	s := &suite{t: t, p: p, o: o, name: p.Name()}
	s.step("names", s.names)
	for _, n := range []int{0, 1, 2, 63, 64, 65, 1000, 10_000, 100_000, 1_000_000} {
		if n <= o.MaxKeys {
			s.step(fmt.Sprintf("%d keys", n), func() { s.answers(n, distinct) })
		}
	}
	for _, kind := range []kind{sequential, repeated, odd} {
		s.step(kind.String(), func() { s.answers(min(5000, o.MaxKeys), kind) })
	}
	s.step("writer again", s.again)
	s.step("goroutines", s.goroutines)
	s.step("allocations", s.allocations)
	for _, n := range []int{0, 1, 65, 1500} {
		s.step(fmt.Sprintf("damage to %d keys", n), func() { s.damage(n) })
	}
}

// suite is one run of the tests for one policy.
type suite struct {
	t      TB
	p      filter.Policy
	name   string // of the policy
	o      Options
	where  string // the name of the step
	errors int    // failures of the step
	seen   int    // damaged filters opened so far
}

// maxErrors is the maximum number of failures that a step reports.
const maxErrors = 5

// step runs f, and reports a panic as a failure.
func (s *suite) step(name string, f func()) {
	s.t.Helper()
	s.where, s.errors = name, 0
	defer func() {
		s.t.Helper()
		if r := recover(); r != nil {
			s.errorf("panic: %v", r)
		}
	}()
	f()
}

// errorf reports a failure, unless the step has reported maxErrors.
func (s *suite) errorf(format string, args ...any) {
	s.t.Helper()
	if s.errors++; s.errors > maxErrors {
		return
	}
	s.t.Errorf("%s, %s, seed %d: %s", s.name, s.where, s.o.Seed, fmt.Sprintf(format, args...))
}

// names checks that Name and Family are not empty and do not change.
func (s *suite) names() {
	s.t.Helper()
	if s.p.Name() == "" || s.p.Family() == "" {
		s.errorf("name %q, family %q", s.p.Name(), s.p.Family())
	}
	name, family := s.p.Name(), s.p.Family()
	s.build(s.p.NewWriter(), s.keys(10, distinct))
	if s.p.Name() != name || s.p.Family() != family {
		s.errorf("names changed from %q, %q to %q, %q", name, family, s.p.Name(), s.p.Family())
	}
}

// build returns the units of the filter over keys, or nil after a failure.
func (s *suite) build(w filter.Writer, keys []filter.Key) [][]byte {
	s.t.Helper()
	for _, k := range keys {
		w.Add(k)
	}
	if n := w.NumKeys(); n > len(keys) || (n == 0) != (len(keys) == 0) {
		s.errorf("NumKeys is %d after %d keys", n, len(keys))
	}
	units, err := w.Finish()
	if err != nil {
		s.errorf("Finish over %d keys: %v", len(keys), err)
		return nil
	}
	if len(units) == 0 {
		s.errorf("Finish over %d keys returns no units", len(keys))
		return nil
	}
	if n := w.NumKeys(); n != 0 {
		s.errorf("NumKeys is %d after Finish", n)
	}
	return units
}

// open opens valid units. It returns nil after a failure.
func (s *suite) open(units [][]byte) filter.Reader {
	s.t.Helper()
	r, err := s.p.Open(units)
	if err != nil {
		s.errorf("Open of %d fresh units: %v", len(units), err)
		return nil
	}
	if r == nil {
		s.errorf("Open of %d fresh units returns no reader and no error", len(units))
	}
	return r
}
