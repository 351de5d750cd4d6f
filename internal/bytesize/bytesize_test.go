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
