package redisbloom

import "math/bits"

// divisor computes remainders without a division, which takes as long as a cache miss on
// many machines: Granlund and Montgomery, "Division by Invariant Integers using
// Multiplication" (PLDI 1994), figure 4.1.
type divisor struct {
	d, m   uint64
	s1, s2 uint8
}

// newDivisor returns the divisor d, which must not be 0.
func newDivisor(d uint64) divisor {
	l := bits.Len64(d - 1)
	q, _ := bits.Div64(1<<l-d, 0, d) // also for l = 64, where 1<<l is 0: the difference wraps around
	return divisor{d: d, m: q + 1, s1: uint8(min(l, 1)), s2: uint8(max(l-1, 0))}
}

// mod returns x modulo d.
func (v *divisor) mod(x uint64) uint64 {
	t, _ := bits.Mul64(v.m, x)
	q := (t + (x-t)>>(v.s1&63)) >> (v.s2 & 63)
	return x - q*v.d
}
