package sift

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/siftdb/sift/internal/manifest"
)

// tableLoader loads the tables that Open has found, in the background: first all indexes and then
// the filters, which are larger. A read that needs a table earlier loads it itself, but not its
// filter: without it, lookups of absent keys waste block reads.
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
			eachTable(version, d.loader.stop, func(t *table) { t.load() })
			d.divideMemory() // small indexes may have left less for filters
			eachTable(version, d.loader.stop, d.loadAndReport)
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

// eachTable calls load for the tables of a version, for several at a time, level 0 first. It stops
// early when stop is closed. REQUIRES: the version is referenced.
func eachTable(version *manifest.Version, stop <-chan struct{}, load func(*table)) {
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
				runtime.Gosched() // let reads run: loading a table takes 1 ms, a time slice lasts 10 ms
				load(tables[i])
			}
		})
	}
	wg.Wait()
}

// loadAndReport loads a table with its filter. It logs an unreadable table or an unusable filter.
func (d *DB) loadAndReport(t *table) {
	filterErr, err := t.loadWhole()
	if err != nil {
		d.opts.Logger.Error("a table cannot be read", "path", t.path, "err", err)
		d.opts.Events.failed(err)
		return
	}
	if filterErr == nil { // else the filter memory manager tries again
		if _, filterErr = t.reader.Load().FilterStatus(); filterErr == nil {
			return
		}
	}
	d.opts.Logger.Warn("a filter cannot be used", "path", t.path, "err", filterErr)
	d.opts.Events.failed(filterErr)
}

// loadAll loads all tables of the current version, with their filters, that have not been loaded.
func (d *DB) loadAll() {
	version := d.refVersion()
	if version == nil {
		return
	}
	defer d.releaseVersion(version)
	// Each table records its error. The filter memory manager loads filters that cannot be read
	// now.
	eachTable(version, nil, func(t *table) { t.loadWhole() })
}
