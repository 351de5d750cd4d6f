package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/siftdb/sift/internal/bytesize"
)

// columns is a table of text. Cells are padded to the width of their column. The first
// column is aligned left, and so are those in left; the others are aligned right.
type columns struct {
	rows [][]string
	left map[int]bool // columns other than the first that are aligned left
}

// add appends a row.
func (t *columns) add(cells ...string) { t.rows = append(t.rows, cells) }

// write prints the table with two spaces between columns and no trailing spaces.
func (t *columns) write(w io.Writer) error {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			if i > 0 {
				line.WriteString("  ")
			}
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 || t.left[i] {
				line.WriteString(cell + pad)
			} else {
				line.WriteString(pad + cell)
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// count writes a number with a comma every three digits.
func count[T ~int | ~int64 | ~uint64 | ~uint32](n T) string {
	return groupDigits(fmt.Sprint(n))
}

// groupDigits puts a comma into a number every three digits.
func groupDigits(s string) string {
	start := 0
	if strings.HasPrefix(s, "-") {
		start = 1
	}
	for i := len(s) - 3; i > start; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// amount writes a number with a noun, in the plural if needed.
func amount[T ~int | ~int64 | ~uint64](n T, what string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(what, "ch"):
		what += "es"
	case strings.HasSuffix(what, "ry"):
		what = strings.TrimSuffix(what, "y") + "ies"
	default:
		what += "s"
	}
	return count(n) + " " + what
}

// size writes a number of bytes with about three digits and a binary unit.
func size[T ~int | ~int64 | ~uint64](bytes T) string { return bytesize.Size(bytes).String() }

// significant writes a number from 0 to a few thousand with three digits.
func significant(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x < 9.995:
		return strconv.FormatFloat(x, 'f', 2, 64)
	case x < 99.95:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return strconv.FormatFloat(x, 'f', 0, 64)
}

// rate writes a false positive rate in percent with three digits, or a dash for NaN.
func rate(p float64) string {
	switch {
	case math.IsNaN(p):
		return "-"
	case p == 0:
		return "0%"
	}
	p *= 100
	if p < 1e-6 {
		return strconv.FormatFloat(p, 'e', 2, 64) + "%"
	}
	decimals := max(0, 2-int(math.Floor(math.Log10(p))))
	return strconv.FormatFloat(p, 'f', decimals, 64) + "%"
}
