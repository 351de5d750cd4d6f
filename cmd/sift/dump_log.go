package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/record"
	"github.com/siftdb/sift/internal/wal"
)

// logTotals adds up the records of a log.
type logTotals struct {
	bySift                    bool // the log begins with an empty batch, so sift wrote it
	records, markers, batches uint64
	puts, deletes             uint64
	first, last               uint64 // sequence numbers, if there are batches
	next                      uint64 // the sequence number that follows the records
}

// log prints the records of a log.
func (d *dumper) log() error {
	heading := fmt.Sprintf("log %s: %s bytes\n\n%10s %9s  %-21s  %s\n", d.path, count(d.size), "offset", "bytes", "sequence", "what")
	if err := d.heading("log", heading); err != nil {
		return err
	}
	var t logTotals
	in := record.NewReader(d.file, d.size, d.path)
	for {
		payload, offset, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if err := d.batch(payload, offset, &t); err != nil {
			return err
		}
	}
	if err := d.logTail(in, &t); err != nil {
		return err
	}
	return errors.Join(d.totals(&t), d.result())
}

// totals prints the totals of a log.
func (d *dumper) totals(t *logTotals) error {
	j := totalsJSON{Type: "totals", Records: t.records, DurabilityMarkers: t.markers, Batches: t.batches, Puts: t.puts, Deletes: t.deletes}
	line := fmt.Sprintf("%s: %s, %s with %s and %s", amount(t.records, "record"), amount(t.markers, "durability marker"),
		amount(t.batches, "batch"), amount(t.puts, "put"), amount(t.deletes, "delete"))
	if t.batches > 0 {
		j.First, j.Last = &t.first, &t.last
		line += ", sequence " + rangeText(t.first, t.last)
	}
	if other := t.records - t.markers - t.batches; other > 0 {
		line += fmt.Sprintf("; %s not readable as a batch", count(other))
	}
	return d.show(j, "\n%s\n", line)
}

// logTail prints how a log or a MANIFEST ends. t is nil for a MANIFEST. After damage in a
// log it also prints the batches that can still be read.
func (d *dumper) logTail(in *record.Reader, t *logTotals) error {
	tail := in.Tail()
	kind := "torn"
	if damaged, err := d.tailDamaged(in, t); err != nil {
		return err
	} else if damaged {
		kind, d.damaged = "damaged", true
	}
	switch tail.Kind {
	case record.Clean:
		return d.show(endJSON{Type: "end", Kind: "clean", Offset: tail.Offset}, "%10d  end of the file, clean\n", tail.Offset)
	case record.Zeros:
		j := endJSON{Type: "end", Kind: "zeros", Offset: tail.Offset, Dropped: tail.Dropped}
		if t != nil && t.bySift {
			return d.show(j, "%10d  clean: the last %s bytes of the file are zeros, unused space of the log\n", tail.Offset, count(tail.Dropped))
		}
		return d.show(j, "%10d  torn: the last %s bytes of the file are zeros\n", tail.Offset, count(tail.Dropped))
	case record.Torn:
		reason := cause(tail.Err, tail.Offset)
		return d.show(endJSON{Type: "end", Kind: kind, Offset: tail.Offset, Dropped: tail.Dropped, Error: reason.Error()},
			"%10d  %s: no valid record in the last %s bytes of the file: %v\n", tail.Offset, kind, count(tail.Dropped), reason)
	}
	reason := cause(tail.Err, tail.Offset)
	err := d.show(endJSON{Type: "end", Kind: kind, Offset: tail.Offset, Next: tail.Next, Error: reason.Error()},
		"%10d  %s: %v; the next valid fragment is at offset %d\n", tail.Offset, kind, reason, tail.Next)
	if err != nil || t == nil {
		return err
	}
	var printErr error
	err = in.Salvage(func(payload []byte, offset int64) bool {
		printErr = d.batch(payload, offset, t)
		return printErr == nil
	})
	return errors.Join(err, printErr)
}

// tailDamaged reports whether the end of a log or a MANIFEST is damaged, and not what a crash has
// left. It judges as Open does: a MANIFEST is damaged if a whole edit follows the bad one, since
// each is synced before the next is written; a log that is too short for a write is not.
func (d *dumper) tailDamaged(in *record.Reader, t *logTotals) (damaged bool, err error) {
	switch {
	case t == nil && in.Tail().Kind == record.Damaged:
		err = in.Salvage(func([]byte, int64) bool { damaged = true; return false })
		return damaged, err
	case t == nil || d.size <= record.HeaderLen+wal.BatchHeaderLen:
		return false, nil
	}
	next := t.next
	if t.batches == 0 && t.markers <= 1 { // at most the header
		// The number of the first batch, which is bad, is unknown, but below that of the next one.
		// A lower marker may prove only that the previous log was on disk.
		err := in.Salvage(func(payload []byte, _ int64) bool {
			first, n, err := wal.DecodeBatch(payload, nil)
			if err != nil || n == 0 {
				return true
			}
			next = max(next, first)
			return false
		})
		if err != nil {
			return false, err
		}
	}
	return wal.TailDamaged(in, t.bySift, next)
}

// cause strips from an error what its line already shows: the path, and the offset if it
// is the line's.
func cause(err error, offset int64) error {
	if c := (*base.CorruptionError)(nil); errors.As(err, &c) {
		if c.Offset == offset {
			return c.Err
		}
		return fmt.Errorf("at offset %d: %w", c.Offset, c.Err)
	}
	return err
}

// batch prints one record of a log: a batch of writes or a durability marker.
func (d *dumper) batch(payload []byte, offset int64, t *logTotals) error {
	t.records++
	c := base.NewCursor(payload)
	first, n := c.Uint64(), c.Uint32()
	if c.Err() == nil && n == 0 && c.Len() == 0 {
		t.markers++
		t.next = max(t.next, first)
		if t.records == 1 {
			t.bySift = true
		}
		return d.show(recordJSON{Type: "durability marker", Offset: offset, Bytes: len(payload), First: &first},
			"%10d %9d  %-21d  durability marker\n", offset, len(payload), first)
	}
	var puts, deletes uint64
	err := eachOperation(c, func(op operation) error {
		if op.kind == base.KindSet {
			puts++
		} else {
			deletes++
		}
		return nil
	})
	if err == nil && puts+deletes != uint64(n) {
		err = fmt.Errorf("its header counts %d operations, but it holds %d", n, puts+deletes)
	}
	if err != nil {
		d.damaged = true
		return d.show(recordJSON{Type: "bad record", Offset: offset, Bytes: len(payload), Error: err.Error()},
			"%10d %9d  %-21s  not a batch: %v\n", offset, len(payload), "", err)
	}
	last := first + uint64(n) - 1
	t.puts, t.deletes = t.puts+puts, t.deletes+deletes
	if t.batches == 0 {
		t.first = first
	}
	t.batches++
	t.first, t.last = min(t.first, first), max(t.last, last)
	t.next = max(t.next, last+1)
	what := amount(puts, "put") + ", " + amount(deletes, "delete")
	if deletes == 0 {
		what = amount(puts, "put")
	} else if puts == 0 {
		what = amount(deletes, "delete")
	}
	err = d.show(recordJSON{Type: "batch", Offset: offset, Bytes: len(payload), First: &first, Last: &last, Puts: &puts, Deletes: &deletes},
		"%10d %9d  %-21s  %s\n", offset, len(payload), rangeText(first, last), what)
	if err != nil || !d.entries {
		return err
	}
	seq := first
	return eachOperation(c, func(op operation) error {
		err := d.entry(op.key, seq, op.kind, op.value)
		seq++
		return err
	})
}

// entry prints one operation or one entry of a table.
func (d *dumper) entry(key []byte, seq uint64, kind base.Kind, value []byte) error {
	if d.json {
		return d.show(d.operationJSON(key, seq, kind, value), "")
	}
	if kind == base.KindDelete {
		return d.printf("    %s #%d delete\n", d.key(key), seq)
	}
	return d.printf("    %s #%d put %s\n", d.key(key), seq, d.key(value))
}

// operation is one write of a batch. Its slices alias the batch.
type operation struct {
	kind       base.Kind
	key, value []byte
}

// eachOperation calls fn with each operation of a batch, until fn returns an error, which it
// returns. c has already read the header. The operations are not collected: they take up to 28
// times as much memory as the batch.
func eachOperation(c base.Cursor, fn func(operation) error) error {
	if c.Err() != nil {
		return fmt.Errorf("header %w", c.Err())
	}
	for i := 0; c.Len() > 0; i++ {
		op := operation{kind: base.Kind(c.Uint8()), key: c.LengthPrefixed()}
		switch op.kind {
		case base.KindSet:
			op.value = c.LengthPrefixed()
		case base.KindDelete:
		default:
			return fmt.Errorf("operation %d has unknown kind %d", i, op.kind)
		}
		if c.Err() != nil {
			return fmt.Errorf("operation %d %w", i, c.Err())
		}
		if err := fn(op); err != nil {
			return err
		}
	}
	return nil
}
