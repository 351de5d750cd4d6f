package sift

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// TestRepairOpensFewTables checks that Repair has few of many tables open at the same time, with
// and without the MANIFEST, and reports damage before a table's first readable entry once.
func TestRepairOpensFewTables(t *testing.T) {
	for _, damaged := range []bool{false, true} {
		mem := vfstest.NewMem()
		o := uncached(mem)
		o.TableBytes, o.BlockBytes, o.DisableAutoCompaction = 1<<10, 64, true
		db := mustOpen(t, "db", o)
		const keys = 3000
		loadKeys(t, db, keys)
		if err := db.Compact(t.Context(), nil, nil); err != nil {
			t.Fatal(err)
		}
		tables := db.Tables()
		mustClose(t, db)
		if len(tables) < 30 {
			t.Fatalf("only %d tables", len(tables))
		}
		if damaged {
			if err := mem.Remove(filepath.Join("db", manifest.MakeName(manifest.KindCurrent, 0))); err != nil {
				t.Fatal(err)
			}
			path := tables[len(tables)/2].Path
			b := readFile(t, mem, path)
			b[10] ^= 1 // in the first block
			writeFile(t, mem, path, b)
		}
		faulty := vfstest.Inject(mem)
		most, opened := 0, map[string]int{}
		faulty.SetHook(func(op vfstest.Op) error {
			if op.Kind == vfstest.OpOpen {
				opened[op.Name]++
			}
			n := 0
			for _, name := range faulty.OpenFiles() {
				if strings.HasSuffix(name, ".ldb") {
					n++
				}
			}
			most = max(most, n)
			return nil
		})
		o.FS = faulty
		o.TableBytes = 1 << 20 // the new tables are few
		report, err := Repair("db", o)
		if err != nil {
			t.Fatal(err)
		}
		if most > 5 {
			t.Errorf("damaged %v: %d of %d tables were open at once", damaged, most, len(tables))
		}
		for _, table := range tables {
			if n := opened[table.Path]; n > 2 {
				t.Errorf("damaged %v: %s was opened %d times", damaged, table.Path, n)
			}
		}
		faults := 0
		for _, err := range report.Dropped {
			if strings.Contains(err.Error(), "data block") {
				faults++
				if !errors.Is(err, ErrCorruption) {
					t.Error(err)
				}
			}
		}
		least := uint64(keys)
		if damaged {
			least -= 10
		}
		lost := report.Entries < keys
		if (faults == 1) != damaged || lost != damaged || report.Entries < least {
			t.Errorf("damaged %v: %d entries, dropped %v", damaged, report.Entries, report.Dropped)
		}
		o.FS = mem
		db = mustOpen(t, "db", o)
		if n := countKeys(t, db); uint64(n) != report.Entries {
			t.Errorf("damaged %v: %d keys, Repair reported %d", damaged, n, report.Entries)
		}
		mustClose(t, db)
	}
}
