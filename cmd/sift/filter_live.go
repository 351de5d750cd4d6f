package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"github.com/siftdb/sift/filter/live"
	"github.com/siftdb/sift/internal/bytesize"
)

// filterLiveCmd groups the commands for filter files of package live.
type filterLiveCmd struct {
	Build   liveBuildCmd   `cmd:"" help:"Build a filter from the elements on standard input."`
	Merge   liveMergeCmd   `cmd:"" help:"Merge several filters into one."`
	Query   liveQueryCmd   `cmd:"" help:"Look up the elements on standard input."`
	Inspect liveInspectCmd `cmd:"" help:"Print what a filter file holds."`
}

func (filterLiveCmd) Help() string {
	return `Works on filter files that a program has written with live.WriteFile of package
filter/live or with Guava's BloomFilter.writeTo. The format is detected. Each line of standard
input is an element: text with the escapes that sift uses in keys, or what --elements names.`
}

// elements is the flag for the type of the elements on standard input.
type elements struct {
	Elements string `default:"text" enum:"text,hex,int32,int64" help:"What a line is: text, hex (bytes), int32 or int64 (numbers, hashed as with Guava's integerFunnel and longFunnel). Default: ${default}."`
}

// parse returns the bytes of an element, as the filters hash them.
func (el elements) parse(line string) ([]byte, error) {
	switch el.Elements {
	case "int32":
		n, err := strconv.ParseInt(line, 10, 32)
		return binary.LittleEndian.AppendUint32(nil, uint32(n)), numberError(line, err)
	case "int64":
		n, err := strconv.ParseInt(line, 10, 64)
		return binary.LittleEndian.AppendUint64(nil, uint64(n)), numberError(line, err)
	}
	return form{Hex: el.Elements == "hex"}.parse(line)
}

func numberError(line string, err error) error {
	if err != nil {
		return fmt.Errorf("%q is not a number of this type", line)
	}
	return nil
}

// lineSet is a filter whose elements, of some type, are given as lines.
type lineSet interface {
	add(lines []string, isNew []bool) (n int, err error)
	has(lines []string, positive []bool) (n int, err error)
	merge(o lineSet) error
	filter() lineFilter
	guava() bool // whether it was read from Guava's format
}

// lineFilter has the methods of a filter that do not depend on the type of its elements.
type lineFilter interface {
	io.WriterTo
	ApproxCount() uint64
	FPR() float64
	FillRatio() float64
	MemoryBytes() int
}

// typed is a filter of elements T.
type typed[T any] struct {
	f     live.Filter[T]
	parse func(line string) (T, error)
	java  bool // read from Guava's format
}

func (t typed[T]) merge(o lineSet) error { return live.Merge(t.f, o.(typed[T]).f) }

func (t typed[T]) guava() bool { return t.java }

func (t typed[T]) filter() lineFilter { return t.f }

func (t typed[T]) parseAll(lines []string) ([]T, error) {
	vs := make([]T, len(lines))
	for i, line := range lines {
		v, err := t.parse(line)
		if err != nil {
			return vs[:i], err
		}
		vs[i] = v
	}
	return vs, nil
}

// add adds lines until one is rejected or malformed.
func (t typed[T]) add(lines []string, isNew []bool) (int, error) {
	vs, perr := t.parseAll(lines)
	n, err := live.TryAddMany[T](t.f, vs, isNew)
	if err == nil {
		err = perr
	}
	return n, err
}

// has looks up lines until one is malformed.
func (t typed[T]) has(lines []string, positive []bool) (int, error) {
	vs, err := t.parseAll(lines)
	t.f.MayContainMany(vs, positive)
	return len(vs), err
}

// The parsers of the types of elements.
func (el elements) bytes(line string) ([]byte, error) { return el.parse(line) }

func (el elements) int32(line string) (int32, error) {
	b, err := el.parse(line)
	if err != nil {
		return 0, err
	}
	return int32(binary.LittleEndian.Uint32(b)), nil
}

func (el elements) int64(line string) (int64, error) {
	b, err := el.parse(line)
	if err != nil {
		return 0, err
	}
	return int64(binary.LittleEndian.Uint64(b)), nil
}

// build returns an empty filter.
func (el elements) build(c live.Config) (lineSet, error) {
	switch el.Elements {
	case "int32":
		return buildLines(c, el.int32)
	case "int64":
		return buildLines(c, el.int64)
	}
	return buildLines(c, el.bytes)
}

// open reads a filter file, in sift's or Guava's format.
func (el elements) open(path string, o liveLimit) (lineSet, error) {
	switch el.Elements {
	case "int32":
		return readLines(path, o, el.int32)
	case "int64":
		return readLines(path, o, el.int64)
	case "custom": // for inspect: only the program that wrote the file knows the type
		type custom struct{}
		return readLines(path, o, func(string) (custom, error) { return custom{}, errors.New("elements with a funnel") })
	}
	return readLines(path, o, el.bytes)
}

// liveLimit bounds the memory of a filter that is read.
type liveLimit struct {
	MaxMemory bytesize.Size `default:"0" placeholder:"BYTES" help:"Reject a file whose filter takes more memory: 64MiB, 500KB or a number of bytes. Default: limited only by the size of the file."`
}

const liveMagic = "siftlive"

// buildLines returns an empty filter whose elements parse decodes from lines.
func buildLines[T any](c live.Config, parse func(line string) (T, error)) (lineSet, error) {
	f, err := live.Build(c, live.BuildOptions[T]{})
	if err != nil {
		return nil, err
	}
	return typed[T]{f: f, parse: parse}, nil
}

// leastMemory returns a lower bound of a new filter's memory in bytes.
func leastMemory(c live.Config) float64 {
	bits := float64(c.Bits)
	if c.Items > 0 && c.FPR > 0 { // without an FPR, building the filter fails
		bits = -float64(c.Items) * math.Log(c.FPR) / (math.Ln2 * math.Ln2)
	}
	switch {
	case c.Kind == "counting":
		bits *= 4
	case c.Kind == "cuckoo":
		bits = float64(c.Items) * 8
	case c.Kind == "pair" && c.Added != nil && c.Removed != nil:
		return leastMemory(*c.Added) + leastMemory(*c.Removed)
	case c.Kind == "sharded" && c.Of != nil:
		return float64(c.Shards) * leastMemory(*c.Of)
	}
	return bits / 8
}

// readLines reads a filter file.
func readLines[T any](path string, o liveLimit, parse func(line string) (T, error)) (lineSet, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	start := make([]byte, len(liveMagic))
	n, err := io.ReadFull(file, start)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && err != io.EOF {
		return nil, err
	}
	in := io.MultiReader(bytes.NewReader(start[:n]), file)
	options := live.ReadOptions[T]{MaxBytes: int64(o.MaxMemory)}
	if reflect.TypeFor[T]().Kind() == reflect.Struct {
		options.Funnel = func(dst []byte, _ T) []byte { return dst }
	}
	l := typed[T]{parse: parse, java: string(start[:n]) != liveMagic}
	if l.java {
		l.f, err = live.ReadGuava(in, options)
	} else {
		l.f, err = live.Read(in, options)
	}
	if err != nil {
		at, _ := file.Seek(0, io.SeekCurrent)
		switch {
		case errors.Is(err, live.ErrIncompatible):
			err = fmt.Errorf("%w (see --elements)", err)
		case l.java && errors.Is(err, live.ErrFormat):
			err = fmt.Errorf("neither a filter file of sift nor an intact one of Guava: %w, in the first %d bytes", err, at)
		case errors.Is(err, live.ErrFormat):
			err = fmt.Errorf("%w, in the first %d bytes", err, at)
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if n, err := file.Read(start[:1]); n != 0 || err != io.EOF {
		return nil, fmt.Errorf("%s: trailing bytes after the filter", path)
	}
	return l, nil
}

// liveOutput is where a filter is written.
type liveOutput struct {
	Out   string `required:"" short:"o" placeholder:"FILE" help:"The file to write. An existing file is replaced once the new one is complete."`
	Guava bool   `help:"Write Guava's format, for BloomFilter.readFrom. Only for bloom filters with scheme=guava."`
}

func (o liveOutput) write(f lineFilter) error {
	formatted, err := o.format(f)
	if err != nil {
		return err
	}
	return live.WriteFile(o.Out, formatted)
}

// format returns f in the format to write. It is a usage error if that format cannot hold f.
func (o liveOutput) format(f lineFilter) (io.WriterTo, error) {
	if !o.Guava {
		return f, nil
	}
	g, ok := f.(interface {
		Scheme() live.Scheme
		WriteGuava(w io.Writer) (int64, error)
	})
	switch {
	case !ok:
		return nil, usage(fmt.Errorf("--guava: Guava's format has no %s filter", kindOfFilter(f)))
	case g.Scheme() != live.Guava && g.Scheme() != live.GuavaMitz32:
		return nil, usage(fmt.Errorf("--guava: the filter has scheme=%s instead of guava", strings.ToLower(g.Scheme().String())))
	}
	return writerTo(g.WriteGuava), nil
}

// check returns an error if the file cannot be written. It runs before the input is read, which can
// take hours.
func (o liveOutput) check() error {
	dir, err := os.Stat(filepath.Dir(o.Out))
	if err == nil && !dir.IsDir() {
		err = fmt.Errorf("%s is not a directory", filepath.Dir(o.Out))
	}
	switch file, serr := os.Stat(o.Out); {
	case serr != nil: // it does not exist
	case file.IsDir():
		err = fmt.Errorf("%s is a directory", o.Out)
	case !file.Mode().IsRegular():
		err = fmt.Errorf("%s is not a regular file: it would be replaced, not written to", o.Out)
	}
	if err != nil {
		return err
	}
	// The filter will be written to a new file beside it. This one has another name, because
	// another process may be writing that one.
	probe, err := os.CreateTemp(filepath.Dir(o.Out), ".sift-*")
	if err != nil {
		return err
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// writerTo is a function as an io.WriterTo.
type writerTo func(w io.Writer) (int64, error)

func (f writerTo) WriteTo(w io.Writer) (int64, error) { return f(w) }

// kindOfFilter returns the name of a filter's type, as in Config.
func kindOfFilter(f any) string {
	name := strings.TrimPrefix(fmt.Sprintf("%T", f), "*live.")
	name, _, _ = strings.Cut(name, "[")
	return strings.ToLower(name)
}

// eachBatch reads lines and calls fn with a batch at a time.
func (e *env) eachBatch(what string, fn func(first int64, lines []string) error) error {
	p := e.progress(what, inputSize(e.in))
	defer p.done()
	in := newLineReader(e.input())
	var batch []string
	bytes := 0
	for {
		line, err := in.next()
		if err == nil {
			batch = append(batch, string(line))
			bytes += len(line)
		}
		if err != nil && err != io.EOF {
			return fmt.Errorf("%w after line %d", err, in.line)
		}
		if len(batch) == 4096 || bytes >= 1<<20 || err == io.EOF && len(batch) > 0 {
			if err := fn(in.line-int64(len(batch))+1, batch); err != nil {
				return err
			}
			batch, bytes = batch[:0], 0
			p.set(in.bytes)
		}
		if err == io.EOF {
			return nil
		}
	}
}
