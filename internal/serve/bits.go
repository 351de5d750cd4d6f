package serve

import (
	"errors"
	"math"
	"math/bits"

	"github.com/siftdb/sift/internal/serve/resp"
)

var (
	errBitOffset = errors.New("ERR bit offset is not an integer or out of range")
	errBit       = errors.New("ERR bit is not an integer or out of range")
)

// bitOffset parses the offset of a bit, which must be in one of the bytes 0 to last.
func bitOffset(arg []byte, last int64) (int64, error) {
	n, ok := resp.ParseInt(arg)
	if !ok || n < 0 || n>>3 > last {
		return 0, errBitOffset
	}
	return n, nil
}

func bitAt(v []byte, n int64) int64 {
	if n>>3 >= int64(len(v)) {
		return 0
	}
	return int64(v[n>>3] >> (7 - n&7) & 1)
}

func setBit(c *client, args [][]byte) {
	n, err := bitOffset(args[2], int64(c.srv.maxValue())-1)
	if c.reply(err) {
		return
	}
	on, ok := resp.ParseInt(args[3])
	if !ok || on>>1 != 0 {
		c.reply(errBit)
		return
	}
	was := int64(0)
	err = c.locked(func() error {
		v, expiry, _, err := c.old(args[1])
		if err != nil {
			return err
		}
		was = bitAt(v, n)
		if v, err = c.extend(v, n>>3+1); err != nil {
			return err
		}
		v[n>>3] = v[n>>3]&^(1<<(7-n&7)) | byte(on)<<(7-n&7)
		c.setString(args[1], v, expiry)
		return nil
	}, args[1])
	if !c.reply(err) {
		c.w.Int(was)
	}
}

func getBit(c *client, args [][]byte) {
	n, err := bitOffset(args[2], math.MaxUint32>>3)
	if c.reply(err) {
		return
	}
	bit := int64(0)
	_, err = c.look(args[1], func(h head) error {
		if h.kind != kindString {
			return errWrongType
		}
		bit = bitAt(h.payload, n)
		return nil
	})
	if !c.reply(err) {
		c.w.Int(bit)
	}
}

// bitRange is the range that BITCOUNT and BITPOS examine.
type bitRange struct {
	from, to     int64
	hasTo, inBit bool
}

func parseBitRange(args [][]byte) (r bitRange, err error) {
	if len(args) > 3 {
		return r, errSyntax
	}
	r.to = -1
	for i, p := range []*int64{&r.from, &r.to} {
		if i < len(args) {
			var ok bool
			if *p, ok = resp.ParseInt(args[i]); !ok {
				return r, errNotInt
			}
		}
	}
	r.hasTo = len(args) > 1
	if len(args) > 2 {
		switch {
		case is(args[2], "BIT"):
			r.inBit = true
		case !is(args[2], "BYTE"):
			return r, errSyntax
		}
	}
	return r, nil
}

// of returns the range as bits [from, to) of v.
func (r bitRange) of(v []byte) (from, to int64) {
	n := len(v)
	if r.inBit {
		n *= 8
	}
	i, j := clipRange(r.from, r.to, n)
	if r.inBit {
		return int64(i), int64(j)
	}
	return 8 * int64(i), 8 * int64(j)
}

// bitCount is BITCOUNT. As in BITPOS, the range is not checked if the key does not exist.
func bitCount(c *client, args [][]byte) {
	n := int64(0)
	_, err := c.look(args[1], func(h head) error {
		if h.kind != kindString {
			return errWrongType
		}
		if len(args) == 3 || len(args) > 5 {
			return errSyntax
		}
		r, err := parseBitRange(args[2:])
		if err != nil {
			return err
		}
		if r.from < 0 && r.to < 0 && r.from > r.to {
			return nil // empty here, but to BITPOS it may be the first byte
		}
		from, to := r.of(h.payload)
		for ; from < to && from&7 != 0; from++ {
			n += bitAt(h.payload, from)
		}
		for ; to > from && to&7 != 0; to-- {
			n += bitAt(h.payload, to-1)
		}
		for _, b := range h.payload[from>>3 : to>>3] {
			n += int64(bits.OnesCount8(b))
		}
		return nil
	})
	if !c.reply(err) {
		c.w.Int(n)
	}
}

func bitPos(c *client, args [][]byte) {
	want, ok := resp.ParseInt(args[2])
	if !ok {
		c.reply(errNotInt)
		return
	}
	if want>>1 != 0 {
		c.w.Error("ERR The bit argument must be 1 or 0.")
		return
	}
	pos := int64(-1)
	found, err := c.look(args[1], func(h head) error {
		if h.kind != kindString {
			return errWrongType
		}
		r, err := parseBitRange(args[3:])
		if err != nil {
			return err
		}
		from, to := r.of(h.payload)
		skip := byte(0)
		if want == 0 {
			skip = 0xff
		}
		for i := from; i < to; i++ {
			if i&7 == 0 && i+8 <= to && h.payload[i>>3] == skip {
				i += 7
				continue
			}
			if bitAt(h.payload, i) == want {
				pos = i
				return nil
			}
		}
		// If the range has no end, the string counts as followed by zeros.
		if want == 0 && !r.hasTo && from < to {
			pos = to
		}
		return nil
	})
	if !found && want == 0 {
		pos = 0
	}
	if !c.reply(err) {
		c.w.Int(pos)
	}
}

// bitOp is BITOP. It reads one source at a time, because there may be many large ones.
func bitOp(c *client, args [][]byte) {
	var op func(a, b byte) byte
	not := is(args[1], "NOT")
	switch {
	case is(args[1], "AND"):
		op = func(a, b byte) byte { return a & b }
	case is(args[1], "OR"):
		op = func(a, b byte) byte { return a | b }
	case is(args[1], "XOR"):
		op = func(a, b byte) byte { return a ^ b }
	case !not:
		c.reply(errSyntax)
		return
	}
	if not && len(args) != 4 {
		c.w.Error("ERR BITOP NOT must be called with a single source key.")
		return
	}
	n := 0
	err := c.locked(func() error {
		var out []byte
		for i, key := range args[3:] {
			with := func(v []byte) {
				if more := len(v) - len(out); more > 0 {
					out = append(out, make([]byte, more)...)
				}
				if i == 0 {
					copy(out, v)
					return
				}
				for j := range out {
					b := byte(0)
					if j < len(v) {
						b = v[j]
					}
					out[j] = op(out[j], b)
				}
			}
			found, err := c.look(key, func(h head) error {
				if h.kind != kindString {
					return errWrongType
				}
				with(h.payload)
				return nil
			})
			if err != nil {
				return err
			}
			if !found {
				with(nil)
			}
		}
		if n = len(out); n == 0 {
			if k, _, err := c.kindOf(args[2]); err != nil || k == kindNone {
				return err
			}
			c.remove(args[2])
			return nil
		}
		if not {
			for i := range out {
				out[i] = ^out[i]
			}
		}
		c.setString(args[2], out, 0)
		return nil
	}, args[2:]...)
	if !c.reply(err) {
		c.w.Int(int64(n))
	}
}
