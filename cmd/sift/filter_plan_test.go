package main

import "testing"

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "4096": 4096, "10B": 10, "1KB": 1000, "1KiB": 1024, "64MiB": 64 << 20, "1.5GB": 15e8, "2 GiB": 2 << 30,
	} {
		if got, err := parseBytes(text); got != want || err != nil {
			t.Errorf("parseBytes(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "-1", "MiB", "1e30", "NaN", "5 apples"} {
		if got, err := parseBytes(text); err == nil {
			t.Errorf("parseBytes(%q) = %d; want an error", text, got)
		}
	}
}
