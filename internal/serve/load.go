package serve

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/redisbloom"
)

// loadFilters reads the filters of all databases. One that cannot be read is logged and marked as
// damaged: commands on it fail, those on others do not.
func (s *Server) loadFilters() error {
	for db := range numDatabases {
		gen := s.gens[db].Load()
		prefix := appendSpace(nil, spaceName, gen)
		for e, err := range s.db.Scan(&sift.IterOptions{Prefix: prefix}) {
			if err != nil {
				return err
			}
			if len(e.Key) != len(prefix)+8 {
				return errHead
			}
			if err := s.loadNamed(gen, binary.BigEndian.Uint64(e.Key[len(prefix):]), e.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

// loadNamed reads a filter by its name. If the filter or the head of its key cannot be read, it is
// marked as damaged; in the second case its kind is not known.
func (s *Server) loadNamed(gen uint32, id uint64, key []byte) error {
	f := &filter{id: id, name: string(append(appendSpace(nil, spaceHead, gen), key...))}
	err := s.db.View([]byte(f.name), func(v []byte) error {
		h, err := decodeHead(v)
		if err != nil {
			return err
		}
		if h.kind != kindString && binary.BigEndian.Uint64(h.payload) == id {
			f.kind = h.kind
			f.expiry.Store(h.expiry)
		}
		return nil
	})
	if errors.Is(err, sift.ErrNotFound) {
		err = nil
	}
	if err == nil && f.kind == kindNone {
		// Older versions wrote the value that replaced a filter before they removed its name.
		s.cfg.Logger.Warn("removing the name of a filter whose key holds something else", "key", string(key), "filter", id)
		var b sift.Batch
		b.Delete(nameKey(gen, id))
		return s.put(&b)
	}
	if err == nil {
		err = s.loadFilter(f)
	}
	if err != nil {
		s.cfg.Logger.Error("a filter is damaged, commands on it will fail", "key", string(key), "filter", id, "err", err)
		f.damage = fmt.Errorf("ERR the filter is damaged: %w", err)
		f.bloom, f.cuckoo, f.logged = nil, nil, 0 // there is nothing to checkpoint
	}
	s.filterBytes.Add(int64(f.memory()))
	s.stripe(key).filters[f.name] = f
	return nil
}

// loadFilter reads the header, the pages and the redo entries of a filter.
func (s *Server) loadFilter(f *filter) error {
	id := f.id
	value, err := s.db.Get(filterKey(id, partHeader))
	if err != nil {
		return err
	}
	if len(value) < 8 {
		return errHead
	}
	// What is stored was within the limit when it was created.
	const noLimit = 1 << 50
	f.lsn = binary.BigEndian.Uint64(value)
	f.oldest = f.lsn
	if f.kind == kindBloom {
		f.bloom, err = redisbloom.ParseBloom(value[8:], noLimit)
	} else {
		f.cuckoo, err = redisbloom.ParseCuckoo(value[8:], noLimit)
	}
	if err != nil {
		return err
	}
	pages := filterKey(id, partPage)
	for e, err := range s.db.Scan(&sift.IterOptions{Prefix: pages, DontFillCache: true}) {
		if err != nil {
			return err
		}
		if len(e.Key) != len(pages)+6 {
			return errHead
		}
		where := e.Key[len(pages):]
		if err := f.parts().SetPage(int(binary.BigEndian.Uint16(where)), int(binary.BigEndian.Uint32(where[2:])), e.Value); err != nil {
			return err
		}
	}
	redo := filterKey(id, partRedo)
	for e, err := range s.db.Scan(&sift.IterOptions{Prefix: redo, DontFillCache: true}) {
		if err != nil {
			return err
		}
		if len(e.Key) != len(redo)+8 {
			return errHead
		}
		lsn := binary.BigEndian.Uint64(e.Key[len(redo):])
		if f.oldest = min(f.oldest, lsn); lsn < f.lsn {
			continue // a checkpoint has replaced it
		}
		if lsn != f.lsn {
			return fmt.Errorf("%w: a redo entry is missing", errHead)
		}
		if err := f.parts().Replay(e.Value, noLimit); err != nil {
			return err
		}
		f.lsn++
		f.logged += len(e.Value)
	}
	return nil
}
