package wal

import (
	"io"

	"github.com/siftdb/sift/internal/record"
	"github.com/siftdb/sift/internal/vfs"
)

// Salvage calls batch with every intact record of a log, and its offset. damage describes the first
// damage. It is nil if the log holds only records and space that sift had preallocated. size is the
// length of the file.
func Salvage(fsys vfs.FS, path string, batch func(payload []byte, offset int64)) (size int64, damage, err error) {
	if size, err = fsys.Size(path); err != nil {
		return 0, nil, err
	}
	f, err := fsys.Open(path)
	if err != nil {
		return 0, nil, err
	}
	defer f.Close()
	in := record.NewReader(f, size, path)
	bySift := false
	for n := 0; ; n++ {
		payload, offset, err := in.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			return size, nil, err
		}
		if n == 0 {
			bySift = isMarker(payload)
		}
		batch(payload, offset)
	}
	tail := in.Tail()
	if tail.Kind == record.Clean || tail.Kind == record.Zeros && bySift {
		return size, nil, nil
	}
	err = in.Salvage(func(payload []byte, offset int64) bool {
		batch(payload, offset)
		return true
	})
	return size, tail.Err, err
}
