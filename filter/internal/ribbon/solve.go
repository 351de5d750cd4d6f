package ribbon

import (
	"encoding/binary"
	"math/bits"
)

// solver finds the columns of a solved band by back substitution, from the last
// row up. state[j] holds the 64 bits of column j below the current row, the
// nearest in bit 0.
type solver struct {
	state [MaxColumns + 2]uint64
}

// segment solves the rows of one segment for the columns of a plane, and writes
// count words to dst, which may be fewer than the plane has.
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

func solve1(s uint64, rows []equation, shift int) uint64 {
	for i := len(rows) - 1; i >= 0; i-- {
		r := &rows[i]
		print := uint(r.tail >> (printAt + shift&63))
		s <<= 1
		s |= uint64((uint(bits.OnesCount64(s&r.coeff)) ^ print) & 1)
	}
	return s
}

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
