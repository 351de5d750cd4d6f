package leveldb

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"strings"
	"sync"

	"github.com/siftdb/sift"
	siftfilter "github.com/siftdb/sift/filter"

	"github.com/syndtr/goleveldb/leveldb/cache"
	"github.com/syndtr/goleveldb/leveldb/comparer"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/storage"
)

// checkComparer returns an error for orders that the store does not support.
func checkComparer(o *opt.Options) error {
	if name := o.GetComparer().Name(); name != comparer.DefaultComparer.Name() {
		return fmt.Errorf("leveldb: comparer %q is not supported: keys are ordered bytewise, as by %q", name, comparer.DefaultComparer.Name())
	}
	return nil
}

func clamp(n, least, most int) int { return min(max(n, least), most) }

// memtablesPerBuffer is the number of memtables in WriteBuffer. The process should take no more
// memory than with goleveldb, which holds up to two write buffers, reuses their memory, and
// reads tables block by block. The store holds up to three memtables, and flushed ones are
// garbage until the next collection.
const memtablesPerBuffer = 3

// storeOptions derives the store's options from o. The caller must release the block cache.
// Tables are not memory-mapped, which also saves memory.
func storeOptions(o *opt.Options, stor storage.Storage) (so *sift.Options, blocks *sharedCache) {
	so = &sift.Options{
		ReadOnly:           o.GetReadOnly(),
		ErrorIfExists:      o.GetErrorIfExist() && !o.GetReadOnly(),
		ErrorIfMissing:     o.GetErrorIfMissing(),
		MemtableBytes:      clamp(o.GetWriteBuffer()/memtablesPerBuffer, 1<<10, 1<<30),
		TableBytes:         tableBytes(o),
		BlockBytes:         clamp(o.GetBlockSize(), 64, 4<<20),
		LevelBaseBytes:     levelBaseBytes(o),
		LevelMultiplier:    10,
		L0Tables:           clamp(memtablesPerBuffer*clamp(o.GetCompactionL0Trigger(), 0, 1000), 1, 1000),
		MapBytes:           -1,
		MaxOpenFiles:       max(o.GetOpenFilesCacheCapacity(), 1),
		DisableCompression: o.GetCompression() == opt.NoCompression,
		Logger:             slog.New(storageLog{stor: stor}),
	}
	if o != nil && o.CompactionTotalSizeMultiplier > 0 {
		so.LevelMultiplier = clamp(int(math.Round(min(o.CompactionTotalSizeMultiplier, 1000))), 2, 1000)
	}
	if bits, ok := filter.BitsPerKey(o.GetFilter()); ok && bits > 0 {
		so.Filter = siftfilter.Ribbon(float64(bits))
	}
	so.CacheBytes = -1
	if blocks = blockCache(o); blocks != nil {
		so.BlockCache = blocks.cache
	}
	return so, blocks
}

// levelBaseBytes returns the size of level 1. If the product does not fit into an int64, it is
// negative on some systems; it means no limit.
func levelBaseBytes(o *opt.Options) int64 {
	n := o.GetCompactionTotalSize(1)
	if n < 0 {
		return math.MaxInt64
	}
	return max(n, 1<<10)
}

// tableBytes returns the size of tables; see levelBaseBytes about negative sizes.
func tableBytes(o *opt.Options) int {
	n := o.GetCompactionTableSize(1)
	if n < 0 {
		n = 1 << 30
	}
	return clamp(n, 1<<10, 1<<30)
}

// sharedCache is the block cache of all databases with the same cache.Cacher.
type sharedCache struct {
	cacher cache.Cacher // nil if it cannot be compared: then one database has the cache
	cache  *sift.BlockCache
	users  int
}

var sharedCaches struct {
	sync.Mutex
	by map[cache.Cacher]*sharedCache
}

// blockCache returns the block cache for a database, nil for none.
func blockCache(o *opt.Options) *sharedCache {
	if o.GetDisableBlockCache() || o.GetBlockCacheCapacity() == 0 {
		return nil
	}
	cacher := o.GetBlockCacher().New(o.GetBlockCacheCapacity())
	if cacher == nil || cacher.Capacity() <= 0 {
		return nil
	}
	if !reflect.ValueOf(cacher).Comparable() { // cannot be recognized again
		return &sharedCache{cache: sift.NewBlockCache(int64(cacher.Capacity()))}
	}
	sharedCaches.Lock()
	defer sharedCaches.Unlock()
	c := sharedCaches.by[cacher]
	if c == nil {
		c = &sharedCache{cacher: cacher, cache: sift.NewBlockCache(int64(cacher.Capacity()))}
		if sharedCaches.by == nil {
			sharedCaches.by = map[cache.Cacher]*sharedCache{}
		}
		sharedCaches.by[cacher] = c
	}
	c.users++
	return c
}

// release drops the cache when its last user releases it.
func (c *sharedCache) release() {
	if c == nil || c.cacher == nil {
		return
	}
	sharedCaches.Lock()
	defer sharedCaches.Unlock()
	if c.users--; c.users == 0 {
		delete(sharedCaches.by, c.cacher)
	}
}

// storageLog passes the store's messages to the storage's log.
type storageLog struct {
	stor  storage.Storage
	attrs string
}

// Enabled implements slog.Handler.
func (storageLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle implements slog.Handler.
func (l storageLog) Handle(_ context.Context, r slog.Record) error {
	var line strings.Builder
	line.WriteString(r.Message + l.attrs)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&line, " %s=%v", a.Key, a.Value)
		return true
	})
	l.stor.Log(line.String())
	return nil
}

// WithAttrs implements slog.Handler.
func (l storageLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		l.attrs += fmt.Sprintf(" %s=%v", a.Key, a.Value)
	}
	return l
}

// WithGroup implements slog.Handler.
func (l storageLog) WithGroup(string) slog.Handler { return l }
