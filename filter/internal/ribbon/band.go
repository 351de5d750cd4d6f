package ribbon

import "math/bits"

// equation is a sum of some consecutive rows, with its value in each column. Bit i
// of coeff is the coefficient of the row i after the first one. The low half of tail
// is the first row, within its chunk, the high half the fingerprint: both fit one
// register that way, and one addition or xor.
type equation struct {
	coeff uint64
	tail  uint64
}

const printAt = 32 // where the fingerprint begins in a tail

func (e equation) row() uint32 { return uint32(e.tail) }

// band is a system of equations in echelon form.
type band struct {
	// rows[i] is the equation that begins with row i, coeff 0 if there is none. Its
	// tail has no row.
	rows []equation
	// queue are the equations that are being placed. Those before next have been
	// taken from it; its first ones have been replaced by the taken ones that got a row.
	queue []equation
	taken int
	next  int
}

// reset makes room for so many rows and empties them.
func (b *band) reset(rows int) {
	if cap(b.rows) < rows {
		b.rows = make([]equation, rows)
		return
	}
	b.rows = b.rows[:rows]
	clear(b.rows)
}

// placeBucket places the classes of a bucket of starts in turn, and returns the
// bucket's threshold: the classes from it on are not placed. first is the start whose
// row is rows[0].
func (b *band) placeBucket(classes [numClasses][]uint64, starts, first uint64) int {
	for t, hashes := range classes {
		if !b.place(hashes, starts, first) {
			// Nothing depends on the rows that the class got: they came last.
			for _, e := range b.queue[:b.taken] {
				b.rows[e.row()] = equation{}
			}
			return t
		}
	}
	return numClasses
}

// place places the equations of hashes. It returns false if one contradicts the others; by
// then the first taken of the queue have a row. An equation that follows from others, such as
// a duplicate's, needs no row.
//
// As long as an equation's first row is taken, the equation of that row is added to it, which
// cancels that row. This is a chain of some 20 dependent steps, so the chains of three
// equations are interleaved. They may take each other's rows: no order is better than another.
// The three parts of the loop are the same but for their variables, which stay in registers;
// with helper functions, or with one part and the three rotated, a build takes 3 to 15 % longer.
func (b *band) place(hashes []uint64, starts, first uint64) bool {
	if cap(b.queue) < len(hashes) {
		b.queue = make([]equation, 2*len(hashes))
	}
	b.queue, b.taken, b.next = b.queue[:len(hashes)], 0, 3
	for i, h := range hashes {
		b.queue[i] = equation{coeffOf(h), startOf(h, starts) - first | uint64(printOf(h))<<printAt}
	}
	if len(hashes) < 3 {
		return b.placeAll(b.queue)
	}

	rows := b.rows
	x0, t0 := b.queue[0].coeff, b.queue[0].tail
	x1, t1 := b.queue[1].coeff, b.queue[1].tail
	x2, t2 := b.queue[2].coeff, b.queue[2].tail
	for {
		r := &rows[uint32(t0)]
		c := r.coeff
		x0 ^= c
		if c != 0 {
			t0 ^= r.tail
			if x0 != 0 {
				n := bits.TrailingZeros64(x0)
				x0 >>= n & 63
				t0 += uint64(n)
				goto second
			}
			if t0>>printAt != 0 {
				return false
			}
		} else {
			b.take(r, x0, t0)
		}
		if b.next >= len(b.queue) {
			return b.placeAll([]equation{{x1, t1}, {x2, t2}})
		}
		x0, t0 = b.queue[b.next].coeff, b.queue[b.next].tail
		b.next++

	second:
		r = &rows[uint32(t1)]
		c = r.coeff
		x1 ^= c
		if c != 0 {
			t1 ^= r.tail
			if x1 != 0 {
				n := bits.TrailingZeros64(x1)
				x1 >>= n & 63
				t1 += uint64(n)
				goto third
			}
			if t1>>printAt != 0 {
				return false
			}
		} else {
			b.take(r, x1, t1)
		}
		if b.next >= len(b.queue) {
			return b.placeAll([]equation{{x0, t0}, {x2, t2}})
		}
		x1, t1 = b.queue[b.next].coeff, b.queue[b.next].tail
		b.next++

	third:
		r = &rows[uint32(t2)]
		c = r.coeff
		x2 ^= c
		if c != 0 {
			t2 ^= r.tail
			if x2 != 0 {
				n := bits.TrailingZeros64(x2)
				x2 >>= n & 63
				t2 += uint64(n)
				continue
			}
			if t2>>printAt != 0 {
				return false
			}
		} else {
			b.take(r, x2, t2)
		}
		if b.next >= len(b.queue) {
			return b.placeAll([]equation{{x0, t0}, {x1, t1}})
		}
		x2, t2 = b.queue[b.next].coeff, b.queue[b.next].tail
		b.next++
	}
}

// placeAll places equations one after the other.
func (b *band) placeAll(equations []equation) bool {
	for _, e := range equations {
		for {
			r := &b.rows[e.row()]
			if r.coeff == 0 {
				b.take(r, e.coeff, e.tail)
				break
			}
			e.coeff ^= r.coeff
			e.tail ^= r.tail
			if e.coeff == 0 {
				if e.tail>>printAt != 0 {
					return false
				}
				break
			}
			n := bits.TrailingZeros64(e.coeff)
			e.coeff >>= n & 63
			e.tail += uint64(n)
		}
	}
	return true
}

// take assigns a row to an equation. The queue is overwritten no faster than it is read.
func (b *band) take(r *equation, coeff, tail uint64) {
	r.coeff, r.tail = coeff, tail>>printAt<<printAt
	b.queue[b.taken].tail = tail
	b.taken++
}
