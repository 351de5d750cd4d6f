package main

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestTextForm(t *testing.T) {
	for _, c := range []struct{ raw, text string }{
		{"", ""},
		{"plain words, \"quoted\"", "plain words, \"quoted\""},
		{"a\t\\é\xff", `a\t\\é\xff`}, // the example above appendText
		{"\n\r\x00\x7f", `\n\r\x00\x7f`},
		{"\u00a0", `\xc2\xa0`},           // looks like a blank
		{"\u202e", `\xe2\x80\xae`},       // reverses the line
		{"\ufffd", "\ufffd"},             // the character itself, not a decoding error
		{"\xef\xbf", `\xef\xbf`},         // its first two bytes
		{"\xc3\xa9\xc3", `é\xc3`},        // cut within a character
		{"\xed\xa0\x80", `\xed\xa0\x80`}, // half of a surrogate pair
		{"日本", "日本"},
	} {
		if got := string(appendText(nil, []byte(c.raw))); got != c.text {
			t.Errorf("appendText(%q) = %q, want %q", c.raw, got, c.text)
		}
		if got, err := parseText(c.text); err != nil || string(got) != c.raw {
			t.Errorf("parseText(%q) = %q, %v, want %q", c.text, got, err, c.raw)
		}
	}
}

func TestTextFormLenient(t *testing.T) {
	// Anything but an escape is read literally, even where it would be printed as an escape.
	for _, c := range []struct{ text, raw string }{
		{"a\tb\nc\x00\xff", "a\tb\nc\x00\xff"},
		{`\x41\xfF`, "A\xff"},
	} {
		if got, err := parseText(c.text); err != nil || string(got) != c.raw {
			t.Errorf("parseText(%q) = %q, %v, want %q", c.text, got, err, c.raw)
		}
	}
}

func TestTextFormRefused(t *testing.T) {
	for text, want := range map[string]string{
		`\`:      "at the end",
		`a\\\`:   "at the end",
		`\q`:     `backslash before "q"`,
		`\0`:     `backslash before "0"`,
		`\é`:     `backslash before "é"`,
		"\\\x1b": `backslash before "\x1b"`,
		"\\\xff": `backslash before "\xff"`,
		`\x`:     "two hexadecimal digits",
		`\x1`:    "two hexadecimal digits",
		`\x1\\`:  "two hexadecimal digits",
		`\xgg`:   "two hexadecimal digits",
	} {
		if b, err := parseText(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parseText(%q) = %q, %v, want an error with %q", text, b, err, want)
		}
	}
}

// TestFormsRoundTrip: any bytes fit on one line without a tab, and are read back.
func TestFormsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.OneOf(
			rapid.SliceOf(rapid.Byte()),
			rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) }),
			rapid.SliceOf(rapid.SampledFrom([]byte("\\xtn\t\n\r0a\xe2\x80\xae"))),
		).Draw(t, "raw")
		for _, f := range []form{{}, {Hex: true}} {
			text := f.append(nil, raw)
			if bytes.ContainsAny(text, "\t\n\r") {
				t.Fatalf("hex=%v: %q is written %q", f.Hex, raw, text)
			}
			got, err := f.parse(string(text))
			if err != nil || !bytes.Equal(got, raw) || got == nil {
				t.Fatalf("hex=%v: %q is written %q and read %q, %v", f.Hex, raw, text, got, err)
			}
		}
	})
}
