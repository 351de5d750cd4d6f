package serve

import (
	"bytes"
	"errors"
	"math/big"
	"strconv"
	"strings"

	"github.com/siftdb/sift/internal/serve/resp"
)

var (
	errOffset = errors.New("ERR offset is out of range")
	errLCS    = errors.New("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len")
)

// clipRange turns a first and a last position, which count from the end if they are negative, into
// the bounds of a slice of n elements.
func clipRange(from, to int64, n int) (int, int) {
	size := int64(n)
	if from < 0 {
		from = max(0, from+size)
	}
	if to < 0 {
		to = max(0, to+size)
	}
	to = min(to, size-1)
	if from > to || size == 0 {
		return 0, 0
	}
	return int(from), int(to) + 1
}

// getRange is GETRANGE and SUBSTR.
func getRange(c *client, args [][]byte) {
	from, ok := resp.ParseInt(args[2])
	to, ok2 := resp.ParseInt(args[3])
	if !ok || !ok2 {
		c.reply(errNotInt)
		return
	}
	found, err := c.look(args[1], func(h head) error {
		if h.kind != kindString {
			return errWrongType
		}
		if from < 0 && to < 0 && from > to {
			c.w.BulkString("")
			return nil
		}
		i, j := clipRange(from, to, len(h.payload))
		c.w.Bulk(h.payload[i:j])
		return nil
	})
	if !c.reply(err) && !found {
		c.w.BulkString("")
	}
}

func setRange(c *client, args [][]byte) {
	offset, ok := resp.ParseInt(args[2])
	if !ok {
		c.reply(errNotInt)
		return
	}
	if offset < 0 {
		c.reply(errOffset)
		return
	}
	n := 0
	err := c.locked(func() error {
		was, expiry, _, err := c.old(args[1])
		if n = len(was); err != nil || len(args[3]) == 0 {
			return err
		}
		if was, err = c.extend(was, offset+int64(len(args[3]))); err != nil {
			return err
		}
		copy(was[offset:], args[3])
		n = len(was)
		c.setString(args[1], was, expiry)
		return nil
	}, args[1])
	if !c.reply(err) {
		c.w.Int(int64(n))
	}
}

// extend appends zeros to v up to a size, or returns errTooLong.
func (c *client) extend(v []byte, size int64) ([]byte, error) {
	if size > int64(c.srv.maxValue()) || size < 0 {
		return nil, errTooLong
	}
	if more := int(size) - len(v); more > 0 {
		v = append(v, make([]byte, more)...)
	}
	return v, nil
}

func msetNX(c *client, args [][]byte) {
	if len(args)%2 == 0 {
		c.arity("msetnx")
		return
	}
	var keys [][]byte
	for i := 1; i < len(args); i += 2 {
		keys = append(keys, args[i])
	}
	done := false
	err := c.locked(func() error {
		for _, key := range keys {
			if k, _, err := c.kindOf(key); err != nil || k != kindNone {
				return err
			}
		}
		for i := 1; i < len(args); i += 2 {
			c.setString(args[i], args[i+1], 0)
		}
		done = true
		return nil
	}, keys...)
	if !c.reply(err) {
		c.w.Int(count(done))
	}
}

// getEX is GETEX. The expiry is checked only if the key exists.
func getEX(c *client, args [][]byte) {
	o, err := parseStringOptions(args[2:], "getex")
	if c.reply(err) {
		return
	}
	var was []byte
	err = c.locked(func() (err error) {
		var old, expiry int64
		if was, old, _, err = c.oldReply(args[1]); err != nil || was == nil {
			return err
		}
		if o.time != nil {
			if expiry, err = o.expiry(c.srv); err != nil {
				return err
			}
		}
		switch {
		case o.time == nil && !o.persist, old == expiry:
		case c.srv.expired(expiry):
			c.remove(args[1])
		default:
			c.setString(args[1], was, expiry)
		}
		return nil
	}, args[1])
	c.bulk(was, err)
}

// longestFloat is the length of the longest number that Redis parses.
const longestFloat = 5<<10 - 1

// longFloat parses a number with the precision of Redis' long double, a mantissa of 64 bits.
func longFloat(b []byte) (*big.Float, error) {
	const digits = 5000 // before and after the point
	if len(b) > longestFloat || bytes.ContainsAny(b, "_ ") {
		return nil, errNotFloat
	}
	s := strings.ToLower(string(b))
	hex := strings.HasPrefix(strings.TrimLeft(s, "+-"), "0x")
	if v, err := strconv.ParseFloat(s, 64); !hex && (err != nil && !errors.Is(err, strconv.ErrRange) || v != v) {
		return nil, errNotFloat
	}
	if strings.Contains(s, "inf") {
		v, _, err := big.ParseFloat(strings.TrimSuffix(s, "inity"), 10, 64, big.ToNearestEven)
		return v, err
	}
	base := 10
	exponent := "e"
	if hex {
		base, exponent = 0, "p"
	}
	if i := strings.Index(s, exponent); i >= 0 {
		if n, err := strconv.Atoi(s[i+1:]); err != nil || n > digits || n < -digits {
			return nil, errNotFloat
		}
	}
	v, _, err := big.ParseFloat(s, base, 64, big.ToNearestEven)
	if err != nil {
		return nil, errNotFloat
	}
	return v, nil
}

// incrFloat is INCRBYFLOAT. Its results have up to 17 digits after the point.
func incrFloat(c *client, args [][]byte) {
	by, err := longFloat(args[2])
	if c.reply(err) {
		return
	}
	var v []byte
	err = c.locked(func() error {
		was, expiry, found, err := c.old(args[1])
		if err != nil {
			return err
		}
		n := new(big.Float).SetPrec(64)
		if found {
			if n, err = longFloat(was); err != nil {
				return err
			}
		}
		if n.IsInf() || by.IsInf() || n.Add(n, by).MantExp(nil) > 16384 {
			return errors.New("ERR increment would produce NaN or Infinity")
		}
		v = n.Append(nil, 'f', 17)
		v = bytes.TrimRight(v, "0")
		if v = bytes.TrimSuffix(v, []byte{'.'}); string(v) == "-0" {
			v = []byte{'0'}
		}
		c.setString(args[1], v, expiry)
		return nil
	}, args[1])
	c.bulk(v, err)
}

// match is a common substring of two strings, including both ends.
type match struct{ aFrom, aTo, bFrom, bTo int }

// lcs finds a longest common subsequence, in time and memory O(len(a)·len(b)).
func lcs(a, b []byte) (common []byte, matches []match) {
	width := len(b) + 1
	table := make([]uint32, (len(a)+1)*width)
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			if a[i-1] == b[j-1] {
				table[i*width+j] = table[(i-1)*width+j-1] + 1
			} else {
				table[i*width+j] = max(table[(i-1)*width+j], table[i*width+j-1])
			}
		}
	}
	common = make([]byte, table[len(table)-1])
	next := len(common)
	open := false
	for i, j := len(a), len(b); i > 0 && j > 0; {
		switch {
		case a[i-1] == b[j-1]:
			next--
			common[next] = a[i-1]
			last := len(matches) - 1
			if open && matches[last].aFrom == i && matches[last].bFrom == j {
				matches[last].aFrom, matches[last].bFrom = i-1, j-1
			} else {
				matches = append(matches, match{i - 1, i - 1, j - 1, j - 1})
			}
			open = true
			i--
			j--
		case table[(i-1)*width+j] > table[i*width+j-1]:
			i--
			open = false
		default:
			j--
			open = false
		}
	}
	return common, matches
}

func lcsCommand(c *client, args [][]byte) {
	length, index, with := false, false, false
	least := int64(0)
	for i := 3; i < len(args); i++ {
		switch {
		case is(args[i], "LEN"):
			length = true
		case is(args[i], "IDX"):
			index = true
		case is(args[i], "WITHMATCHLEN"):
			with = true
		case is(args[i], "MINMATCHLEN") && i+1 < len(args):
			i++
			n, ok := resp.ParseInt(args[i])
			if !ok {
				c.reply(errNotInt)
				return
			}
			least = max(0, n)
		default:
			c.reply(errSyntax)
			return
		}
	}
	if length && index {
		c.w.Error("ERR If you want both the length and indexes, please just use IDX.")
		return
	}
	a, _, _, err := c.old(args[1])
	if err == nil {
		var b []byte
		if b, _, _, err = c.old(args[2]); err == nil {
			c.writeLCS(a, b, length, index, with, int(least))
			return
		}
	}
	if err == errWrongType {
		err = errors.New("ERR The specified keys must contain string values")
	}
	c.reply(err)
}

func (c *client) writeLCS(a, b []byte, length, index, with bool, least int) {
	size := 4 * int64(len(a)+1) * int64(len(b)+1) // more than an int of 32 bits holds
	if size > int64(c.srv.cfg.MaxBulkBytes) || !c.reserve(int(size)) {
		c.reply(errLCS)
		return
	}
	common, matches := lcs(a, b)
	c.reserve(int(-size))
	switch {
	case length:
		c.w.Int(int64(len(common)))
	case index:
		kept := matches[:0]
		for _, m := range matches {
			if m.aTo-m.aFrom+1 >= least {
				kept = append(kept, m)
			}
		}
		c.w.Map(2)
		c.w.BulkString("matches")
		c.w.Array(len(kept))
		for _, m := range kept {
			c.w.Array(2 + int(count(with)))
			for _, v := range [][2]int{{m.aFrom, m.aTo}, {m.bFrom, m.bTo}} {
				c.w.Array(2)
				c.w.Int(int64(v[0]))
				c.w.Int(int64(v[1]))
			}
			if with {
				c.w.Int(int64(m.aTo - m.aFrom + 1))
			}
		}
		c.w.BulkString("len")
		c.w.Int(int64(len(common)))
	default:
		c.w.Bulk(common)
	}
}
