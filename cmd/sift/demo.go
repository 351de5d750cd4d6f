package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
)

type demoCmd struct {
	Filter    string `placeholder:"POLICY" help:"The filter of new tables, such as bloom(12), or none. Default: ${filter}."`
	Dir       string `placeholder:"DIR" help:"Keep the database in this directory, which must be missing or empty. Default: a temporary one, removed at the end."`
	Tree      string `placeholder:"DIR" help:"Store the text files below this directory. Default: Go's own source."`
	KeysLimit int64  `placeholder:"N" help:"Store at most N lines. Default: all."`
	Lookups   int    `default:"200000" help:"Look up this many keys in each measurement (${default})."`
}

func (demoCmd) Help() string {
	return `Stores Go's own source tree, with a key for each line of each file, and then looks up
lines that do not exist but sort between lines that do: without filters and with them, each time
first with an empty block cache and then with a warm one. It prints what the lookups cost. It takes
less than a minute and about 300MiB of disk space.

Examples:

    sift demo
    sift demo --dir demo-db && sift stats demo-db
    sift demo --tree ~/src/linux`
}

func (c *demoCmd) Run(e *env) (err error) {
	policy := filter.Default()
	if c.Filter != "" {
		if policy, err = parsePolicy(c.Filter); err != nil {
			return err
		}
	}
	if filter.IsNone(policy) {
		return usage(errors.New("--filter none: the demo compares a filter with none"))
	}
	if c.Lookups < 1 || c.KeysLimit < 0 {
		return usage(errors.New("--lookups must be positive, and --keys-limit must not be negative"))
	}
	root := c.Tree
	if root == "" {
		if root, err = goSource(e.ctx); err != nil {
			return err
		}
	}
	dir, remove, err := demoDir(c.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	d := demo{env: e, dir: dir, policy: policy, keys: sample{size: c.Lookups}}
	if err := d.run(root, c.KeysLimit); err != nil {
		return err
	}
	if c.Dir != "" {
		return d.say("\nTo inspect the database: sift stats %s", c.Dir)
	}
	return nil
}

// demoDir returns the directory to use, and a function that removes it if it is temporary.
func demoDir(named string) (dir string, remove func() error, err error) {
	if named == "" {
		dir, err = os.MkdirTemp("", "sift-demo-")
		return dir, func() error { return os.RemoveAll(dir) }, err
	}
	entries, err := os.ReadDir(named)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", nil, err
	}
	if len(entries) > 0 {
		return "", nil, fmt.Errorf("--dir %s: the directory is not empty", named)
	}
	return named, func() error { return nil }, nil
}

// demo stores a source tree and measures lookups.
type demo struct {
	*env
	dir    string
	policy filter.Policy
	keys   sample // of keys that exist
}

// say prints a line and flushes it.
func (d *demo) say(format string, args ...any) error {
	fmt.Fprintf(d.out, format+"\n", args...)
	return d.out.Flush()
}

func (d *demo) run(root string, limit int64) error {
	if err := d.store(root, limit); err != nil {
		return err
	}
	absent := d.keys.between()
	err := d.say("Looking up %s lines that do not exist, such as %s,\nwithout filters and with %s.",
		count(len(absent)), form{}.append(nil, absent[0]), d.policy.Name())
	if err != nil {
		return err
	}
	off, err := d.measure("off", absent, filter.None())
	if err != nil {
		return err
	}
	start := time.Now()
	if err := d.buildFilters(); err != nil {
		return err
	}
	built := time.Since(start)
	on, err := d.measure("on", absent, d.policy)
	if err != nil {
		return err
	}
	if err := d.say("Building the filters rewrote the tables in %.1f s.\n", built.Seconds()); err != nil {
		return err
	}
	return d.report(append(off, on...))
}

// store fills the database, without filters, and compacts it, so that a lookup
// without a filter reads exactly one block.
func (d *demo) store(root string, limit int64) error {
	tree, err := findText(d.ctx, root)
	if err != nil {
		return err
	}
	if err := d.say("Storing %s: %s, %s, a key for each line.", root, amount(len(tree.files), "file"), size(tree.bytes)); err != nil {
		return err
	}
	start := time.Now()
	return d.withDB(d.dir, sift.Options{Filter: filter.None()}, func(db *sift.DB) error {
		n, err := d.load(db, tree, limit)
		if err != nil {
			return err
		}
		stop := d.progress("compacting", -1).watch(func() int64 { return int64(db.Metrics().CompactReadBytes) })
		err = db.Compact(d.ctx, nil, nil)
		stop()
		if err != nil {
			return err
		}
		m, tables := db.Metrics(), 0
		for i := range m.Levels {
			tables += m.Levels[i].Tables
		}
		return d.say("%s in %s of %s, in %.1f s.", amount(n, "line"), amount(tables, "table"), size(levelBytes(db)), time.Since(start).Seconds())
	})
}

// buildFilters gives every table a filter.
func (d *demo) buildFilters() error {
	return d.withDB(d.dir, sift.Options{Filter: d.policy}, func(db *sift.DB) error {
		stop := d.progress("building filters", -1).watch(func() int64 { return int64(db.Metrics().CompactReadBytes) })
		defer stop()
		_, err := db.BuildFilters(d.ctx)
		return err
	})
}

// report prints the figures.
func (d *demo) report(rows []lookups) error {
	t := columns{}
	t.add("filters", "", "block", "bytes")
	t.add("and", "", "reads per", "read per", "µs per", "filter", "FPR", "FPR")
	t.add("cache", "lookups", "1,000", "1,000", "lookup", "bytes", "observed", "expected")
	for _, r := range rows {
		t.add(r.name, count(r.gets), significant(r.perThousand(r.reads)), count(int64(r.perThousand(r.bytes))),
			significant(float64(r.took.Nanoseconds())/1e3/float64(r.gets)), count(r.filterBytes), rate(r.observed), rate(r.expected))
	}
	if err := t.write(d.out); err != nil {
		return err
	}
	off, warm, on := rows[0], rows[1], rows[2]
	saved := "Filters saved no block reads, because there were none."
	if off.reads > 0 {
		saved = fmt.Sprintf("With a cold cache, filters saved %.1f%% of the block reads.", 100*(1-float64(on.reads)/float64(off.reads)))
	}
	return d.say("\n%s They excluded none\n"+
		"of the %s existing keys that were looked up. FPR is the share of absent keys\n"+
		"that a filter does not exclude. The block cache holds 8MiB.%s",
		saved, count(on.present), pageCache(off, warm, on))
}

// pageCache says what the figures show about the page cache. off and warm are without filters, with
// a cold and a warm block cache; on is with filters and a cold one.
func pageCache(off, warm, on lookups) string {
	switch {
	case !off.dropped && !on.dropped && off.fromMemory() && warm.fromMemory():
		return "\nThe files are in the page cache, so a block read costs little more here than\ndecompression."
	case !off.dropped || !on.dropped || off.reads == 0:
		return ""
	case warm.fromMemory():
		return "\nIn the cold rows the page cache starts empty, so block reads wait for the disk;\n" +
			"in the warm ones it holds most of the files."
	}
	return "\nIn the cold rows the page cache starts empty, so block reads wait for the disk."
}

// goSource returns the directory of the source of the Go installation.
func goSource(ctx context.Context) (string, error) {
	root, err := goroot(ctx)
	if err == nil {
		src := filepath.Join(root, "src")
		if _, err = os.Stat(src); err == nil {
			return src, nil
		}
	}
	return "", fmt.Errorf("cannot find Go's source; name another tree with --tree: %w", err)
}
