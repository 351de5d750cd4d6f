package bytesize

import "testing"

func TestSize(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "4096": 4096, "10B": 10, "1KB": 1000, "1KiB": 1024, "64MiB": 64 << 20, "1.5GB": 15e8, "2 GiB": 2 << 30,
	} {
		var got Size
		if err := got.UnmarshalText([]byte(text)); got != want || err != nil {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
		b, err := got.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		if err := got.UnmarshalText(b); got != want || err != nil {
			t.Errorf("%d is written as %s and read as %d, %v", want, b, got, err)
		}
	}
	for _, text := range []string{"", "x", "-1", "MiB", "1e30", "NaN", "5 apples", "64Mib", "64mb"} {
		var got Size
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is %d; want an error", text, got)
		}
	}
	for size, want := range map[Size]string{1 << 30: "1GiB", 1536 << 20: "1536MiB", 1000: "1000", 0: "0"} {
		if b, err := size.MarshalText(); string(b) != want || err != nil {
			t.Errorf("%d is written as %s, %v; want %s", size, b, err, want)
		}
	}
}

func TestString(t *testing.T) {
	for size, want := range map[Size]string{
		0: "0B", 1023: "1023B", 1024: "1.00KiB", 10 << 10: "10.0KiB", 1023 << 10: "1.00MiB", 100 << 20: "100MiB",
		99_999 << 10: "97.7MiB", 1 << 40: "1.00TiB", 1<<63 - 1: "8.00EiB", -1: "-1B",
	} {
		if got := size.String(); got != want {
			t.Errorf("%d is written as %s, want %s", int64(size), got, want)
		}
	}
	for size := Size(1); size < 1<<60; size = size*5 + 1 {
		var got Size
		if err := got.UnmarshalText([]byte(size.String())); err != nil || float64(got) < 0.99*float64(size) || float64(got) > 1.01*float64(size) {
			t.Errorf("%d is written as %s and read as %d, %v", int64(size), size, int64(got), err)
		}
	}
}
