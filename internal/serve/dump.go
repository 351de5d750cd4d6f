package serve

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc64"
	"math"
	"strconv"
	"strings"

	"github.com/siftdb/sift/internal/redisbloom"
	"github.com/siftdb/sift/internal/serve/resp"
)

// DUMP's format is that of a value in Redis' RDB files, version 10 and earlier:
//
//	type         1 byte: 0, a string; 7, a filter, see dumpfilter.go
//	value        by type
//	version      2 bytes, little-endian
//	CRC-64       8 bytes, little-endian, of the above: Jones' polynomial, reflected, no inversions
//
// A length is 1 byte below 64; 2 bytes, the first of which begins with the bits 01; or the
// byte 0x80 and 4 bytes; or 0x81 and 8 bytes; all big-endian. A string is its length and its
// bytes. In place of the length, 0xc0, 0xc1 and 0xc2 begin integers of 1, 2 and 4 bytes,
// little-endian, and 0xc3 a string compressed with LZF: the compressed length, the length,
// the compressed bytes. The string "hi" is
//
//	00 02 6869 0a00 e7c4f25f8a0bb0f7
const (
	dumpVersion = 10
	// maxDumpVersion is that of Redis 7.4, whose strings and filters are the same.
	maxDumpVersion = 12
	dumpString     = 0
	dumpTail       = 2 + 8
)

var (
	errDump    = errors.New("ERR DUMP payload version or checksum are wrong")
	errBusyKey = errors.New("BUSYKEY Target key name already exists.")
	errFormat  = errors.New("ERR Bad data format")
	jones      = crc64.MakeTable(0x95ac9329ac4bc9b5)
)

// dumpSum is the CRC without the inversions that hash/crc64 makes before and after.
func dumpSum(b []byte) uint64 { return ^crc64.Update(math.MaxUint64, jones, b) }

func appendDumpLen(dst []byte, n uint64) []byte {
	switch {
	case n < 1<<6:
		return append(dst, byte(n))
	case n < 1<<14:
		return append(dst, byte(n>>8)|0x40, byte(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(dst, 0x80), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, 0x81), n)
}

func appendDump(dst, value []byte) []byte {
	dst = append(dst, dumpString)
	return appendDumpTail(append(appendDumpLen(dst, uint64(len(value))), value...))
}

func appendDumpTail(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, dumpVersion)
	return binary.LittleEndian.AppendUint64(dst, dumpSum(dst))
}

// dumpLen reads a length, or if special is true the number of a string's encoding in its place.
func dumpLen(b []byte) (n uint64, special bool, rest []byte, err error) {
	if len(b) == 0 {
		return 0, false, nil, errFormat
	}
	switch first := b[0]; {
	case first>>6 == 0:
		return uint64(first), false, b[1:], nil
	case first>>6 == 1 && len(b) >= 2:
		return uint64(first&0x3f)<<8 | uint64(b[1]), false, b[2:], nil
	case first == 0x80 && len(b) >= 5:
		return uint64(binary.BigEndian.Uint32(b[1:])), false, b[5:], nil
	case first == 0x81 && len(b) >= 9:
		return binary.BigEndian.Uint64(b[1:]), false, b[9:], nil
	case first>>6 == 3:
		return uint64(first & 0x3f), true, b[1:], nil
	}
	return 0, false, nil, errFormat
}

// dumpedString reads a string, whose length must not exceed most.
func dumpedString(b []byte, most int) (value, rest []byte, err error) {
	n, special, b, err := dumpLen(b)
	if err != nil {
		return nil, nil, err
	}
	if !special {
		if n > uint64(len(b)) || n > uint64(most) {
			return nil, nil, errFormat
		}
		return b[:n], b[n:], nil
	}
	if n < 3 {
		size := 1 << n
		if len(b) < size {
			return nil, nil, errFormat
		}
		v := [...]int64{int64(int8(b[0])), 0, 0}
		if n == 1 {
			v[1] = int64(int16(binary.LittleEndian.Uint16(b)))
		} else if n == 2 {
			v[2] = int64(int32(binary.LittleEndian.Uint32(b)))
		}
		return strconv.AppendInt(nil, v[n], 10), b[size:], nil
	}
	if n != 3 {
		return nil, nil, errFormat
	}
	packed, special, b, err := dumpLen(b)
	if err != nil || special {
		return nil, nil, errFormat
	}
	size, special, b, err := dumpLen(b)
	if err != nil || special || packed > uint64(len(b)) || size > uint64(most) {
		return nil, nil, errFormat
	}
	value, err = unpackLZF(b[:packed], int(size))
	return value, b[packed:], err
}

// unpackedSize returns the size that a compressed string of a dump claims to have, 0 if unpackLZF
// will refuse it, and false for other strings.
func unpackedSize(b []byte) (uint64, bool) {
	n, special, b, err := dumpLen(b)
	if err != nil || !special || n != 3 {
		return 0, false
	}
	packed, _, b, err := dumpLen(b)
	if err != nil {
		return 0, false
	}
	n, special, b, err = dumpLen(b)
	if n > 1<<12 && n/lzfRatio > min(packed, uint64(len(b))) {
		n = 0
	}
	return n, err == nil && !special
}

// lzfRatio is the highest compression ratio of LZF: a copy of 264 bytes takes 3 bytes.
const lzfRatio = 264 / 3

// unpackLZF decompresses LZF: runs of literals, preceded by a byte below 32 that is their number
// minus one, and copies of 3 and more bytes from up to 8 KiB before.
func unpackLZF(b []byte, size int) ([]byte, error) {
	if size > 1<<12 && size/lzfRatio > len(b) {
		return nil, errFormat
	}
	out := make([]byte, 0, size)
	for len(b) > 0 {
		control := int(b[0])
		b = b[1:]
		if control < 32 {
			n := control + 1
			if n > len(b) || len(out)+n > size {
				return nil, errFormat
			}
			out = append(out, b[:n]...)
			b = b[n:]
			continue
		}
		n := control >> 5
		if n == 7 {
			if len(b) == 0 {
				return nil, errFormat
			}
			n += int(b[0])
			b = b[1:]
		}
		n += 2
		if len(b) == 0 {
			return nil, errFormat
		}
		from := len(out) - (control&0x1f)<<8 - int(b[0]) - 1
		b = b[1:]
		if from < 0 || len(out)+n > size {
			return nil, errFormat
		}
		for i := range n {
			out = append(out, out[from+i])
		}
	}
	if len(out) != size {
		return nil, errFormat
	}
	return out, nil
}

func dump(c *client, args [][]byte) {
	k := kindNone
	found, err := c.look(args[1], func(h head) error {
		if k = h.kind; k == kindString {
			c.w.Bulk(appendDump(nil, h.payload))
		}
		return nil
	})
	if found && err == nil && k != kindString {
		if err = c.dumpFilter(args[1], k); err == errNotFound { // it has been deleted or has expired since
			found, err = false, nil
		}
	}
	if !c.reply(err) && !found {
		c.w.Nil()
	}
}

// dumpFilter replies with a filter's dump.
func (c *client) dumpFilter(key []byte, k kind) error {
	f, err := c.srv.read(c, key, k)
	if err != nil {
		return err
	}
	defer f.mu.RUnlock()
	size := int(f.parts().Bytes()) + 128*(f.parts().Links()+1)
	if !c.reserve(size) {
		return errReplyOOM
	}
	defer c.reserve(-size)
	defer c.keepsLong(f)()
	b, err := appendFilterDump(make([]byte, 0, size), f)
	if err == nil {
		c.w.Bulk(b)
	}
	return err
}

func restore(c *client, args [][]byte) {
	replace, absolute := false, false
	tracked := ""
	for i := 4; i < len(args); i++ {
		switch {
		case is(args[i], "REPLACE"):
			replace = true
		case is(args[i], "ABSTTL"):
			absolute = true
		case (is(args[i], "IDLETIME") || is(args[i], "FREQ")) && (tracked == "" || is(args[i], tracked)) && i+1 < len(args):
			tracked = strings.ToUpper(string(args[i]))
			i++
			n, ok := resp.ParseInt(args[i])
			switch {
			case !ok:
				c.reply(errNotInt)
				return
			case is(args[i-1], "IDLETIME") && n < 0:
				c.w.Error("ERR Invalid IDLETIME value, must be >= 0")
				return
			case is(args[i-1], "FREQ") && (n < 0 || n > 255):
				c.w.Error("ERR Invalid FREQ value, must be >= 0 and <= 255")
				return
			}
		default:
			c.reply(errSyntax)
			return
		}
	}
	if len(args[3]) > 0 && args[3][0] == dumpModule {
		if !c.reply(c.restoreFilter(args, absolute, replace)) {
			c.w.OK()
		}
		return
	}
	err := c.locked(func() error {
		if err := c.checkFree(args[1], replace); err != nil {
			return err
		}
		expiry, err := c.srv.restoredExpiry(args[2], absolute)
		if err != nil {
			return err
		}
		value, err := undump(args[3], c.srv.maxValue())
		switch {
		case err != nil:
			return err
		case c.srv.expired(expiry):
			c.remove(args[1])
		default:
			c.setString(args[1], value, expiry)
		}
		return nil
	}, args[1])
	if !c.reply(err) {
		c.w.OK()
	}
}

// checkFree returns an error if a key exists and may not be replaced.
func (c *client) checkFree(key []byte, replace bool) error {
	k, _, err := c.kindOf(key)
	if err == nil && k != kindNone && !replace {
		err = errBusyKey
	}
	return err
}

// restoredExpiry parses the ttl argument of RESTORE. The result is in ms since 1970, 0 for none.
func (s *Server) restoredExpiry(arg []byte, absolute bool) (int64, error) {
	expiry, ok := resp.ParseInt(arg)
	if !ok {
		return 0, errNotInt
	}
	if expiry < 0 {
		return 0, errors.New("ERR Invalid TTL value, must be >= 0")
	}
	if expiry != 0 && !absolute {
		if expiry, ok = s.toExpiry(expiry, true, true); !ok {
			return math.MaxInt64, nil // as good as never
		}
	}
	return expiry, nil
}

// restoreFilter is RESTORE of a filter, in one write.
func (c *client) restoreFilter(args [][]byte, absolute, replace bool) error {
	key := args[1]
	if err := c.checkFree(key, replace); err != nil {
		return err
	}
	expiry, err := c.srv.restoredExpiry(args[2], absolute)
	if err != nil {
		return err
	}
	b, err := checkDump(args[3])
	if err != nil {
		return err
	}
	d, err := parseFilterDump(b[1:], c.srv.cfg.MaxBulkBytes)
	if err != nil {
		return err
	}
	if c.srv.expired(expiry) {
		return c.locked(func() error {
			err := c.checkFree(key, replace) // another client may have been faster
			if err == nil {
				c.remove(key)
			}
			return err
		}, key)
	}
	err = c.srv.createAs(c, key, d.kind, expiry, replace, func(f *filter, room uint64) error {
		return c.srv.fillFrom(&d, f, room)
	})
	switch {
	case errors.Is(err, redisbloom.ErrFormat):
		return errFormat
	case err == errExists, err == errWrongType:
		return errBusyKey
	}
	return err
}

// checkDump returns the part of a dump before its version, if version and checksum are valid.
func checkDump(b []byte) ([]byte, error) {
	if len(b) < 1+dumpTail {
		return nil, errDump
	}
	sum := len(b) - 8
	if version := binary.LittleEndian.Uint16(b[sum-2:]); version > maxDumpVersion || binary.LittleEndian.Uint64(b[sum:]) != dumpSum(b[:sum]) {
		return nil, errDump
	}
	return b[:sum-2], nil
}

// undump returns the string of a dump.
func undump(b []byte, most int) ([]byte, error) {
	b, err := checkDump(b)
	if err != nil {
		return nil, err
	}
	if b[0] != dumpString {
		return nil, errFormat
	}
	value, rest, err := dumpedString(b[1:], most)
	if err == nil && len(rest) > 0 {
		err = errFormat
	}
	return bytes.Clone(value), err
}
