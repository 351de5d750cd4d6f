package sstable

import (
	"encoding/hex"
	"math/bits"
	"slices"
	"strings"
)

// symbols maps the bytes after the prefix of a key to a number, and preserves their order. At
// each position only some bytes occur in a table, decimal digits for example. The number is
// composed of the ranks of the bytes among those of their positions, so a range of a thousand
// seconds has a thousand numbers, whether keys are in binary or in decimal. Shorter keys are padded
// with zeros. Bytes after the last position are ignored.
//
// The text of symbols, which follows a semicolon in a table's split, is a list of positions,
// separated by commas. A position consists of the first and last byte of each run, in
// hexadecimal: "3039,30396166" is a decimal digit and then a hexadecimal one. On disk; do not
// change.
type symbols struct {
	positions []position
	max       uint64 // the largest number
}

// position describes which bytes occur at a position.
type position struct {
	runs   []byteRun // ascending
	size   uint64    // how many bytes occur
	weight uint64    // factor of the rank in the number
}

type byteRun struct{ first, last byte }

const (
	maxPositions = 32
	// maxRuns is the maximum number of runs of a position. If there are more, all bytes between
	// the first and the last count as occurring.
	maxRuns = 4
)

// byteSets collects which bytes occur at each position.
type byteSets [maxPositions][4]uint64

func (s *byteSets) add(rest []byte) {
	for i := range s {
		b := byte(0)
		if i < len(rest) {
			b = rest[i]
		}
		s[i][b/64] |= 1 << (b % 64)
	}
}

// runs returns the runs of a position.
func (s *byteSets) runs(i int) (runs []byteRun) {
	for b := range 256 {
		switch n := len(runs); {
		case s[i][b/64]>>(b%64)&1 == 0:
		case n > 0 && int(runs[n-1].last) == b-1:
			runs[n-1].last = byte(b)
		default:
			runs = append(runs, byteRun{byte(b), byte(b)})
		}
	}
	if n := len(runs); n > maxRuns {
		return []byteRun{{runs[0].first, runs[n-1].last}}
	}
	return runs
}

// symbols returns the symbols for as many positions as fit in a number.
func (s *byteSets) symbols() *symbols {
	y := new(symbols)
	for i := range s {
		if !y.append(s.runs(i)) {
			break
		}
	}
	y.weigh()
	return y
}

// append adds a position. It returns false if the position does not fit in a number.
func (y *symbols) append(runs []byteRun) bool {
	p := position{runs: runs}
	for _, r := range runs {
		p.size += uint64(r.last-r.first) + 1
	}
	if p.size == 0 {
		return false
	}
	high, low := bits.Mul64(y.max, p.size)
	low, carry := bits.Add64(low, p.size-1, 0)
	if high+carry != 0 {
		return false
	}
	y.max = low
	y.positions = append(y.positions, p)
	return true
}

// weigh sets the weights. It removes trailing positions where only the byte 0 occurs. REQUIRES: all
// positions have been added.
func (y *symbols) weigh() {
	for n := len(y.positions); n > 0 && y.positions[n-1].size == 1 && y.positions[n-1].runs[0].first == 0; n-- {
		y.positions = y.positions[:n-1]
	}
	weight := uint64(1)
	for i := len(y.positions) - 1; i >= 0; i-- {
		y.positions[i].weight = weight
		weight *= y.positions[i].size
	}
}

// rank returns how many of the bytes that occur are less than b, and whether b occurs.
func (p *position) rank(b byte) (rank uint64, occurs bool) {
	for _, r := range p.runs {
		if b < r.first {
			break
		}
		if b <= r.last {
			return rank + uint64(b-r.first), true
		}
		rank += uint64(r.last-r.first) + 1
	}
	return rank, false
}

// number returns the number for rest, the bytes of a key after its prefix. REQUIRES: they occur at
// their positions.
func (y *symbols) number(rest []byte) (x uint64) {
	for i := range y.positions {
		b := byte(0)
		if i < len(rest) {
			b = rest[i]
		}
		rank, _ := y.positions[i].rank(b)
		x += rank * y.positions[i].weight
	}
	return x
}

// from returns the minimum number of a key at or after a bound; rest is what follows the prefix in
// the bound. ok is false if there is none.
func (y *symbols) from(rest []byte) (x uint64, ok bool) {
	for i := range y.positions {
		p := &y.positions[i]
		b := byte(0)
		if i < len(rest) {
			b = rest[i]
		}
		rank, occurs := p.rank(b)
		if rank == p.size { // carry to the previous position
			if i == 0 {
				return 0, false
			}
			sum, carry := bits.Add64(x, y.positions[i-1].weight, 0)
			return sum, carry == 0 && sum <= y.max
		}
		x += rank * p.weight
		if !occurs {
			break
		}
	}
	return x, true
}

// to returns the maximum number of a key before a bound; rest is what follows the prefix in the
// bound. ok is false if there is none.
func (y *symbols) to(rest []byte) (x uint64, ok bool) {
	for i := range min(len(rest), len(y.positions)) {
		p := &y.positions[i]
		rank, occurs := p.rank(rest[i])
		if !occurs && x == 0 && rank == 0 {
			return 0, false
		}
		x += rank * p.weight // may wrap around to 0, which x - 1 undoes
		if !occurs {
			return x - 1, true
		}
	}
	// No key before the bound has the number of the bound, unless the bound ends in zeros.
	if n := len(rest); n > 0 && n <= len(y.positions) && rest[n-1] != 0 {
		return x - 1, x > 0
	}
	return x, len(rest) > 0
}

// text returns the text of the symbols.
func (y *symbols) text() string {
	var positions []string
	for _, p := range y.positions {
		var b []byte
		for _, r := range p.runs {
			b = append(b, r.first, r.last)
		}
		positions = append(positions, hex.EncodeToString(b))
	}
	return strings.Join(positions, ",")
}

// parseSymbols is the inverse of text.
func parseSymbols(text string) (*symbols, bool) {
	y := new(symbols)
	if text == "" {
		return y, true
	}
	for part := range strings.SplitSeq(text, ",") {
		b, _ := hex.DecodeString(part) // if part is not hexadecimal, the text will differ
		if len(b) > 2*maxRuns || len(b)%2 != 0 || len(y.positions) == maxPositions {
			return nil, false
		}
		var runs []byteRun
		for pair := range slices.Chunk(b, 2) {
			r := byteRun{pair[0], pair[1]}
			if r.last < r.first || len(runs) > 0 && r.first <= runs[len(runs)-1].last {
				return nil, false
			}
			runs = append(runs, r)
		}
		if !y.append(runs) {
			return nil, false
		}
	}
	y.weigh()
	return y, y.text() == text
}
