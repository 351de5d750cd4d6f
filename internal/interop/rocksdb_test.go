package interop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/siftdb/sift"
	sfilter "github.com/siftdb/sift/filter"
)

// TestRocksDB has RocksDB's sst_dump read tables that sift wrote: it verifies
// every checksum and lists the entries.
func TestRocksDB(t *testing.T) {
	sstDump, err := exec.LookPath("sst_dump")
	if err != nil {
		t.Skip("sst_dump of rocksdb-tools is not installed")
	}
	for _, policy := range []sfilter.Policy{sfilter.None(), sfilter.Bloom(10), sfilter.RocksDBBloom(10)} {
		t.Run(policy.Name(), func(t *testing.T) {
			dir := t.TempDir()
			db, err := sift.Open(dir, &sift.Options{Filter: policy})
			if err != nil {
				t.Fatal(err)
			}
			const keys = 2000
			for i := range keys {
				if err := db.Put(fmt.Appendf(nil, "key%05d", i), fmt.Appendf(nil, "value %d", i), sift.NoSync); err != nil {
					t.Fatal(err)
				}
			}
			if err := db.Compact(context.Background(), nil, nil); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			tables, err := filepath.Glob(filepath.Join(dir, "*.ldb"))
			if err != nil || len(tables) != 1 {
				t.Fatal(tables, err)
			}
			sst := strings.TrimSuffix(tables[0], ".ldb") + ".sst" // sst_dump requires this extension
			if err := os.Link(tables[0], sst); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command(sstDump, "--file="+sst, "--command=verify").CombinedOutput()
			if err != nil || !bytes.Contains(out, []byte("The file is ok")) {
				t.Errorf("sst_dump verify: %v\n%s", err, out)
			}
			out, err = exec.Command(sstDump, "--file="+sst, "--command=scan", "--output_hex", "--show_properties").CombinedOutput()
			if err != nil {
				t.Fatalf("sst_dump scan: %v\n%s", err, out)
			}
			n := 0
			line := regexp.MustCompile(`^'([0-9A-F]+)' seq:\d+, type:1 => ([0-9A-F]+)$`)
			in := bufio.NewScanner(bytes.NewReader(out))
			for in.Scan() {
				m := line.FindStringSubmatch(in.Text())
				if m == nil {
					continue
				}
				key, _ := hex.DecodeString(m[1])
				value, _ := hex.DecodeString(m[2])
				if string(key) != fmt.Sprintf("key%05d", n) || string(value) != fmt.Sprintf("value %d", n) {
					t.Fatalf("entry %d is %q = %q", n, key, value)
				}
				n++
			}
			if n != keys {
				t.Errorf("sst_dump listed %d entries; want %d\n%.2000s", n, keys, out)
			}
		})
	}
}
