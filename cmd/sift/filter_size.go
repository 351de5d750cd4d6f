package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/siftdb/sift/filter"
)

type filterSizeCmd struct {
	asJSON
	Keys  string `required:"" placeholder:"N" help:"The number of keys, such as 1000000 or 1e9."`
	FPR   string `default:"0.01" name:"fpr" placeholder:"P" help:"The false positive rate to reach, such as 0.001 or 0.1%. Default: ${default}."`
	Range string `placeholder:"L" help:"Print the size of a range filter that reaches the rate for ranges of up to L numbers."`
}

func (filterSizeCmd) Help() string {
	return `Prints the size of a filter of each family for a number of keys and a false positive rate, in
the smallest configuration that reaches the rate, next to the information-theoretic limit
(log2(1/rate) bits per key) and a classic Bloom filter with one large bit array. The names in the
first column, except those two, can be given to --filter. A database has one filter per table; the
figures hold for one filter and for the sum of many large ones. With --range it prints the smallest
range filter instead; these are for programs only (Options.RangeFilter).

Examples:

    sift filter size --keys 1e9 --fpr 0.001
    sift filter size --keys 500000 --fpr 1%
    sift filter size --keys 1e9 --fpr 1% --range 100`
}

func (c *filterSizeCmd) Run(e *env) error {
	keys, err := strconv.ParseFloat(c.Keys, 64)
	if err != nil {
		return usage(fmt.Errorf("--keys %q: not a number", c.Keys))
	}
	fpr, err := parseRate(c.FPR)
	if err != nil {
		return usage(fmt.Errorf("--fpr %q: not a number", c.FPR))
	}
	if c.Range != "" {
		return c.ranges(e, keys, fpr)
	}
	sizes, err := filter.CompareSizes(keys, fpr)
	if err != nil {
		return usage(err)
	}
	if c.JSON {
		return writeSizesJSON(e, sizes)
	}
	t := columns{left: map[int]bool{5: true}}
	t.add("filter", "size", "bits/key", "over the limit", "FPR", "")
	for _, s := range sizes {
		note := ""
		if !s.Reached {
			note = "cannot reach the rate"
		}
		t.add(s.Name, size(int64(s.Bytes)), fmt.Sprintf("%.2f", s.BitsPerKey),
			fmt.Sprintf("%.1f%%", max(0, (s.OverLimit-1)*100)), rate(s.FPR), note)
	}
	return t.write(e.out)
}

// ranges prints the size of the smallest range filter that reaches the rate.
func (c *filterSizeCmd) ranges(e *env, keys, fpr float64) error {
	length, err := strconv.ParseFloat(c.Range, 64)
	if err != nil || !(length >= 1 && length < 1<<62) {
		return usage(fmt.Errorf("--range %q: not a number from 1 to below 2^62", c.Range))
	}
	if !(keys >= 1 && keys <= 1<<48 && fpr > 0 && fpr < 1) {
		return usage(fmt.Errorf("--keys must be from 1 to 2^48, and --fpr between 0 and 1"))
	}
	bits, ok := filter.RangeBits(fpr, uint64(length))
	if !ok {
		return fmt.Errorf("no range filter reaches %s for ranges of %s", rate(fpr), c.Range)
	}
	if c.JSON {
		return writeSizesJSON(e, []filter.Size{{
			Name: filter.Range(bits, 0).Name(), Bytes: keys * float64(bits) / 8, BitsPerKey: float64(bits),
			FPR: filter.RangeFPR(bits, uint64(length)), Reached: true,
		}})
	}
	t := columns{}
	t.add("filter", "size", "bits/key", "FPR at most")
	t.add(filter.Range(bits, 0).Name(), size(int64(keys*float64(bits)/8)), strconv.Itoa(bits), rate(filter.RangeFPR(bits, uint64(length))))
	return t.write(e.out)
}

// writeSizesJSON prints sizes as JSON, one per line.
func writeSizesJSON(e *env, sizes []filter.Size) error {
	for _, s := range sizes {
		err := e.writeJSON(struct {
			Filter     string  `json:"filter"`
			Bytes      uint64  `json:"bytes"`
			BitsPerKey float64 `json:"bitsPerKey"`
			FPR        float64 `json:"fpr"`
			Reached    bool    `json:"reached"`
		}{s.Name, uint64(math.Ceil(s.Bytes)), s.BitsPerKey, s.FPR, s.Reached})
		if err != nil {
			return err
		}
	}
	return nil
}

// parseRate reads a rate, as a fraction or in percent.
func parseRate(s string) (float64, error) {
	percent, ok := strings.CutSuffix(s, "%")
	p, err := strconv.ParseFloat(strings.TrimSpace(percent), 64)
	if ok {
		p /= 100
	}
	return p, err
}
