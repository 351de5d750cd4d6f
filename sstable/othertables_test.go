package sstable

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/siftdb/sift/internal/base"
)

// TestOtherTablesAreNamed checks that errors name the engine and the kind of an unsupported table,
// and the compression of an unsupported block.
func TestOtherTablesAreNamed(t *testing.T) {
	check := func(err error, want string) {
		t.Helper()
		if !errors.Is(err, base.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, c := range []struct {
		magic uint64
		want  string
	}{
		{0x88e241b785f4cff7, "RocksDB table, format_version 5"},
		{0xb3aa9ff0b3aa9ff0, "pebble table, version 5"},
		{0x8242229663bf9564, "RocksDB plain table"},
		{0x4f3418eb7a8f13b8, "RocksDB plain table"},
		{0x926789d0c5f17873, "RocksDB cuckoo table"},
	} {
		b := make([]byte, footerLen)
		binary.LittleEndian.PutUint32(b[footerLen-12:], 5)
		binary.LittleEndian.PutUint64(b[footerLen-8:], c.magic)
		_, _, err := decodeFooter(b, 1000)
		check(err, c.want)
	}
	for i, want := range []string{"zstd of LevelDB or zlib of RocksDB", "bzip2", "lz4", "lz4", "xpress", "zstd", "unknown"} {
		check(unknownType(byte(2+i)), want)
	}
}
