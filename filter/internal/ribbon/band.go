package ribbon

import "math/bits"

// equation is a linear equation for each column: the sum of some of 64 consecutive rows. Bit i of
// coeff is the coefficient of the i-th row after the first. The low half of tail is the first row,
// relative to the chunk; the high half is the right-hand side, the fingerprint. So both are in one
// register, and one addition or xor changes both.
type equation struct {
	coeff uint64
	tail  uint64
}

const printAt = 32 // the shift of the fingerprint in tail

func (e equation) row() uint32 { return uint32(e.tail) }

// band is a system of equations in echelon form.
type band struct {
	// rows[i] is the equation whose first row is i, with coeff 0 if there is none. In its tail the
	// row is 0.
	rows []equation
	// queue holds the equations to place. queue[next:] have not been read yet; the tails of
	// queue[:taken] are those of the equations that have been placed. Only placeThree uses next.
	queue []equation
	taken int
	next  int
}

// reset sets the number of rows and empties them.
func (b *band) reset(rows int) {
	if cap(b.rows) < rows {
		b.rows = make([]equation, rows)
		return
	}
	b.rows = b.rows[:rows]
	clear(b.rows)
}

// placeBucket places the classes of a bucket one after the other, until one contradicts what has
// been placed, and returns the bucket's threshold: the number of classes that it has placed. first
// is the start of rows[0].
func (b *band) placeBucket(classes [numClasses][]uint64, starts, first uint64) int {
	for t, hashes := range classes {
		if !b.place(hashes, starts, first) {
			// Undo the class. No other equation depends on it, because it was placed last.
			for _, e := range b.queue[:b.taken] {
				b.rows[e.row()] = equation{}
			}
			return t
		}
	}
	return numClasses
}

// place places the equations of hashes: it gives each a row, by Gaussian elimination. It returns
// false if one contradicts the others; queue[:taken] then has those that were placed. An equation
// that follows from others, such as a duplicate's, needs no row.
func (b *band) place(hashes []uint64, starts, first uint64) bool {
	if cap(b.queue) < len(hashes) {
		b.queue = make([]equation, 2*len(hashes))
	}
	b.queue, b.taken = b.queue[:len(hashes)], 0
	for i, h := range hashes {
		b.queue[i] = equation{coeffOf(h), startOf(h, starts) - first | uint64(printOf(h))<<printAt}
	}
	if len(hashes) < 3 {
		return b.placeAll(b.queue)
	}
	return b.placeThree()
}

// placeThree places the equations of the queue, of which there are at least three.
//
// As long as an equation's first row is occupied, the equation there is added to it, which
// eliminates that row. This is a chain of about 20 dependent steps, so three equations are
// interleaved. They may take each other's rows: any order is as good. The three parts of the loop
// differ only in their variables, which stay in registers; with helper functions, or with one part
// that rotates the variables, a build takes 3 to 15% longer
// (BenchmarkBuild of package filter).
func (b *band) placeThree() bool {
	rows := b.rows
	b.next = 3
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

// placeAll places equations one after the other; see place.
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

// take stores an equation in row r, and its tail in queue[taken], which has been read already.
func (b *band) take(r *equation, coeff, tail uint64) {
	r.coeff, r.tail = coeff, tail>>printAt<<printAt
	b.queue[b.taken].tail = tail
	b.taken++
}
