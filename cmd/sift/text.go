package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Keys and values as text. Printable characters except the backslash stand for
// themselves; everything else is escaped, so that any key fits on one line without
// a tab:
//
//	\t \n \r \\  tab, line feed, carriage return, backslash
//	\xHH         any byte, with two hexadecimal digits
//
// A reader takes every other byte literally, and rejects every other escape.
// Example: the bytes 61 09 5c c3 a9 ff are a\t\\é\xff.

// escaped returns the text form of a name from a file: the name might contain terminal control
// sequences.
func escaped(name string) string { return string(appendText(nil, []byte(name))) }

// appendText appends the text form of b to dst.
func appendText(dst, b []byte) []byte {
	const digits = "0123456789abcdef"
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		switch {
		case r == '\t':
			dst = append(dst, `\t`...)
		case r == '\n':
			dst = append(dst, `\n`...)
		case r == '\r':
			dst = append(dst, `\r`...)
		case r == '\\':
			dst = append(dst, `\\`...)
		case unicode.IsPrint(r) && (r != utf8.RuneError || n > 1):
			dst = append(dst, b[:n]...)
		default:
			for _, c := range b[:n] {
				dst = append(dst, '\\', 'x', digits[c>>4], digits[c&15])
			}
		}
		b = b[n:]
	}
	return dst
}

// parseText reads the text form. The result is not nil.
func parseText(s string) ([]byte, error) {
	dst := make([]byte, 0, len(s))
	for {
		plain, rest, found := strings.Cut(s, `\`)
		dst = append(dst, plain...)
		if !found {
			return dst, nil
		}
		if rest == "" {
			return nil, errors.New(`a backslash at the end (a backslash itself is written \\)`)
		}
		switch c := rest[0]; c {
		case 't':
			dst = append(dst, '\t')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case '\\':
			dst = append(dst, '\\')
		case 'x':
			if len(rest) < 3 {
				return nil, errors.New(`\x without two hexadecimal digits`)
			}
			b, err := hex.DecodeString(rest[1:3])
			if err != nil {
				return nil, errors.New(`\x without two hexadecimal digits`)
			}
			dst = append(dst, b[0])
			rest = rest[2:]
		default:
			_, n := utf8.DecodeRuneInString(rest)
			return nil, fmt.Errorf(`unknown escape: a backslash before %q (a backslash itself is written \\)`, rest[:n])
		}
		s = rest[1:]
	}
}

// form is the form in which a command prints and reads keys and values.
type form struct {
	Hex bool `help:"Read and print keys and values in hexadecimal." xor:"form"`
}

// append appends the written form of b to dst.
func (f form) append(dst, b []byte) []byte {
	if f.Hex {
		return hex.AppendEncode(dst, b)
	}
	return appendText(dst, b)
}

// parse reads the written form. The result is not nil.
func (f form) parse(s string) ([]byte, error) {
	if !f.Hex {
		return parseText(s)
	}
	b, err := hex.DecodeString(s)
	if err != nil {
		return nil, errors.New("not hexadecimal: " + strings.TrimPrefix(err.Error(), "encoding/hex: "))
	}
	return b, nil
}

// arg parses an argument. what is its name in an error.
func (f form) arg(what, s string) ([]byte, error) {
	b, err := f.parse(s)
	if err != nil {
		return nil, usage(fmt.Errorf("%s %q: %w", what, s, err))
	}
	return b, nil
}

// bound parses an optional argument. It returns nil if the argument was not given.
func (f form) bound(what string, s *string) ([]byte, error) {
	if s == nil {
		return nil, nil
	}
	return f.arg(what, *s)
}
