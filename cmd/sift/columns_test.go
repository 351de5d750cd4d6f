package main

import (
	"math"
	"strings"
	"testing"
)

func TestColumns(t *testing.T) {
	c := columns{left: map[int]bool{2: true}}
	c.add("name", "n", "what")
	c.add("é", "1,000", "x")
	c.add("long name", "", "")
	c.add("cut")
	var b strings.Builder
	if err := c.write(&b); err != nil {
		t.Fatal(err)
	}
	const want = "" +
		"name           n  what\n" +
		"é          1,000  x\n" +
		"long name\n" +
		"cut\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{count(0), "0"},
		{count(999), "999"},
		{count(1000), "1,000"},
		{count(-1000), "-1,000"},
		{count(-100), "-100"},
		{count(uint64(1234567)), "1,234,567"},
		{size(0), "0B"},
		{size(1023), "1023B"},
		{size(1024), "1.00KiB"},
		{size(10 << 10), "10.0KiB"},
		{size(1023 << 10), "1.00MiB"},
		{size(int64(100 << 20)), "100MiB"},
		{size(int64(1) << 60), "1.00EiB"},
		{rate(0), "0%"},
		{rate(0.00958), "0.958%"},
		{rate(0.01), "1.00%"},
		{rate(0.0000123), "0.00123%"},
		{rate(0.1234), "12.3%"},
		{rate(1), "100%"},
		{rate(math.NaN()), "-"},
	} {
		if c.got != c.want {
			t.Errorf("a number is printed as %q, want %q", c.got, c.want)
		}
	}
}
