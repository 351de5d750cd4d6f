package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/fixtures"
	"github.com/siftdb/sift/internal/record"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// describe prints a state on a few lines.
func describe(s *State) string {
	var b strings.Builder
	fmt.Fprintf(&b, "log %d prev %d next %d seq %d\n", s.LogNumber, s.PrevLogNum, s.NextFile, s.LastSeq)
	for level, tables := range s.Version.Levels {
		if s.Pointers[level] != nil {
			fmt.Fprintf(&b, "L%d from %q\n", level, s.Pointers[level])
		}
		for _, t := range tables {
			fmt.Fprintf(&b, "L%d %v\n", level, t)
		}
	}
	return b.String()
}

func writeFiles(t testing.TB, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// manifestOf returns the bytes of a MANIFEST with the edits.
func manifestOf(t testing.TB, edits ...*Edit) string {
	t.Helper()
	var encoded [][]byte
	for _, e := range edits {
		encoded = append(encoded, e.appendTo(nil))
	}
	return logOf(t, encoded...)
}

func logOf(t testing.TB, records ...[]byte) string {
	t.Helper()
	var b bytes.Buffer
	w := record.NewWriter(&b)
	for _, r := range records {
		if err := w.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func readGolden(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestLoadGolden reads MANIFESTs that LevelDB 1.23 and goleveldb 1.0.0 wrote.
func TestLoadGolden(t *testing.T) {
	for _, tc := range []struct {
		file string
		want string
	}{
		{"leveldb-medium-MANIFEST-000010", `log 12 prev 0 next 13 seq 2849
L0 000011 19557 ["key00000000".."key00001998"]
L0 000008 9208 ["key00001642".."key00001999"]
L0 000007 21170 ["key00000821".."key00001641"]
L2 000005 21562 ["key00000000".."key00000820"]
`},
		{"leveldb-race-MANIFEST-000002", `log 6 prev 0 next 8 seq 2600
L1 000007 26217 ["key00000001".."key00003992"]
L2 000005 26126 ["key00000000".."key00003999"]
`},
		{"goleveldb-medium-MANIFEST-000009", `log 8 prev 0 next 10 seq 2851
L0 000007 19553 ["key00000000".."key00001998"]
L0 000005 16854 ["key00001337".."key00001999"]
L0 000003 34882 ["key00000000".."key00001336"]
`},
	} {
		_, name, _ := strings.Cut(tc.file, "-MANIFEST-")
		content := readGolden(t, tc.file)
		dir := writeFiles(t, map[string]string{"CURRENT": "MANIFEST-" + name + "\n", "MANIFEST-" + name: content})
		s, err := Load(vfs.OS, dir)
		if err != nil {
			t.Errorf("%s: %v", tc.file, err)
			continue
		}
		if got := describe(s); got != tc.want || s.Dropped != nil {
			t.Errorf("%s:\n%s\nwant\n%s\ndropped: %v", tc.file, got, tc.want, s.Dropped)
		}
	}
}

// TestEditGolden checks that encoding LevelDB's edits again gives the bytes that LevelDB wrote,
// including the framing of the log.
func TestEditGolden(t *testing.T) {
	for _, file := range []string{"leveldb-medium-MANIFEST-000010", "leveldb-race-MANIFEST-000002"} {
		var edits []*Edit
		dropped, err := readEdits(vfs.OS, filepath.Join("testdata", file), func(e *Edit, _ int64) error {
			edits = append(edits, e)
			return nil
		})
		if err != nil || dropped != nil || len(edits) < 2 {
			t.Fatalf("%s: %d edits, %v, %v", file, len(edits), dropped, err)
		}
		if got, want := manifestOf(t, edits...), readGolden(t, file); got != want {
			t.Errorf("%s: encoded again\n% x\nwant\n% x", file, got, want)
		}
	}
}

// TestFixtures loads every database of the fixtures.
func TestFixtures(t *testing.T) {
	n := 0
	err := filepath.WalkDir(fixtures.Dir(t), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		manifests, err := filepath.Glob(filepath.Join(path, "MANIFEST-*"))
		if err != nil || len(manifests) == 0 {
			return err
		}
		n++
		s, err := Load(vfs.OS, path)
		switch base := filepath.Base(path); base {
		case "cpp-current-dangling", "cpp-current-missing", "cpp-current-nonl":
			wantCorruption(t, path, err, filepath.Join(path, "CURRENT"), "Repair")
		case "cpp-manifest-flip":
			wantCorruption(t, path, err, filepath.Join(path, "MANIFEST-000010"), "checksum")
		case "cpp-manifest-trunc":
			wantCorruption(t, path, err, filepath.Join(path, "MANIFEST-000010"), "no log number")
		default:
			if err != nil || s.Dropped != nil {
				t.Errorf("%s: %v, dropped %v", path, err, s.Dropped)
				return nil
			}
			for _, tables := range s.Version.Levels {
				for _, table := range tables {
					info, err := os.Stat(filepath.Join(path, MakeName(KindTable, table.Num)))
					if damaged := base == "cpp-table-missing" || base == "cpp-table-empty" || base == "cpp-table-truncated"; damaged {
						continue
					}
					// The tables of superset/ were rewritten with other sizes.
					if err != nil || uint64(info.Size()) != table.Size && !strings.Contains(path, "superset") {
						t.Errorf("%s: table %v: %v", path, table, err)
					}
				}
			}
		}
		return nil
	})
	if err != nil || n < 30 {
		t.Fatalf("%d databases, %v", n, err)
	}
}

func wantCorruption(t *testing.T, desc string, err error, path, text string) {
	t.Helper()
	var c *base.CorruptionError
	if !errors.As(err, &c) || !errors.Is(err, base.ErrCorruption) || c.Path != path || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: got %v, want corruption of %s that contains %q", desc, err, path, text)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNoDatabase) {
		t.Errorf("%s: %v passes for a missing database", desc, err)
	}
}

func counters() *Edit {
	return &Edit{LogNumber: ptr(uint64(3)), NextFile: ptr(uint64(9)), LastSeq: ptr(uint64(100))}
}

func TestLoadAddsUp(t *testing.T) {
	first := counters()
	first.Comparator = ptr(comparatorName)
	first.Pointers = []Pointer{{1, key("a", 1)}, {2, key("b", 1)}}
	second := add(1, meta(20, key("a", 1), key("b", 1)))
	second.LogNumber, second.Pointers = ptr(uint64(30)), []Pointer{{1, key("c", 1)}}
	dir := writeFiles(t, map[string]string{"CURRENT": "MANIFEST-000008\n", "MANIFEST-000008": manifestOf(t, first, second)})
	s, err := Load(vfs.OS, dir)
	if err != nil {
		t.Fatal(err)
	}
	want := "log 30 prev 0 next 31 seq 100\nL1 from \"c\\x01\\x01\\x00\\x00\\x00\\x00\\x00\\x00\"\nL1 000020 200 [\"a\"..\"b\"]\nL2 from \"b\\x01\\x01\\x00\\x00\\x00\\x00\\x00\\x00\"\n"
	if got := describe(s); got != want || s.Num != 8 {
		t.Errorf("MANIFEST %d:\n%s\nwant\n%s", s.Num, got, want)
	}
	// The next file number is above all that the MANIFEST names, whatever the MANIFEST gives.
	third := add(1, meta(40, key("c", 1), key("d", 1)))
	dir = writeFiles(t, map[string]string{"CURRENT": "MANIFEST-000008\n", "MANIFEST-000008": manifestOf(t, first, second, third)})
	if s, err = Load(vfs.OS, dir); err != nil || s.NextFile != 41 {
		t.Errorf("next file %d after table 40, %v", s.NextFile, err)
	}
}

func TestLoadRefuses(t *testing.T) {
	other := counters()
	other.Comparator = ptr("rocksdb.ReverseBytewiseComparator")
	overlap := add(3, meta(4, key("a", 1), key("c", 1)), meta(5, key("b", 1), key("d", 1)))
	for _, tc := range []struct {
		desc, manifest, text string
		unsupported          bool
	}{
		{"an empty file", "", "no edit", false},
		{"zeros", strings.Repeat("\x00", 100), "no edit", false},
		{"only counters missing", manifestOf(t, add(0, meta(5, key("a", 1), key("b", 1)))), "no log number", false},
		{"no next file number", manifestOf(t, &Edit{LogNumber: ptr(uint64(1))}), "no next file number", false},
		{"no last sequence", manifestOf(t, &Edit{LogNumber: ptr(uint64(1)), NextFile: ptr(uint64(1))}), "no last sequence", false},
		{"another comparator", manifestOf(t, other), "rocksdb.ReverseBytewiseComparator", true},
		{"a level too many", logOf(t, []byte{6, 0x80, 0x80, 4, 1}), "level 65536", true},
		{"a foreign field", logOf(t, []byte{0x64, 0x00}), "tag 100", true},
		{"overlapping tables", manifestOf(t, counters(), overlap), "000004 and 000005 of level 3 overlap", false},
		{"an unknown table deleted", manifestOf(t, counters(), &Edit{Deleted: []DeletedTable{{2, 77}}}), "000077", false},
		{"garbage in an edit", logOf(t, counters().appendTo(nil), []byte{2}), "ends too early", false},
	} {
		dir := writeFiles(t, map[string]string{"CURRENT": "MANIFEST-000008\n", "MANIFEST-000008": tc.manifest})
		_, err := Load(vfs.OS, dir)
		if tc.unsupported {
			if !errors.Is(err, base.ErrUnsupported) || errors.Is(err, base.ErrCorruption) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("%s: %v", tc.desc, err)
			}
			continue
		}
		wantCorruption(t, tc.desc, err, filepath.Join(dir, "MANIFEST-000008"), tc.text)
	}
}

// TestDamage cuts a MANIFEST at each length and changes each byte in several ways. A cut one loads
// as the state after its whole edits, and a partial edit is reported. A changed byte is an error,
// unless it is in the last edit: then that edit is omitted and reported.
func TestDamage(t *testing.T) {
	edits := []*Edit{counters(), add(0, meta(4, key("a", 1), key("b", 1))), add(1, meta(5, key("c", 1), key("d", 1)))}
	content := manifestOf(t, edits...)
	lastAt := len(manifestOf(t, edits[:2]...))
	states := make(map[string]int) // descriptions of the states after 1, 2 and 3 edits
	load := func(content string) (edits int, dropped error, err error) {
		dir := writeFiles(t, map[string]string{"CURRENT": "MANIFEST-000001\n", "MANIFEST-000001": content})
		defer os.RemoveAll(dir)
		s, err := Load(vfs.OS, dir)
		if err != nil {
			var c *base.CorruptionError
			if !errors.As(err, &c) || c.Path != filepath.Join(dir, "MANIFEST-000001") {
				t.Errorf("error without the path: %v", err)
			}
			return 0, nil, err
		}
		n, ok := states[describe(s)]
		if !ok && len(states) == 3 {
			t.Errorf("a state that never existed:\n%s", describe(s))
		}
		if !ok {
			n = len(states) + 1
			states[describe(s)] = n
		}
		return n, s.Dropped, nil
	}
	var ends []int
	for n := range edits {
		c := manifestOf(t, edits[:n+1]...)
		ends = append(ends, len(c))
		if got, dropped, err := load(c); got != n+1 || dropped != nil || err != nil {
			t.Fatalf("%d edits: %d, %v, %v", n+1, got, dropped, err)
		}
	}
	for n := range len(content) {
		want := 0
		for want < len(ends) && ends[want] <= n {
			want++
		}
		got, dropped, err := load(content[:n])
		atEnd := want > 0 && ends[want-1] == n
		if got != want || (err == nil) != (want > 0) || err == nil && (dropped == nil) != atEnd {
			t.Errorf("cut to %d bytes: %d edits, want %d, dropped %v, %v", n, got, want, dropped, err)
		}
	}
	for i := range len(content) {
		for _, change := range []func(b byte) byte{
			func(b byte) byte { return b ^ 0x01 }, func(b byte) byte { return b ^ 0x80 },
			func(b byte) byte { return b ^ 0xff }, func(b byte) byte { return 0 },
		} {
			damaged := []byte(content)
			damaged[i] = change(damaged[i])
			if damaged[i] == content[i] {
				continue
			}
			got, dropped, err := load(string(damaged))
			if i < lastAt && err == nil || i >= lastAt && (got != 2 || dropped == nil) {
				t.Errorf("byte %d = %02x: %d edits, dropped %v, %v", i, damaged[i], got, dropped, err)
			}
		}
	}
}

// TestDamageOfLongEdit clears part of one block of an edit over three blocks, as a crash may: the
// edit is dropped, unless another edit after it proves that it was finished.
func TestDamageOfLongEdit(t *testing.T) {
	long := new(Edit)
	for i := range uint64(1500) {
		k := fmt.Sprintf("%050d", i)
		long.Added = append(long.Added, AddedTable{0, meta(i+10, key(k, 1), key(k, 0))})
	}
	content := []byte(manifestOf(t, counters(), long))
	if len(content) < 3*record.BlockSize {
		t.Fatalf("%d bytes", len(content))
	}
	for block := range 3 {
		damaged := bytes.Clone(content)
		clear(damaged[max(block*record.BlockSize, 100):][:1000])
		dir := writeFiles(t, map[string]string{"CURRENT": "MANIFEST-000001\n", "MANIFEST-000001": string(damaged)})
		if s, err := Load(vfs.OS, dir); err != nil || s.Dropped == nil || s.Version.NumTables() != 0 {
			t.Errorf("block %d of an unfinished edit: %v", block, err)
		}
		// The same with an edit after it, which proves that it was finished.
		damaged = []byte(manifestOf(t, counters(), long, counters()))
		clear(damaged[max(block*record.BlockSize, 100):][:1000])
		dir = writeFiles(t, map[string]string{"CURRENT": "MANIFEST-000001\n", "MANIFEST-000001": string(damaged)})
		_, err := Load(vfs.OS, dir)
		wantCorruption(t, fmt.Sprintf("block %d of a finished edit", block), err, filepath.Join(dir, "MANIFEST-000001"), "offset")
	}
}

// TestDamagedCurrent checks that the error names CURRENT as damaged if it names no MANIFEST.
func TestDamagedCurrent(t *testing.T) {
	for _, content := range []string{"", "\n", "MANIFEST-000001", "MANIFEST-x\n", "000001.ldb\n", "MANIFEST-000001\n\n"} {
		dir := writeFiles(t, map[string]string{"CURRENT": content, "MANIFEST-000001": manifestOf(t, counters())})
		_, err := Load(vfs.OS, dir)
		wantCorruption(t, fmt.Sprintf("%q", content), err, filepath.Join(dir, "CURRENT"), "Repair")
	}
}

// TestManifestMissing checks that a CURRENT whose MANIFEST is gone is damage, not an empty
// directory.
func TestManifestMissing(t *testing.T) {
	for other, advice := range map[string]string{"000005.log": "Repair", "LOCK": "remove CURRENT"} {
		dir := writeFiles(t, map[string]string{"CURRENT": "MANIFEST-000001\n", other: ""})
		_, err := Load(vfs.OS, dir)
		wantCorruption(t, "no MANIFEST", err, filepath.Join(dir, "CURRENT"), "MANIFEST-000001, which does not exist; ")
		wantCorruption(t, "no MANIFEST, but "+other, err, filepath.Join(dir, "CURRENT"), advice)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNoDatabase) {
			t.Errorf("reported as a missing database: %v", err)
		}
	}
}

// TestUnreadableBehindDamage fails each read of a damaged MANIFEST: Load must return the error,
// since what it could not read may be a whole edit after the damage.
func TestUnreadableBehindDamage(t *testing.T) {
	long := new(Edit)
	for i := range uint64(1500) {
		k := fmt.Sprintf("%050d", i)
		long.Added = append(long.Added, AddedTable{0, meta(i+10, key(k, 1), key(k, 0))})
	}
	content := []byte(manifestOf(t, counters(), counters(), long, counters()))
	content[len(manifestOf(t, counters()))+8] ^= 1
	dir := writeFiles(t, map[string]string{"CURRENT": "MANIFEST-000001\n", "MANIFEST-000001": string(content)})
	path := filepath.Join(dir, "MANIFEST-000001")
	failed := 0
	for at := 0; ; at++ {
		faulty := vfstest.Inject(vfs.OS)
		reads := 0
		faulty.SetFaults(vfstest.Fault{Index: -1, Match: func(op vfstest.Op) bool {
			if op.Kind == vfstest.OpReadAt && op.Name == path {
				reads++
			}
			return reads == at+1
		}})
		_, err := Load(faulty, dir)
		if reads <= at {
			wantCorruption(t, "an edit before others", err, path, "offset")
			break
		}
		if failed++; !errors.Is(err, syscall.EIO) {
			t.Errorf("read %d fails: %v", at, err)
		}
	}
	if failed < 3 {
		t.Errorf("%d reads failed", failed)
	}
}

func TestParseName(t *testing.T) {
	for _, tc := range []struct {
		name string
		kind FileKind
		num  uint64
	}{
		{"CURRENT", KindCurrent, 0},
		{"LOCK", KindLock, 0},
		{"LOG", KindInfoLog, 0},
		{"FILTERKEY", KindFilterKey, 0},
		{"MANIFEST-000007", KindManifest, 7},
		{"000000.log", KindLog, 0},
		{"123456.ldb", KindTable, 123456},
		{"1234567.sst", KindTableSST, 1234567},
		{"000100.dbtmp", KindTemp, 100},
		{"4611686018427387903.ldb", KindTable, maxFileNum},
	} {
		kind, num, ok := ParseName(tc.name)
		if !ok || kind != tc.kind || num != tc.num {
			t.Errorf("ParseName(%q) = %d, %d, %v", tc.name, kind, num, ok)
		}
		if got := MakeName(tc.kind, tc.num); got != tc.name {
			t.Errorf("MakeName(%d, %d) = %q, want %q", tc.kind, tc.num, got, tc.name)
		}
	}
	// LevelDB accepts any number of digits.
	if kind, num, ok := ParseName("7.ldb"); kind != KindTable || num != 7 || !ok {
		t.Error("7.ldb")
	}
	for _, name := range []string{
		"", "CURRENT.bak", "current", "MANIFEST", "MANIFEST-", "MANIFEST-x", "MANIFEST-3.log", "MANIFEST--3",
		".log", "abc.log", "-1.log", "+1.log", "1.2.log", "1_0.log", "000001.LDB", "000001.ldb.bak", "000001", "١.ldb",
		"4611686018427387904.ldb", "18446744073709551616.ldb", "100000000000000000000.log",
	} {
		if kind, num, ok := ParseName(name); ok {
			t.Errorf("ParseName(%q) = %d, %d", name, kind, num)
		}
	}
}

func TestMakeNameRefuses(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("an unknown kind has a name")
		}
	}()
	MakeName(KindFilterKey+1, 1)
}

func TestCurrent(t *testing.T) {
	if num, err := decodeCurrent(unhex(t, "4d414e49464553542d3030303031300a")); num != 10 || err != nil {
		t.Fatalf("the example is %d, %v", num, err)
	}
	for _, content := range []string{
		"", "\n", "MANIFEST-000001", "MANIFEST-000001\r\n", "MANIFEST-000001\n\n", "MANIFEST-1\n", "MANIFEST-\n",
		"MANIFEST-0000001\n", " MANIFEST-000001\n", "000001.ldb\n", "../MANIFEST-000001\n", "MANIFEST-000001\nMANIFEST-000002\n",
		strings.Repeat("M", 1000) + "\n", "MANIFEST-" + strings.Repeat("0", 54) + "\n", "\x00\x00\x00\n",
	} {
		dir := writeFiles(t, map[string]string{"CURRENT": content})
		_, err := Load(vfs.OS, dir)
		wantCorruption(t, fmt.Sprintf("%q", content), err, filepath.Join(dir, "CURRENT"), "remove CURRENT")
	}
}

func TestCurrentMissing(t *testing.T) {
	empty := manifestOf(t, counters())
	tables := manifestOf(t, counters(), add(0, meta(4, key("a", 1), key("b", 1))))
	for _, tc := range []struct {
		files map[string]string
		found string // "" if a database may be created in the directory
	}{
		{nil, ""},
		{map[string]string{"LOCK": "", "LOG": "hello", "notes.txt": "mine", "000001.dbtmp": "x"}, ""},
		{map[string]string{"000003.log": "", "MANIFEST-000001": ""}, ""},
		{map[string]string{"MANIFEST-000001": empty}, ""},
		{map[string]string{"MANIFEST-000001": empty[:10]}, ""},
		{map[string]string{"MANIFEST-000001": empty, "MANIFEST-000002": tables}, "MANIFEST-000002"},
		{map[string]string{"MANIFEST-000002": logOf(t, []byte{tagLogNumber})}, ""}, // an edit without its number
		{map[string]string{"000003.log": "x"}, "000003.log"},
		{map[string]string{"000003.ldb": ""}, "000003.ldb"},
		{map[string]string{"000003.sst": ""}, "000003.sst"},
	} {
		dir := writeFiles(t, tc.files)
		_, err := Load(vfs.OS, dir)
		if tc.found != "" {
			wantCorruption(t, fmt.Sprint(tc.files), err, filepath.Join(dir, "CURRENT"), tc.found+" exists; Repair")
		} else if !errors.Is(err, ErrNoDatabase) || errors.Is(err, base.ErrCorruption) {
			t.Errorf("%v: %v", tc.files, err)
		}
	}
	if _, err := Load(vfs.OS, filepath.Join(t.TempDir(), "missing")); !errors.Is(err, ErrNoDatabase) {
		t.Errorf("no directory: %v", err)
	}
}

// TestLoadOtherPrograms checks that a MANIFEST of another program is reported as such, whatever
// CURRENT names: pebble keeps none, or lets it name MANIFEST-000000, which does not exist.
func TestLoadOtherPrograms(t *testing.T) {
	comparator := counters()
	comparator.Comparator = ptr("another")
	for _, content := range []string{
		logOf(t, []byte{103, 0}), // a field of RocksDB and pebble
		manifestOf(t, comparator),
		logOf(t, counters().appendTo(nil), add(0, meta(3, key("a", 1), key("b", 1))).appendTo(nil), []byte{103, 0}),
	} {
		for _, current := range []string{"", "MANIFEST-000000\n", "damaged", "MANIFEST-000007\n"} {
			files := map[string]string{"MANIFEST-000007": content, "000003.sst": "", "000004.log": "x"}
			if current != "" {
				files["CURRENT"] = current
			}
			dir := writeFiles(t, files)
			path := filepath.Join(dir, "MANIFEST-000007")
			_, err := Load(vfs.OS, dir)
			if !errors.Is(err, base.ErrUnsupported) || errors.Is(err, base.ErrCorruption) || !strings.Contains(err.Error(), path) {
				t.Errorf("CURRENT %q: %v", current, err)
			}
			faulty := vfstest.Inject(vfs.OS)
			faulty.SetFaults(vfstest.Fault{Index: -1, Match: func(op vfstest.Op) bool { return op.Kind == vfstest.OpOpen && op.Name == path }})
			if _, err := Load(faulty, dir); !errors.Is(err, syscall.EIO) {
				t.Errorf("CURRENT %q, and the MANIFEST cannot be opened: %v", current, err)
			}
		}
	}
}

// TestCurrentMissingDisk fails each operation while a directory without CURRENT is examined: a disk
// failure must not lead to a new database over an old one.
func TestCurrentMissingDisk(t *testing.T) {
	tables := manifestOf(t, counters(), add(0, meta(4, key("a", 1), key("b", 1))))
	for _, files := range []map[string]string{
		{"MANIFEST-000002": tables}, {"000003.log": "x"}, {"000003.log": "", "000004.ldb": ""},
	} {
		mem := vfstest.NewMem()
		if err := mem.MkdirAll("db"); err != nil {
			t.Fatal(err)
		}
		for name, content := range files {
			if err := writeFile(mem, filepath.Join("db", name), content); err != nil {
				t.Fatal(err)
			}
		}
		for n := 0; ; n++ {
			f := vfstest.Inject(mem)
			f.SetFaults(vfstest.Fault{Index: n})
			_, err := Load(f, "db")
			if errors.Is(err, ErrNoDatabase) {
				t.Fatalf("%v: operation %d fails, and the error is ErrNoDatabase", files, n)
			}
			if len(f.Failed()) == 0 {
				if n < 3 {
					t.Fatalf("%v: only %d operations", files, n)
				}
				break
			}
		}
	}
}

// TestLoadDamagedOtherProgram checks that a MANIFEST of another program is recognized even if its
// first edit is damaged.
func TestLoadDamagedOtherProgram(t *testing.T) {
	b := []byte(logOf(t, counters().appendTo(nil), []byte{103, 0}))
	b[8] ^= 1
	for _, current := range []string{"MANIFEST-000007\n", "damaged", "MANIFEST-000000\n"} {
		dir := writeFiles(t, map[string]string{"MANIFEST-000007": string(b), "000003.sst": "", "CURRENT": current})
		if _, err := Load(vfs.OS, dir); !errors.Is(err, base.ErrUnsupported) {
			t.Errorf("CURRENT holds %q: %v", current, err)
		}
	}
}

// ownCurrent is a file system that keeps CURRENT in another form, and finds it damaged.
type ownCurrent struct{ vfs.FS }

func (f ownCurrent) Open(name string) (vfs.File, error) {
	if filepath.Base(name) == "CURRENT" {
		return nil, &base.CorruptionError{Path: "meta", Offset: 7, What: "storage", Err: errors.New("not a number")}
	}
	return f.FS.Open(name)
}

// TestOwnCurrent checks that damage to what a file system has in place of CURRENT is reported as
// damage to CURRENT, with what Repair can do about it.
func TestOwnCurrent(t *testing.T) {
	for _, c := range []struct {
		files map[string]string
		want  string
	}{
		{map[string]string{"000007.log": "x"}, "Repair can bring the database back"},
		{nil, ErrNothingToRepair.Error()},
	} {
		_, err := ReadCurrent(ownCurrent{vfs.OS}, writeFiles(t, c.files))
		if !errors.Is(err, base.ErrCorruption) || !strings.Contains(err.Error(), "CURRENT") || !strings.Contains(err.Error(), "not a number") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c.files, err)
		}
	}
}
