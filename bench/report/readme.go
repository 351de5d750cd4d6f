package report

import (
	"fmt"
	"strings"

	"github.com/siftdb/sift/bench/result"
)

// The markers around a table in a document: <!-- bench:NAME --> before it,
// <!-- /bench:NAME --> after it.
const (
	markerOpen  = "<!-- bench:"
	markerClose = "<!-- /bench:"
	markerEnd   = " -->"
)

// Blocks returns the blocks that Fill can insert, by name: the tables of a result, "machine" for
// the origin of its figures, the other tables, each with its origin, and "open-total", which
// follows from the table "open". It is an error if another table has the name of one of the result.
func Blocks(f *result.File, others map[string]*result.Table) (map[string]string, error) {
	blocks := map[string]string{"machine": machineBlock(f)}
	for _, t := range Tables(f) {
		blocks[t.Name] = t.Markdown()
	}
	for name, t := range others {
		if _, ok := blocks[name]; ok {
			return nil, fmt.Errorf("a saved table has the name of a table of the result, %q", name)
		}
		shown := Table{Header: t.Header, Rows: t.Rows}
		// For older tables, only the commit that added them to the document is known.
		origin := fmt.Sprintf("Recorded %s in commit %s; measured", t.When, t.Commit)
		if m := t.Machine; m.CPU != "" {
			origin = fmt.Sprintf("Measured %s at commit %s on %s (%d cores, %s, %s)", t.When, t.Commit, m.CPU, m.Cores, m.System, m.Go)
		}
		blocks[name] = fmt.Sprintf("%s by\n\n    %s\n\n%s", origin,
			strings.ReplaceAll(t.Command, result.CommandSeparator, "\n    "), shown.Markdown())
	}
	if t := others["open"]; t != nil {
		totals, err := openTotals(t)
		if err != nil {
			return nil, err
		}
		blocks[totals.Name] = totals.Markdown()
	}
	return blocks, nil
}

func machineBlock(f *result.File) string {
	m := &f.Meta
	var versions []string
	for _, v := range m.Versions {
		if v.Name != "sift" && v.Text != "" {
			versions = append(versions, v.Name+" "+v.Text)
		}
	}
	text := fmt.Sprintf("Measured %s at commit %s on %s (%d cores, %s, %s) with %s, in %s, by\n\n    %s\n",
		m.When, m.Commit, m.Machine.CPU, m.Machine.Cores, m.Machine.System, m.Machine.Go, strings.Join(versions, ", "), m.Took,
		strings.ReplaceAll(m.Command, result.CommandSeparator, "\n    "))
	if busy, all := f.Busy(); busy > 0 {
		text += fmt.Sprintf("\nIn %d of %d measurements other processes used more than %.0f%% of the machine's CPU time: trust\nthe ratios, not the times.\n",
			busy, all, 100*result.BusyShare)
	}
	return text
}

// Fill replaces the text between markers with the blocks of the same names. A marker without a
// block of its name, and one that is not closed, are errors.
func Fill(text string, blocks map[string]string) (string, error) {
	var out strings.Builder
	for {
		i := strings.Index(text, markerOpen)
		if i < 0 {
			out.WriteString(text)
			return out.String(), nil
		}
		rest := text[i+len(markerOpen):]
		name, rest, ok := strings.Cut(rest, markerEnd)
		if !ok {
			return "", fmt.Errorf("marker %q is not closed", firstLine(text[i:]))
		}
		closing := markerClose + name + markerEnd
		j := strings.Index(rest, closing)
		if j < 0 {
			return "", fmt.Errorf("missing %s", closing)
		}
		block, ok := blocks[name]
		if !ok {
			return "", fmt.Errorf("the results have no table %q", name)
		}
		out.WriteString(text[:i] + markerOpen + name + markerEnd + "\n" + block + closing)
		text = rest[j+len(closing):]
	}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
