package engines

import (
	"flag"
	"os"
	"testing"

	"github.com/syndtr/goleveldb/leveldb/opt"

	"github.com/siftdb/sift/internal/torture/damage"
)

var (
	masks     = flag.Int("masks", 1, "how many of the masks ^01 ^80 ^FF =00 are applied to each byte")
	truncated = flag.Bool("truncate", true, "also truncate each file to each shorter length")
	only      = flag.String("only", "", "the only engine to run")
)

// TestDamage logs what each engine returns from damaged files. It fails only for sift: the results
// of the others are for comparison.
func TestDamage(t *testing.T) {
	tmp := t.TempDir()
	if _, err := os.Stat("/dev/shm"); err == nil {
		if tmp, err = os.MkdirTemp("/dev/shm", "damage"); err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(tmp)
	}
	w := newScript()
	for _, e := range []engine{
		siftDB{tmp},
		&goLevelDB{name: "goleveldb", tmp: tmp},
		&goLevelDB{name: "goleveldb, StrictAll", tmp: tmp, strict: opt.StrictAll},
		pebbleDB{},
	} {
		if *only != "" && *only != e.Name() {
			continue
		}
		files, err := e.Make(w)
		if err != nil {
			t.Fatalf("%s: %v", e.Name(), err)
		}
		if o, what := damage.Judge(e.Read(files, w.keys), w.want, w.keys); o != damage.Right {
			t.Fatalf("%s: undamaged files give %v: %s", e.Name(), o, what)
		}
		cases := damage.Flips(files, damage.ByKind, *masks)
		if *truncated {
			cases = append(cases, damage.Truncations(files, damage.ByKind)...)
		}
		cases = append(cases, damage.Swaps(files, damage.ByKind)...)
		tally := damage.Run(e, cases, w.want, w.keys, nil)
		t.Logf("%d bytes in %d files\n%v", files.Size(), len(files), tally)
		if _, ours := e.(siftDB); ours {
			for _, bad := range tally.Bad {
				t.Error(bad)
			}
		}
	}
}
