package result

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/siftdb/sift/bench/measure"
)

// Table is a table of a command that is not part of the full report, and its origin. Its rows may
// come from several runs.
type Table struct {
	Name    string          `json:"name"`
	When    string          `json:"when"`   // a date for each run, unless it is the previous run's
	Commit  string          `json:"commit"` // likewise
	Command string          `json:"command"`
	Machine measure.Machine `json:"machine"` // of the last run
	Header  []string        `json:"header"`
	Rows    [][]string      `json:"rows"`
}

// ReadTables reads the tables in a file, by name. A file that does not exist holds none.
func ReadTables(path string) (map[string]*Table, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []*Table
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	tables := map[string]*Table{}
	for _, t := range list {
		tables[t.Name] = t
	}
	return tables, nil
}

// CheckCommits returns an error unless the result and all tables were measured at the same commit,
// with nothing uncommitted.
func CheckCommits(f *File, tables map[string]*Table) error {
	if strings.ContainsAny(f.Meta.Commit, "+,") {
		return fmt.Errorf("the result was measured at %s, which is not one clean commit", f.Meta.Commit)
	}
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		if commit := tables[name].Commit; commit != f.Meta.Commit {
			return fmt.Errorf("table %q was measured at %s, the result at %s", name, commit, f.Meta.Commit)
		}
	}
	return nil
}

// Save stores the table in a file. If add is set, its rows are added to those that the file has
// under its name, otherwise they replace them.
func (t *Table) Save(path string, add bool) error {
	tables, err := ReadTables(path)
	if err != nil {
		return err
	}
	all := *t
	if before := tables[t.Name]; add && before != nil {
		if !slices.Equal(before.Header, t.Header) {
			return fmt.Errorf("the table %q in %s has other columns", t.Name, path)
		}
		all.Rows = append(before.Rows, t.Rows...)
		all.When = join(before.When, t.When, ", ")
		all.Commit = join(before.Commit, t.Commit, ", ")
		all.Command = join(before.Command, t.Command, CommandSeparator)
	}
	list := []*Table{&all}
	for _, other := range tables {
		if other.Name != t.Name {
			list = append(list, other)
		}
	}
	slices.SortFunc(list, func(a, b *Table) int { return strings.Compare(a.Name, b.Name) })
	b, err := json.MarshalIndent(list, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// join appends text to a list, unless it is its last element.
func join(list, text, separator string) string {
	if list == text || strings.HasSuffix(list, separator+text) {
		return list
	}
	return list + separator + text
}
