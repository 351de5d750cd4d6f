package ribbon

import (
	"encoding/binary"
	"math/bits"
)

// solver computes the columns of a band in echelon form by back substitution, from the last row up.
// state[j] holds the bits of column j in the 64 rows after the current one, the nearest in bit 0.
// It has two more elements than there are columns, because solve4 always computes four.
type solver struct {
	state [MaxColumns + 2]uint64
}

// segment computes one segment of the columns of a plane and writes the first count of them to dst,
// 8 bytes each.
func (s *solver) segment(dst []byte, rows []equation, c Columns, count int) {
	state := s.state[c.First:]
	for j := 0; j < c.Count; j += 4 {
		if j == c.Count-1 {
			state[j] = solve1(state[j], rows, c.First+j)
			break
		}
		solve4((*[4]uint64)(state[j:]), rows, c.First+j)
	}
	for j := range count {
		binary.LittleEndian.PutUint64(dst[8*j:], state[j])
	}
}

// solve1 computes the column of fingerprint bit shift, given its state, and returns the new state.
func solve1(s uint64, rows []equation, shift int) uint64 {
	for i := len(rows) - 1; i >= 0; i-- {
		r := &rows[i]
		print := uint(r.tail >> (printAt + shift&63))
		s <<= 1
		s |= uint64((uint(bits.OnesCount64(s&r.coeff)) ^ print) & 1)
	}
	return s
}

// solve4 is solve1 for the columns of fingerprint bits shift to shift+3.
func solve4(state *[4]uint64, rows []equation, shift int) {
	s0, s1, s2, s3 := state[0], state[1], state[2], state[3]
	for i := len(rows) - 1; i >= 0; i-- {
		r := &rows[i]
		coeff, print := r.coeff, uint(r.tail>>(printAt+shift&63))
		s0 <<= 1
		s1 <<= 1
		s2 <<= 1
		s3 <<= 1
		s0 |= uint64((uint(bits.OnesCount64(s0&coeff)) ^ print) & 1)
		s1 |= uint64((uint(bits.OnesCount64(s1&coeff)) ^ print>>1) & 1)
		s2 |= uint64((uint(bits.OnesCount64(s2&coeff)) ^ print>>2) & 1)
		s3 |= uint64((uint(bits.OnesCount64(s3&coeff)) ^ print>>3) & 1)
	}
	state[0], state[1], state[2], state[3] = s0, s1, s2, s3
}
