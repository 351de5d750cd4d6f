package sift

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/siftdb/sift/internal/manifest"
)

// tableLoader loads the tables that Open has found, in the background. A read that needs a table
// earlier loads it itself.
type tableLoader struct {
	stop, done chan struct{}
}

// numLoaders is the number of tables that are loaded concurrently.
const numLoaders = 4

// startLoader starts loading the tables of the current version.
func (d *DB) startLoader() {
	version := d.refVersion()
	load := func() {
		defer d.loader.end(d)
		if !d.opts.loadLate {
			loadTables(version, d.loader.stop, d.reportTable)
		}
		d.releaseVersion(version)
	}
	if !d.opts.cleanNow && !d.opts.loadLate {
		go load()
		return
	}
	load()
	d.filterManager.Rebalance(math.MaxInt64)
}

// end records that loading has ended, and wakes the compacting goroutine, whose choice
// depends on the tables' properties.
func (l *tableLoader) end(d *DB) { d.bg.change(func() { close(l.done) }) }

// ended reports whether loading has ended.
func (l *tableLoader) ended() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// close stops the loader, and waits for the tables that it is loading.
func (l *tableLoader) close() {
	close(l.stop)
	<-l.done
}

// loadTables loads the tables of a version concurrently, level 0 first, and calls loaded for
// each, possibly concurrently. It stops early when stop is closed. REQUIRES: the version is
// referenced.
func loadTables(version *manifest.Version, stop <-chan struct{}, loaded func(*table, error)) {
	var tables []*table
	for _, metas := range version.Levels {
		for _, meta := range metas {
			tables = append(tables, meta.Handle.(*table))
		}
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(numLoaders, len(tables)) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(tables) {
					return
				}
				select {
				case <-stop:
					return
				default:
				}
				runtime.Gosched() // reads first: a table takes a millisecond, a time slice ten
				_, err := tables[i].load()
				loaded(tables[i], err)
			}
		})
	}
	wg.Wait()
}

// reportTable logs an unreadable table or an unusable filter.
func (d *DB) reportTable(t *table, err error) {
	if err != nil {
		d.opts.Logger.Error("a table cannot be read", "path", t.path, "err", err)
		d.opts.Events.failed(err)
	} else if t.filterDamaged() {
		_, reason := t.reader.Load().FilterStatus()
		d.opts.Logger.Warn("a filter cannot be used", "path", t.path, "err", reason)
		d.opts.Events.failed(reason)
	}
}

// loadAll loads all tables of the current version that have not been loaded.
func (d *DB) loadAll() {
	version := d.refVersion()
	if version == nil {
		return
	}
	defer d.releaseVersion(version)
	loadTables(version, nil, func(*table, error) {}) // each table records its error
}
