package store

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/siftdb/sift/bench/engine"
	"github.com/siftdb/sift/bench/result"
)

// Run runs the benchmarks on all stores and adds the results to file. A store that fails is left
// out from then on; Run returns its error at the end.
func Run(o *Options, file *result.File) error {
	names, err := Expand(o.Benchmarks)
	if err != nil {
		return err
	}
	r := newRunner(o, file, "stores")
	for round := range o.Rounds {
		r.begin(round)
		for _, seg := range segments(names) {
			for pass := range o.passes(seg) {
				r.each(func(s *session) error {
					s.pass = pass
					return s.segment(seg)
				})
			}
		}
		if err := r.end(o.Keep && round == o.Rounds-1); err != nil {
			return err
		}
	}
	return r.failure()
}

// Steps returns the number of times that Run calls Step.
func Steps(o *Options) int {
	names, err := Expand(o.Benchmarks)
	if err != nil {
		return 0
	}
	steps := 0
	for _, seg := range segments(names) {
		steps += o.passes(seg)
	}
	return o.Rounds * steps * len(o.Specs)
}

// passes returns the number of times that a segment runs in a round.
func (o *Options) passes(seg segment) int {
	if seg.kind == reads || seg.kind == opens {
		return max(1, o.Passes)
	}
	return 1
}

// runner runs benchmarks on the stores in turn.
type runner struct {
	o        *Options
	file     *result.File
	section  string
	sessions []*session
	failed   []error
	dropped  map[string]bool
}

func newRunner(o *Options, file *result.File, section string) *runner {
	return &runner{o: o, file: file, section: section, dropped: map[string]bool{}}
}

// begin starts a round.
func (r *runner) begin(round int) {
	r.sessions = r.sessions[:0]
	for _, spec := range r.o.Specs {
		s := &session{o: r.o, file: r.file, section: r.section, spec: spec, round: round, num: r.o.Set.Len()}
		if r.o.UseExisting {
			s.recall()
		}
		r.sessions = append(r.sessions, s)
	}
}

// each calls f with each store in turn, then closes the store.
func (r *runner) each(f func(*session) error) {
	for _, s := range r.sessions {
		if r.dropped[s.spec.String()] {
			continue
		}
		err := f(s)
		err = errors.Join(err, s.close())
		if err != nil {
			r.dropped[s.spec.String()] = true
			err = fmt.Errorf("%s: %w", s.spec, err)
			r.failed = append(r.failed, err)
			r.file.Meta.Warnings = append(r.file.Meta.Warnings, "skipped after an error: "+err.Error())
		}
	}
}

// end removes the databases, or records their states beside them if they are kept.
func (r *runner) end(keep bool) error {
	var errs []error
	for _, s := range r.sessions {
		if keep || r.o.UseExisting {
			errs = append(errs, s.remember())
			continue
		}
		errs = append(errs, os.RemoveAll(s.dir()))
	}
	return errors.Join(errs...)
}

func (r *runner) failure() error { return errors.Join(r.failed...) }

// segment runs the benchmarks of a segment.
func (s *session) segment(seg segment) error {
	s.o.progress("round %d/%d  %s  %s", s.round+1, s.o.Rounds, s.spec, seg.benchmarks[0].name)
	if seg.kind == reads {
		if err := s.prepare(); err != nil {
			return err
		}
	}
	for _, b := range seg.benchmarks {
		if seg.kind == fills && s.o.UseExisting {
			return nil // as db_bench does
		}
		if b.named("absent-deleted") && !s.changed {
			return errors.New("absent-deleted must run after deleterandom")
		}
		err := b.run(s, b)
		if err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		if b.state != "" && !(b.name == "compact" && s.state == "deleted") {
			s.state = b.state
		}
	}
	return nil
}

// Sweep fills stores that have filters of several sizes and looks up absent keys
// in every lookup mode, to show the reads that filter memory saves.
func Sweep(o *Options, file *result.File) error {
	r := newRunner(o, file, "sweep")
	fill, missing := named("fillrandom"), named("readmissing")
	for round := range o.Rounds {
		r.begin(round)
		r.each(func(s *session) error {
			s.o.progress("filter memory  round %d/%d  %s", round+1, s.o.Rounds, s.spec)
			if err := fill.run(s, fill); err != nil {
				return err
			}
			s.state = "quiesced"
			if err := s.prepare(); err != nil {
				return err
			}
			if err := missing.run(s, missing); err != nil {
				return err
			}
			return errors.Join(s.close(), os.RemoveAll(s.dir()))
		})
		if err := r.end(false); err != nil {
			return err
		}
	}
	return r.failure()
}

// Growth grows the stores to each of the sizes and looks up keys at each. No size
// may exceed that of the set.
func Growth(o *Options, sizes []int, file *result.File) error {
	r := newRunner(o, file, "growth")
	r.begin(0)
	fill := named("fillrandom")
	missing, present := named("readmissing"), named("readrandom")
	from := 0
	slices.Sort(sizes)
	for _, size := range sizes {
		r.each(func(s *session) error {
			s.o.progress("growth  %d keys  %s", size, s.spec)
			if from == 0 {
				if err := s.fresh(); err != nil {
					return err
				}
			}
			s.num = size
			// The set's keys are random, so writing them by ascending number is
			// random order.
			order := make([]uint32, size-from)
			for i := range order {
				order[i] = uint32(from + i)
			}
			if err := s.open(s.config()); err != nil { // after order, whose memory is not the store's
				return err
			}
			if err := s.write(fill, len(order), order); err != nil {
				return err
			}
			s.state = "quiesced"
			if err := s.prepare(); err != nil {
				return err
			}
			part := *s.o
			part.Set = limited{s.o.Set, size}
			s.o = &part
			for _, b := range []*benchmark{missing, present} {
				if err := b.run(s, b); err != nil {
					return fmt.Errorf("%s: %w", b.name, err)
				}
			}
			s.o = r.o
			return nil
		})
		from = size
	}
	if err := r.end(false); err != nil {
		return err
	}
	return r.failure()
}

func named(name string) *benchmark {
	i := slices.IndexFunc(benchmarks, func(b benchmark) bool { return b.name == name })
	return &benchmarks[i]
}

// SpecsWith returns a spec for each engine with each of the filters that it has.
func SpecsWith(engines []*engine.Engine, filters []string) []engine.Spec {
	var specs []engine.Spec
	for _, e := range engines {
		if e.CheckFilter == nil {
			continue
		}
		for _, f := range filters {
			if e.CheckFilter(f) == nil {
				specs = append(specs, engine.Spec{Engine: e, Filter: f})
			}
		}
	}
	return specs
}
