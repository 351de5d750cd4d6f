package table

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/golang/snappy"

	"github.com/syndtr/goleveldb/leveldb/comparer"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/util"
)

// Writer writes a table. It must not be used concurrently.
type Writer struct {
	w         io.Writer
	cmp       comparer.Comparer
	compress  bool
	blockSize int
	err       error

	data, index blockWriter
	pending     handle // the block that is not in the index yet, if isPending
	isPending   bool
	last        []byte // the key
	offset      uint64
	blocks      int
	entries     int
	buf         []byte

	filter       filter.Filter // nil if there is none
	generator    filter.FilterGenerator
	generated    util.Buffer
	filterStarts []uint32
	unfiltered   int // keys that are in no filter yet
	baseLg       int
}

// NewWriter returns a Writer to f. Of the options it uses BlockSize, BlockRestartInterval,
// Comparer, Compression, Filter and FilterBaseLg. pool and size are not used.
func NewWriter(f io.Writer, o *opt.Options, pool *util.BufferPool, size int) *Writer {
	w := &Writer{
		w: f, cmp: o.GetComparer(), compress: o.GetCompression() == opt.SnappyCompression,
		blockSize: o.GetBlockSize(), filter: o.GetFilter(), baseLg: o.GetFilterBaseLg(),
		data:  blockWriter{interval: o.GetBlockRestartInterval()},
		index: blockWriter{interval: 1},
	}
	if w.filter != nil {
		w.generator = w.filter.NewGenerator()
	}
	return w
}

// Append adds a key, which must be greater than all previous ones, and its value. Both are copied.
func (w *Writer) Append(key, value []byte) error {
	if w.err != nil {
		return w.err
	}
	if w.entries > 0 && w.cmp.Compare(w.last, key) >= 0 {
		w.err = fmt.Errorf("leveldb/table: Writer: keys are not in increasing order: %q, %q", w.last, key)
		return w.err
	}
	w.indexPending(key)
	w.data.add(key, value)
	if w.generator != nil {
		w.generator.Add(key)
		w.unfiltered++
	}
	w.last = append(w.last[:0], key...)
	w.entries++
	if w.data.size() >= w.blockSize {
		w.finishData()
	}
	return w.err
}

// indexPending adds the last data block to the index, under a separator: a key that is >= the
// block's last key and < next, the key that follows. next is nil if none follows.
func (w *Writer) indexPending(next []byte) {
	if !w.isPending {
		return
	}
	var sep []byte
	if next == nil {
		sep = w.cmp.Successor(nil, w.last)
	} else {
		sep = w.cmp.Separator(nil, w.last, next)
	}
	if sep == nil {
		sep = w.last
	}
	w.index.add(sep, w.pending.append(nil))
	w.isPending = false
}

// finishData writes the data block.
func (w *Writer) finishData() {
	w.pending = w.writeBlock(w.data.finish(), w.compress)
	w.isPending = true
	w.data.reset()
	w.blocks++
	if w.generator != nil {
		w.filterUpTo(w.offset)
	}
}

// filterUpTo writes the filters of the blocks that begin before an offset: one for each 2^baseLg
// bytes of the file, empty where no block begins.
func (w *Writer) filterUpTo(offset uint64) {
	for uint64(len(w.filterStarts)) < offset>>w.baseLg {
		w.filterStarts = append(w.filterStarts, uint32(w.generated.Len()))
		if w.unfiltered > 0 {
			w.generator.Generate(&w.generated)
			w.unfiltered = 0
		}
	}
}

// writeBlock writes a block and returns its handle.
func (w *Writer) writeBlock(data []byte, compress bool) handle {
	if w.err != nil {
		return handle{}
	}
	kind := byte(rawBlock)
	if compress {
		if packed := snappy.Encode(nil, data); len(packed) < len(data)-len(data)/8 {
			data, kind = packed, snappyBlock
		}
	}
	w.buf = append(append(w.buf[:0], data...), kind)
	w.buf = binary.LittleEndian.AppendUint32(w.buf, util.NewCRC(w.buf).Value())
	_, w.err = w.w.Write(w.buf)
	h := handle{w.offset, uint64(len(data))}
	w.offset += uint64(len(w.buf))
	return h
}

// BlocksLen returns the number of data blocks written so far.
func (w *Writer) BlocksLen() int { return w.blocks }

// EntriesLen returns the number of entries added.
func (w *Writer) EntriesLen() int { return w.entries }

// BytesLen returns the number of bytes written so far.
func (w *Writer) BytesLen() int { return int(w.offset) }

// Close completes the table. It does not close the file. The Writer cannot be used afterwards.
func (w *Writer) Close() error {
	if w.err != nil {
		return w.err
	}
	if w.data.entries > 0 || w.entries == 0 {
		w.finishData()
	}
	w.indexPending(nil)
	meta := blockWriter{interval: 1}
	if w.generator != nil {
		w.filterUpTo((w.offset>>w.baseLg + 1) << w.baseLg)
		block := append([]byte(nil), w.generated.Bytes()...)
		end := uint32(len(block))
		for _, start := range append(w.filterStarts, end) {
			block = binary.LittleEndian.AppendUint32(block, start)
		}
		block = block[:len(block)-4] // the end is appended below, as the offset of the offsets
		block = append(binary.LittleEndian.AppendUint32(block, end), byte(w.baseLg))
		meta.add([]byte(filterPrefix+w.filter.Name()), w.writeBlock(block, false).append(nil))
	}
	metaindex := w.writeBlock(meta.finish(), w.compress)
	index := w.writeBlock(w.index.finish(), w.compress)
	if w.err != nil {
		return w.err
	}
	footer := make([]byte, footerLen)
	index.append(metaindex.append(footer[:0]))
	copy(footer[footerLen-len(magic):], magic)
	if _, w.err = w.w.Write(footer); w.err != nil {
		return w.err
	}
	w.offset += footerLen
	w.err = errors.New("leveldb/table: writer is closed")
	return nil
}
