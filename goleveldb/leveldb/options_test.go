package leveldb

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/storage"
	"github.com/syndtr/goleveldb/leveldb/util"
)

// syncCounter is a Storage that counts the syncs of logs.
type syncCounter struct {
	storage.Storage
	syncs int
}

type countedWriter struct {
	storage.Writer
	syncs *int
}

func (c *syncCounter) Create(fd storage.FileDesc) (storage.Writer, error) {
	w, err := c.Storage.Create(fd)
	if err == nil && fd.Type == storage.TypeJournal {
		w = countedWriter{w, &c.syncs}
	}
	return w, err
}

func (w countedWriter) Sync() error {
	*w.syncs++
	return w.Writer.Sync()
}

// TestSync checks that a write syncs the log if and only if WriteOptions.Sync is set and
// Options.NoSync is not.
func TestSync(t *testing.T) {
	for _, noSync := range []bool{false, true} {
		stor := &syncCounter{Storage: storage.NewMemStorage()}
		db, err := Open(stor, &opt.Options{NoSync: noSync})
		if err != nil {
			t.Fatal(err)
		}
		batch := new(Batch)
		batch.Put([]byte("key"), nil)
		for _, tc := range []struct {
			wo   *opt.WriteOptions
			want int // syncs per write
		}{
			{nil, 0},
			{&opt.WriteOptions{}, 0},
			{&opt.WriteOptions{NoWriteMerge: true}, 0},
			{&opt.WriteOptions{Sync: true}, 1},
		} {
			if noSync {
				tc.want = 0
			}
			before := stor.syncs
			for _, err := range []error{db.Put([]byte("key"), nil, tc.wo), db.Delete([]byte("key"), tc.wo), db.Write(batch, tc.wo)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			if got := stor.syncs - before; got != 3*tc.want {
				t.Errorf("Options.NoSync %v, %+v: %d syncs by three writes, want %d", noSync, tc.wo, got, 3*tc.want)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFilterMemory checks that filters take as many bits per key as NewBloomFilter
// requests, at most 20.
func TestFilterMemory(t *testing.T) {
	const keys = 20000
	for _, bits := range []int{5, 10, 16, 24} {
		db, err := Open(storage.NewMemStorage(), &opt.Options{Filter: filter.NewBloomFilter(bits), CompactionTableSize: 64 << 20})
		if err != nil {
			t.Fatal(err)
		}
		fill(t, db, keys)
		if err := db.CompactRange(util.Range{}); err != nil {
			t.Fatal(err)
		}
		got := float64(8*db.s.Metrics().Memory.Filters) / keys
		if want := min(float64(bits), 20); got < 0.85*want || got > 1.05*want {
			t.Errorf("NewBloomFilter(%d): %.2f bits per key", bits, got)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestProperties checks the format of all properties.
func TestProperties(t *testing.T) {
	db, err := Open(storage.NewMemStorage(), &opt.Options{WriteBuffer: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	fill(t, db, 5000)
	if err := db.CompactRange(util.Range{}); err != nil {
		t.Fatal(err)
	}
	const column = ` +\| +[\d.]+`
	rule := "(-+\\+){5}-+\n"
	for name, format := range map[string]string{
		"num-files-at-level0": `\d+`,
		"stats": "Compactions\n Level \\|   Tables   \\|    Size\\(MB\\)   \\|    Time\\(sec\\)  \\|    Read\\(MB\\)   \\|   Write\\(MB\\)\n" +
			rule + "( +\\d+(" + column + "){5}\n)+" + rule + " Total(" + column + "){5}\n",
		"compcount":    `MemComp:\d+ Level0Comp:\d+ NonLevel0Comp:\d+ SeekComp:\d+`,
		"iostats":      `Read\(MB\):\d+\.\d{5} Write\(MB\):\d+\.\d{5}`,
		"writedelay":   `DelayN:\d+ Delay:[\d.]+[mµn]?s Paused:(true|false)`,
		"sstables":     "(--- level \\d ---\n(\\d+:\\d+\\[\"key\\d+\" .. \"key\\d+\"\\]\n)*)+",
		"blockpool":    `<nil>`,
		"cachedblock":  `\d+`,
		"openedtables": `[1-9]\d*`,
		"alivesnaps":   `0`,
		"aliveiters":   `0`,
	} {
		if got, err := db.GetProperty("leveldb." + name); err != nil || !regexp.MustCompile("^"+format+"$").MatchString(got) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "stats", "leveldb.", "leveldb.num-files-at-level", fmt.Sprint("leveldb.num-files-at-level", -1)} {
		if got, err := db.GetProperty(name); err != ErrNotFound {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
