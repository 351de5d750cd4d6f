//go:build linux

package block

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
)

// sectorBytes is the unit that a disk writes as a whole or not at all.
const sectorBytes = 512

// A tape is what reached a disk, in order. Its length is the clock of a run: a power cut at clock c
// comes when the disk has received the first c events.
type tape struct {
	base   []byte // the disk before the first event
	events []event
}

// event is a write that the disk received, or a flush that it completed.
type event struct {
	flush bool
	off   int64  // of a write
	data  []byte // of a write
	// A flush makes durable the writes among the first upTo events, except those in except, which
	// had not been answered when it began.
	upTo   uint64
	except []uint64
}

const (
	kindWrite = iota
	kindFlush
	headBytes = 24
)

// appendTo appends an event as it is encoded in a tape's file: its kind, the length of the data or
// the exceptions in bytes, the offset of a write or upTo of a flush, then the data or the
// exceptions.
func (e *event) appendTo(b []byte) []byte {
	if !e.flush {
		b = binary.LittleEndian.AppendUint64(b, kindWrite)
		b = binary.LittleEndian.AppendUint64(b, uint64(len(e.data)))
		b = binary.LittleEndian.AppendUint64(b, uint64(e.off))
		return append(b, e.data...)
	}
	b = binary.LittleEndian.AppendUint64(b, kindFlush)
	b = binary.LittleEndian.AppendUint64(b, uint64(8*len(e.except)))
	b = binary.LittleEndian.AppendUint64(b, e.upTo)
	for _, i := range e.except {
		b = binary.LittleEndian.AppendUint64(b, i)
	}
	return b
}

// readTape reads the tape that a disk has written, and the disk's initial contents.
func readTape(base, name string) (*tape, error) {
	t := &tape{}
	var err error
	if t.base, err = readSparse(base); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	for len(b) > 0 {
		if len(b) < headBytes {
			return nil, fmt.Errorf("tape %s: %w", name, io.ErrUnexpectedEOF)
		}
		kind, n, at := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])
		b = b[headBytes:]
		if uint64(len(b)) < n {
			return nil, fmt.Errorf("tape %s: %w", name, io.ErrUnexpectedEOF)
		}
		e := event{flush: kind == kindFlush}
		if e.flush {
			e.upTo = at
			for i := uint64(0); i < n; i += 8 {
				e.except = append(e.except, binary.LittleEndian.Uint64(b[i:]))
			}
		} else {
			e.off, e.data = int64(at), b[:n]
		}
		t.events = append(t.events, e)
		b = b[n:]
	}
	return t, nil
}

// cutter builds the images that power cuts leave, at ascending clocks.
type cutter struct {
	tape    *tape
	durable []byte // the disk with only what is durable
	latest  []int  // for each sector, one more than the last durable event that wrote it
	done    []bool // the events that are durable
	first   int    // the first event that may be neither durable nor a flush
	clock   int    // of the last image
	image   []byte
	pages   []int // pages of the disk that are not always all zeros, ascending
}

// pageBytes is the unit in which images are copied.
const pageBytes = 4096

// newCutter returns the cutter of a tape, whose base it modifies.
func newCutter(t *tape) *cutter {
	c := &cutter{tape: t, durable: t.base, latest: make([]int, len(t.base)/sectorBytes),
		done: make([]bool, len(t.events)), image: make([]byte, len(t.base))}
	used := make([]bool, len(t.base)/pageBytes)
	var zeros [pageBytes]byte
	for p := range used {
		used[p] = !bytes.Equal(t.base[p*pageBytes:][:pageBytes], zeros[:])
	}
	for _, e := range t.events {
		for at := e.off; at < e.off+int64(len(e.data)); at += sectorBytes {
			used[at/pageBytes] = true
		}
	}
	for p, u := range used {
		if u {
			c.pages = append(c.pages, p)
		}
	}
	return c
}

// advance applies the flushes before a clock.
func (c *cutter) advance(clock int) {
	for ; c.clock < clock; c.clock++ {
		f := &c.tape.events[c.clock]
		if !f.flush {
			continue
		}
		for i := c.first; i < int(f.upTo); i++ {
			if c.done[i] || c.tape.events[i].flush || slices.Contains(f.except, uint64(i)) {
				continue
			}
			c.write(c.durable, i, func(int) bool { return true })
			c.done[i] = true
			e := &c.tape.events[i]
			for s := int(e.off) / sectorBytes; s < (int(e.off)+len(e.data))/sectorBytes; s++ {
				c.latest[s] = max(c.latest[s], i+1)
			}
		}
		for c.first < c.clock && (c.done[c.first] || c.tape.events[c.first].flush) {
			c.first++
		}
	}
}

// write copies the sectors of event i that keep selects to disk, except those that a later durable
// event wrote.
func (c *cutter) write(disk []byte, i int, keep func(sector int) bool) {
	e := &c.tape.events[i]
	for n := range len(e.data) / sectorBytes {
		if s := int(e.off)/sectorBytes + n; c.latest[s] <= i && keep(n) {
			copy(disk[s*sectorBytes:], e.data[n*sectorBytes:][:sectorBytes])
		}
	}
}

// survival says what a power cut leaves of the writes after the last flush.
type survival int

const (
	keepNone survival = iota
	keepAll
	keepFew  // each with a chance of 1 in 8
	keepHalf // each with a chance of 1 in 2
	keepMost // each with a chance of 7 in 8
	keepTorn // each with a chance of 1 in 2, and half of these in part
	survivals
)

// cut fills image with what a power cut at a clock leaves. Clocks must ascend. It returns how many
// writes could have been lost.
func (c *cutter) cut(clock int, s survival, rng *rand.Rand) (open int) {
	c.advance(clock)
	for _, p := range c.pages {
		copy(c.image[p*pageBytes:][:pageBytes], c.durable[p*pageBytes:])
	}
	for i := c.first; i < clock; i++ {
		if c.done[i] || c.tape.events[i].flush {
			continue
		}
		open++
		if chance := [survivals]int{0, 8, 1, 4, 7, 4}[s]; rng.IntN(8) >= chance {
			continue
		}
		keep := func(int) bool { return true }
		if s == keepTorn {
			switch n := len(c.tape.events[i].data) / sectorBytes; rng.IntN(4) {
			case 0: // a prefix
				end := rng.IntN(n + 1)
				keep = func(sector int) bool { return sector < end }
			case 1: // any of its sectors
				keep = func(int) bool { return rng.IntN(2) == 0 }
			}
		}
		c.write(c.image, i, keep)
	}
	return open
}

// writeImage writes image to a sparse file.
func (c *cutter) writeImage(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	err = f.Truncate(int64(len(c.image)))
	for i := 0; i < len(c.pages) && err == nil; {
		n := 1
		for i+n < len(c.pages) && c.pages[i+n] == c.pages[i]+n {
			n++
		}
		at := c.pages[i] * pageBytes
		_, err = f.WriteAt(c.image[at:at+n*pageBytes], int64(at))
		i += n
	}
	return errors.Join(err, f.Close())
}
