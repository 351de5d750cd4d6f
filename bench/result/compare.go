package result

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// Change is a difference between two results that is not noise.
type Change struct {
	Key
	Unit     string
	Old, New Summary
	// Ratio is new over old.
	Ratio float64
	// P is the p-value of the Mann-Whitney test; -1 if there were too few rounds
	// for it and the ranges merely do not overlap.
	P float64
}

// Better returns +1 for an improvement, -1 for a regression, 0 if neither.
func (c Change) Better() int {
	return UnitOf(c.Unit).Better * cmp.Compare(c.New.Median, c.Old.Median)
}

// Comparison is the result of Compare.
type Comparison struct {
	Changes []Change
	// Compared is the number of values that both results have.
	Compared int
	// Untested counts those with too few rounds for a test.
	Untested int
	// Terms lists the differences in machine, versions and command between the two
	// runs.
	Terms []string
}

// testable is the minimum number of rounds on both sides with which the
// Mann-Whitney test can find a difference at the 5% level.
const testable = 4

// Compare lists the changes from old to new by at least the share atLeast that are
// beyond noise. With four rounds or more on both sides, the Mann-Whitney U test at
// the 5% level decides this; with fewer, the ranges must not overlap.
func Compare(old, new *File, units []string, atLeast float64) Comparison {
	var c Comparison
	c.Terms = differences(&old.Meta, &new.Meta)
	for _, r := range new.Rows {
		before := old.Row(r.Key)
		for _, unit := range units {
			a, b := before.Of(unit), r.Of(unit)
			if a.N == 0 || b.N == 0 || UnitOf(unit).Better == 0 {
				continue
			}
			c.Compared++
			change := Change{Key: r.Key, Unit: unit, Old: a, New: b, Ratio: b.Median / a.Median, P: -1}
			small := math.Abs(change.Ratio-1) < atLeast || a.Median == b.Median
			if a.N < testable || b.N < testable {
				c.Untested++
				if !small && (a.Max < b.Min || b.Max < a.Min) {
					c.Changes = append(c.Changes, change)
				}
				continue
			}
			test := benchmath.AssumeNothing.Compare(sample(before.Values[unit]), sample(r.Values[unit]))
			if change.P = test.P; !small && test.P < test.Alpha {
				c.Changes = append(c.Changes, change)
			}
		}
	}
	slices.SortStableFunc(c.Changes, func(a, b Change) int {
		return cmp.Compare(math.Abs(math.Log(b.Ratio)), math.Abs(math.Log(a.Ratio)))
	})
	return c
}

func sample(v []float64) *benchmath.Sample {
	return benchmath.NewSample(slices.Clone(v), &benchmath.DefaultThresholds)
}

// differences lists the differences that make two runs hard to compare.
func differences(a, b *Meta) []string {
	var list []string
	for _, d := range []struct{ what, old, new string }{
		{"CPU", a.Machine.CPU, b.Machine.CPU},
		{"cores", fmt.Sprint(a.Machine.Cores), fmt.Sprint(b.Machine.Cores)},
		{"system", a.Machine.System, b.Machine.System},
		{"Go", a.Machine.Go, b.Machine.Go},
		{"file system", a.Machine.FileSystem, b.Machine.FileSystem},
		{"commit", a.Commit, b.Commit},
		{"command", a.Command, b.Command},
	} {
		if d.old != d.new {
			list = append(list, fmt.Sprintf("%s: %s, now %s", d.what, d.old, d.new))
		}
	}
	for _, v := range b.Versions {
		i := slices.IndexFunc(a.Versions, func(o Named) bool { return o.Name == v.Name })
		if i >= 0 && a.Versions[i].Text != v.Text && v.Name != "sift" {
			list = append(list, fmt.Sprintf("%s: %s, now %s", v.Name, a.Versions[i].Text, v.Text))
		}
	}
	return list
}

// String describes the change in one line.
func (c Change) String() string {
	word := "changed"
	switch c.Better() {
	case 1:
		word = "better"
	case -1:
		word = "worse"
	}
	why := fmt.Sprintf("p=%.3f", c.P)
	if c.P < 0 {
		why = "ranges do not overlap"
	}
	where := c.Benchmark
	if c.State != "" {
		where += "/" + c.State
	}
	return fmt.Sprintf("%-7s %+7.1f%%  %-14s %-28s %-26s %d keys  %.5g -> %.5g  (%s, n=%d+%d)",
		word, 100*(c.Ratio-1), c.Unit, c.Name(), where, c.Num, c.Old.Median, c.New.Median, why, c.Old.N, c.New.N)
}
