package engine

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/golang/snappy"
)

// tableFilterBytes returns the total size of the filter blocks of all tables in a LevelDB
// directory, according to their metaindex blocks; -1 if a table cannot be read.
func tableFilterBytes(dir string) int64 {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return -1
	}
	var sum int64
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext != ".ldb" && ext != ".sst" {
			continue
		}
		n, err := filterBlockBytes(filepath.Join(dir, e.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // a compaction has deleted it
		}
		if err != nil {
			return -1
		}
		sum += n
	}
	return sum
}

const (
	tableFooterLen = 48
	blockTrailer   = 5 // compression 1, checksum 4
)

var errTable = errors.New("not a table")

func filterBlockBytes(path string) (int64, error) {
	table, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	if len(table) < tableFooterLen {
		return 0, errTable
	}
	off, size, _ := blockHandle(table[len(table)-tableFooterLen:])
	if off > uint64(len(table)) || size > uint64(len(table))-off || size+1 > uint64(len(table))-off {
		return 0, errTable
	}
	block := table[off : off+size]
	if table[off+size] == 1 {
		if block, err = snappy.Decode(nil, block); err != nil {
			return 0, err
		}
	}
	return filterHandleSize(block)
}

// filterHandleSize returns the size of the filter block, trailer included, that
// a metaindex block names; 0 if it names none.
func filterHandleSize(block []byte) (int64, error) {
	if len(block) < 4 {
		return 0, errTable
	}
	restarts := binary.LittleEndian.Uint32(block[len(block)-4:])
	end := int64(len(block)) - 4*(int64(restarts)+1)
	if end < 0 {
		return 0, errTable
	}
	block = block[:end]
	var name []byte
	for len(block) > 0 {
		var lens [3]uint64 // shared, unshared, value
		for i := range lens {
			v, n := binary.Uvarint(block)
			if n <= 0 {
				return 0, errTable
			}
			lens[i], block = v, block[n:]
		}
		if lens[0] > uint64(len(name)) || lens[1] > uint64(len(block)) || lens[2] > uint64(len(block))-lens[1] {
			return 0, errTable
		}
		name = append(name[:lens[0]], block[:lens[1]]...)
		value := block[lens[1] : lens[1]+lens[2]]
		block = block[lens[1]+lens[2]:]
		if strings.HasPrefix(string(name), "filter.") {
			_, size, ok := blockHandle(value)
			if !ok {
				return 0, errTable
			}
			return int64(size) + blockTrailer, nil
		}
	}
	return 0, nil
}

func blockHandle(b []byte) (off, size uint64, ok bool) {
	off, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, 0, false
	}
	size, m := binary.Uvarint(b[n:])
	return off, size, m > 0
}
