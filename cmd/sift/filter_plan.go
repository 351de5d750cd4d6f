package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/siftdb/sift"
)

type filterPlanCmd struct {
	Memory byteCount `required:"" placeholder:"BYTES" help:"The budget: 64MiB, 500KB or a number of bytes."`
	Dir    string    `arg:"" help:"The database."`
}

func (filterPlanCmd) Help() string {
	return `Prints how a budget for filter memory would be spent (Options.FilterMemory in a program):
for each table the units of its filter that were written, how many of them would be held, the last
one perhaps in part, and the block reads that a lookup of an absent key would waste on it. Lookups
are taken to be spread evenly; in a running program what is held follows them.

Example:

    sift filter plan --memory 64MiB db`
}

func (c *filterPlanCmd) Run(e *env) error {
	return e.readOnly(c.Dir, func(db *sift.DB) error {
		p, err := db.PlanFilters(int64(c.Memory))
		if err != nil {
			return err
		}
		none, err := db.PlanFilters(0)
		if err != nil {
			return err
		}
		t := columns{left: map[int]bool{2: true}}
		t.add("level", "table", "filter", "units", "held", "size", "wasted/1,000")
		for i := range p.Tables {
			m := &p.Tables[i]
			t.add(strconv.Itoa(m.Level), fmt.Sprintf("%06d", m.Num), filterName(&m.TableMetrics),
				strconv.Itoa(m.FilterUnits), strconv.FormatFloat(m.Units, 'g', -1, 64), size(m.Bytes), perThousand(m.WastedReads))
		}
		t.add("total", "", "", "", "", size(p.Bytes), perThousand(p.WastedReads))
		if err := t.write(e.out); err != nil {
			return err
		}
		fmt.Fprintf(e.out, "\nOf 1,000 lookups of absent keys %s read a block in vain, %s without filters.\n",
			perThousand(p.WastedReads), perThousand(none.WastedReads))
		if p.NextMiBSaves > 0 {
			fmt.Fprintf(e.out, "Another MiB would spare %s of them.\n", perThousand(p.NextMiBSaves))
		}
		return nil
	})
}

func perThousand(reads float64) string { return strconv.FormatFloat(1000*reads, 'f', 2, 64) }

// byteCount is a number of bytes on the command line.
type byteCount int64

// Decode reads a number with a unit.
func (b *byteCount) Decode(ctx *kong.DecodeContext) error {
	var text string
	if err := ctx.Scan.PopValueInto("bytes", &text); err != nil {
		return err
	}
	n, err := parseBytes(text)
	*b = byteCount(n)
	return err
}

// byteUnits are the units of sizes, the longer names first.
var byteUnits = []struct {
	name  string
	bytes float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}, {"", 1},
}

// parseBytes reads a size such as 64MiB, 1.5GB or 4096.
func parseBytes(text string) (int64, error) {
	for _, u := range byteUnits {
		number, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if n *= u.bytes; err != nil || !(n >= 0 && n < 1<<62) {
			break
		}
		return int64(n), nil
	}
	return 0, fmt.Errorf("%q is no size; try 64MiB, 500KB or a number of bytes", text)
}
