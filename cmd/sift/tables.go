package main

import (
	"fmt"
	"strconv"

	"github.com/siftdb/sift"
)

type tablesCmd struct {
	asJSON
	Dir string `arg:"" help:"The database."`
}

func (tablesCmd) Help() string {
	return `Prints a line for each table, by level: its number, size, keys and tombstones (a question
mark if it does not record them), its filter, and its first and last key. With --json each line is
an object.

Example:

    sift tables db`
}

func (c *tablesCmd) Run(e *env) error {
	return e.readOnly(c.Dir, func(db *sift.DB) error {
		tables := db.Tables()
		if !c.JSON {
			return orDamage(writeTables(e, tables, true), tables)
		}
		for i := range tables {
			if err := e.writeJSON(newTableJSON(&tables[i])); err != nil {
				return orDamage(err, tables)
			}
		}
		return damage(tables)
	})
}

// writeTables prints a line for each table, with its first and last key if keys is set.
func writeTables(e *env, tables []sift.TableMetrics, keys bool) error {
	t := columns{left: map[int]bool{5: true, 6: true, 7: true}}
	head := []string{"level", "table", "size", "keys", "tombstones", "filter"}
	if keys {
		head = append(head, "first key", "last key")
	}
	t.add(head...)
	for i := range tables {
		m := &tables[i]
		row := []string{strconv.Itoa(m.Level), fmt.Sprintf("%06d", m.Num), size(m.Size),
			known(m.Keys, m.Keys > 0), known(m.Deletions, m.Entries > 0), escaped(filterName(m))}
		if keys {
			row = append(row, string(appendText(nil, m.Smallest)), string(appendText(nil, m.Largest)))
		}
		t.add(row...)
	}
	return t.write(e.out)
}
