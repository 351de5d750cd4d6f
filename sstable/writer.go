package sstable

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/golang/snappy"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
)

// WriterOptions configure a Writer. A nil *WriterOptions and zero fields mean
// the defaults.
type WriterOptions struct {
	// BlockBytes is the maximum size of a data block before compression. Only a block with a
	// single entry may be larger. Default: 4096.
	BlockBytes int
	// RestartInterval is the number of entries per restart. A restart is an entry whose key is
	// stored without prefix compression. Default: 16.
	RestartInterval int
	// DisableCompression stores all blocks uncompressed. Otherwise data and index blocks
	// are compressed with snappy if that saves at least an eighth.
	DisableCompression bool
	// Filter builds the table's filter over its user keys. Nil: no filter.
	Filter filter.Policy
	// Prefix extracts prefixes of keys, which the filter then contains, too. Nil: keys only.
	Prefix Prefixer
	// Range builds the table's range filter over its user keys. The filter splits keys after
	// the prefix of Prefix, if that is set and not an EachPrefix. Otherwise the writer chooses
	// a fixed length, or a delimiter, that suits the keys. Nil: no range filter.
	Range filter.RangePolicy
	// FileNumber is stored in the properties, so that a table under the name of another table
	// is detected. 0: unknown.
	FileNumber uint64
}

const (
	defaultBlockBytes      = 4096
	defaultRestartInterval = 16
	// indexRestartInterval is the restart interval of the index. LevelDB writes 1 and reads any;
	// with more, separators are prefix-compressed.
	indexRestartInterval = 16
	// maxEntryLen is the maximum length of key and value together: the longest entry that a block
	// can have, since compactions write what other engines wrote.
	maxEntryLen = maxBlockLen - 64
)

var errFinished = errors.New("sstable: the writer is finished")

// TableInfo describes a finished table.
type TableInfo struct {
	Properties
	// Size is the length of the file in bytes.
	Size int64
	// FilterErr is the reason why the filter or the range filter could not be built, or nil.
	// The table is complete without it.
	FilterErr error
}

// Writer writes one table. Its methods are called in this order:
//
//	Add* Finish
//
// It writes to its io.Writer as blocks fill up, at most a block at a time: pass a bufio.Writer. The
// caller flushes, syncs and closes it. A Writer is not safe for concurrent use. After an error all
// calls return that error, and the output is useless.
type Writer struct {
	w      io.Writer
	opts   WriterOptions
	err    error
	offset uint64
	data   blockWriter
	index  blockWriter
	// separators is the total length of the separators in the index, which readers decode whole.
	separators int64
	filter     filter.Writer // nil: none
	ranges     rangeKeys     // of WriterOptions.Range
	props      Properties
	last       []byte // the last key added
	prefix     []byte // the last prefix added to the filter; with EachPrefix the last key
	prefixed   bool   // the filter contains prefixes
	unprefixed bool   // but not those of all keys: see maxNewPrefixes
	pending    bool   // the last data block has no index entry yet
	handle     Handle // of that block
	buf        []byte // scratch: a separator or a compressed block
	trailer    [blockTrailerLen]byte
}

// NewWriter returns a Writer that writes to w. o may be nil.
func NewWriter(w io.Writer, o *WriterOptions) *Writer {
	wr := &Writer{w: w}
	if o != nil {
		wr.opts = *o
	}
	if wr.opts.BlockBytes <= 0 {
		wr.opts.BlockBytes = defaultBlockBytes
	}
	if wr.opts.RestartInterval <= 0 {
		wr.opts.RestartInterval = defaultRestartInterval
	}
	wr.data.interval = wr.opts.RestartInterval
	wr.index.interval = indexRestartInterval
	if !filter.IsNone(wr.opts.Filter) {
		wr.filter = wr.opts.Filter.NewWriter()
	}
	return wr
}

// Add adds an entry, which must be after the previous one in the order of internal keys: user keys
// ascend, and the sequence numbers of a user key descend. Key and value together are limited to 129
// bytes less than 2 GiB, and seq to 56 bits. The value of a tombstone is ignored. Add copies
// userKey and value.
func (w *Writer) Add(userKey []byte, seq uint64, kind Kind, value []byte) error {
	if w.err != nil {
		return w.err
	}
	if err := w.add(userKey, seq, kind, value); err != nil {
		w.err = err
		return err
	}
	return nil
}

func (w *Writer) add(userKey []byte, seq uint64, kind Kind, value []byte) error {
	if kind > base.KindSet {
		return fmt.Errorf("sstable: entry of unknown kind %d", kind)
	}
	if seq > base.MaxSequence {
		return fmt.Errorf("sstable: sequence number %d exceeds the maximum", seq)
	}
	if len(userKey) > maxEntryLen || len(value) > maxEntryLen-len(userKey) {
		return fmt.Errorf("sstable: key and value of %d and %d bytes are too long", len(userKey), len(value))
	}
	if kind == base.KindDelete {
		value = nil
	}
	trailer := base.Trailer(seq, kind)
	newKey := true
	if p := &w.props; p.NumEntries > 0 {
		lastUser := base.UserKey(w.last)
		c := bytes.Compare(lastUser, userKey)
		if c > 0 || c == 0 && base.KeyTrailer(w.last) <= trailer {
			return fmt.Errorf("sstable: key %q at sequence %d does not come after %q at %d",
				userKey, seq, lastUser, base.KeyTrailer(w.last)>>8)
		}
		newKey = c < 0
		if w.pending {
			w.buf = appendSeparator(w.buf[:0], w.last, userKey)
			w.addIndexEntry(w.buf)
		}
	}
	w.last = base.AppendInternalKey(w.last[:0], userKey, seq, kind)

	shared := w.data.shared(w.last)
	if !w.data.empty() && w.data.size()+w.data.growth(shared, len(w.last), len(value)) > w.opts.BlockBytes {
		if err := w.finishData(); err != nil {
			return err
		}
		w.buf = appendSeparator(w.buf[:0], w.data.key, userKey)
		w.addIndexEntry(w.buf)
		w.data.reset()
		shared = 0
	}
	w.data.add(w.last, shared, value)
	if w.data.size() >= w.opts.BlockBytes {
		if err := w.finishData(); err != nil {
			return err
		}
		w.data.reset()
	}

	if newKey {
		w.props.NumKeys++
		if w.opts.Range != nil {
			w.ranges.add(userKey)
		}
		if w.filter != nil {
			w.filter.Add(filter.NewKey(userKey))
			if w.opts.Prefix != nil {
				w.addPrefixes(userKey)
			}
		}
	}
	w.props.note(w.last, seq, kind, len(value))
	return nil
}

// finishData writes the data block. The index entry of the block is then pending.
func (w *Writer) finishData() error {
	b := w.data.finish()
	if len(b) > maxBlockLen {
		return fmt.Errorf("sstable: block of %d bytes is too long", len(b))
	}
	h, err := w.writeBlock(b, !w.opts.DisableCompression)
	if err != nil {
		return err
	}
	w.handle, w.pending = h, true
	w.props.NumDataBlocks++
	w.props.DataBytes = w.offset
	return nil
}

// addIndexEntry adds the pending index entry, with the given separator.
func (w *Writer) addIndexEntry(separator []byte) {
	var h [20]byte
	w.separators += int64(len(separator))
	w.index.add(separator, w.index.shared(separator), appendHandle(h[:0], w.handle))
	w.pending = false
}

// appendSeparator appends a short internal key s such that last <= s, and s is before every
// internal key of the user key next and of larger ones, or s is last if next is the user key of
// last.
func appendSeparator(dst, last, next []byte) []byte {
	user := base.UserKey(last)
	start := len(dst)
	dst = base.AppendSeparator(dst, user, next)
	return finishSeparator(dst, start, last)
}

// appendSuccessor appends a short internal key s such that last <= s.
func appendSuccessor(dst, last []byte) []byte {
	start := len(dst)
	dst = base.AppendSuccessor(dst, base.UserKey(last))
	return finishSeparator(dst, start, last)
}

// finishSeparator appends a trailer to the user key dst[start:], which makes it the first internal
// key of that user key. If that is no shorter than last, it uses last instead.
func finishSeparator(dst []byte, start int, last []byte) []byte {
	if len(dst)-start < len(last)-base.TrailerLen {
		user := dst[start:]
		return base.AppendInternalKey(dst[:start], user, base.MaxSequence, base.KindSeek)
	}
	return append(dst[:start], last...)
}

// writeBlock writes a block with its trailer.
func (w *Writer) writeBlock(b []byte, compress bool) (Handle, error) {
	w.trailer[0] = typePlain
	if n := snappy.MaxEncodedLen(len(b)); compress && n >= 0 {
		if cap(w.buf) < n {
			w.buf = make([]byte, n)
		}
		if c := snappy.Encode(w.buf[:cap(w.buf)], b); len(c) <= len(b)-len(b)/8 {
			w.trailer[0], b = typeSnappy, c
		}
	}
	h := Handle{Offset: w.offset, Length: uint64(len(b))}
	binary.LittleEndian.PutUint32(w.trailer[1:], base.Checksum(b, w.trailer[:1]))
	if err := w.write(b); err != nil {
		return Handle{}, err
	}
	return h, w.write(w.trailer[:])
}

func (w *Writer) write(b []byte) error {
	n, err := w.w.Write(b)
	if err == nil && n != len(b) {
		err = io.ErrShortWrite
	}
	w.offset += uint64(n)
	return err
}

// EstimatedBytes returns the size of the data blocks so far, including the uncompressed size of the
// unfinished one, or the memory that reading the index takes, if that is more: long keys may
// compress well.
func (w *Writer) EstimatedBytes() int64 {
	n := int64(w.offset)
	if !w.data.empty() {
		n += int64(w.data.size())
	}
	return max(n, w.separators)
}

// Finish completes the table, which may have no entries. The writer cannot be used afterwards.
func (w *Writer) Finish() (*TableInfo, error) {
	if w.err != nil {
		return nil, w.err
	}
	info, err := w.finish()
	if err != nil {
		w.err = err
		return nil, err
	}
	w.err = errFinished
	return info, nil
}

func (w *Writer) finish() (*TableInfo, error) {
	if !w.data.empty() {
		if err := w.finishData(); err != nil {
			return nil, err
		}
	}
	if w.pending {
		w.buf = appendSuccessor(w.buf[:0], w.last)
		w.addIndexEntry(w.buf)
	}
	info := &TableInfo{}
	metaindex := blockWriter{interval: 1}
	if err := w.finishFilter(&metaindex, info); err != nil {
		return nil, err
	}
	rangeEntry, err := w.finishRange(info)
	if err != nil {
		return nil, err
	}
	p := &w.props
	p.FileNumber = w.opts.FileNumber
	p.Largest = bytes.Clone(w.last) // nil without entries
	index := w.index.finish()
	if len(index) > maxBlockLen {
		return nil, fmt.Errorf("sstable: index of %d bytes is too long", len(index))
	}
	p.IndexBytes = uint64(len(index))
	p.compressed = !w.opts.DisableCompression
	h, err := w.writeBlock(appendProperties(p), false)
	if err != nil {
		return nil, err
	}
	metaindex.add([]byte(propertiesName), 0, appendHandle(nil, h))
	if rangeEntry.Name != "" {
		metaindex.add([]byte(rangeEntry.Name), 0, rangeEntry.Value)
	}
	var f footer
	if f.metaindex, err = w.writeBlock(metaindex.finish(), false); err != nil {
		return nil, err
	}
	if f.index, err = w.writeBlock(index, !w.opts.DisableCompression); err != nil {
		return nil, err
	}
	if err := w.write(appendFooter(nil, f)); err != nil {
		return nil, err
	}
	info.Properties, info.Size = *p, int64(w.offset)
	return info, nil
}
