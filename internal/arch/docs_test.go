package arch

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxReadmeLines keeps the README short enough to be read.
const maxReadmeLines = 150

// maxProseColumns is the width of a line of prose in Markdown, and of a comment in Go.
const maxProseColumns = 100

// link matches the target of a Markdown link or image.
var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// TestDocs looks for broken relative links in all Markdown files, fragments included, for prose
// that is too wide, and for a README that has grown too long.
func TestDocs(t *testing.T) {
	root := filepath.Join("..", "..")
	pages := 0
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && (e.Name() == ".git" || e.Name() == "node_modules") {
			return fs.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		pages++
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		checkLinks(t, path, string(content))
		if !strings.Contains(path, "testdata") && !strings.Contains(path, "chartjs") {
			checkWidth(t, path, string(content))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if pages < 10 {
		t.Errorf("only %d pages", pages)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(readme), "\n")
	if len(lines) > maxReadmeLines {
		t.Errorf("README.md has %d lines; at most %d", len(lines), maxReadmeLines)
	}
}

// TestReadmeFigures checks that the README has the same test results as docs/reliability.md.
func TestReadmeFigures(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join("..", "..", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	_, text, _ := strings.Cut(read("README.md"), "## Guarantees")
	text, _, _ = strings.Cut(text, "##")
	figures := regexp.MustCompile(`\d{1,3}(,\d{3})+`).FindAllString(text, -1)
	if len(figures) < 5 {
		t.Errorf("the guarantees have %d figures", len(figures))
	}
	results := read("docs/reliability.md")
	for _, n := range figures {
		if !regexp.MustCompile(`(^|[^\d,])` + n + `([^\d,]|$)`).MatchString(results) {
			t.Errorf("docs/reliability.md does not have the %s of the README", n)
		}
	}
}

// checkWidth reports lines of prose that are too wide. Tables, code, links and what markers enclose
// may be wider.
func checkWidth(t *testing.T, page, content string) {
	t.Helper()
	code, generated := false, false
	for i, l := range strings.Split(content, "\n") {
		switch {
		case strings.HasPrefix(l, "```"):
			code = !code
		case strings.HasPrefix(l, "<!-- /"):
			generated = false
		case strings.HasPrefix(l, "<!-- bench:"):
			generated = true
		}
		prose := !code && !generated && !strings.HasPrefix(l, "|") && !strings.ContainsAny(l, "`<") && !strings.Contains(l, "](") && !strings.HasPrefix(l, "    ")
		if n := len([]rune(l)); prose && n > maxProseColumns {
			t.Errorf("%s:%d has %d columns; at most %d", page, i+1, n, maxProseColumns)
		}
	}
}

// checkComments reports lines of comments that are too wide, a tab counted as four columns.
// Indented text, links, directives and the output of examples may be wider.
func checkComments(t *testing.T, file, content string) {
	t.Helper()
	for i, l := range strings.Split(content, "\n") {
		text := strings.TrimLeft(l, "\t")
		prose := strings.HasPrefix(text, "// ") && !strings.HasPrefix(text, "// Output:") && !strings.Contains(text, "://") && !strings.HasPrefix(text, "// #cgo")
		if n := len([]rune(text)) + 4*(len(l)-len(text)); prose && n > maxProseColumns {
			t.Errorf("%s:%d has %d columns; at most %d", file, i+1, n, maxProseColumns)
		}
	}
}

// checkLinks reports the broken relative links of a page.
func checkLinks(t *testing.T, page, content string) {
	t.Helper()
	for _, m := range link.FindAllStringSubmatch(content, -1) {
		u, err := url.Parse(m[1])
		if err != nil {
			t.Errorf("%s: %v", page, err)
			continue
		}
		if u.Scheme != "" {
			continue
		}
		target, text := page, content
		if u.Path != "" {
			target = filepath.Join(filepath.Dir(page), filepath.FromSlash(u.Path))
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
				continue
			}
		}
		if u.Fragment == "" || filepath.Ext(target) != ".md" {
			continue
		}
		if target != page {
			b, err := os.ReadFile(target)
			if err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
				continue
			}
			text = string(b)
		}
		if !hasHeading(text, u.Fragment) {
			t.Errorf("%s links to %s: there is no such heading", page, m[1])
		}
	}
}

// hasHeading reports whether a page has a heading that the fragment of a link names.
func hasHeading(content, fragment string) bool {
	for line := range strings.Lines(content) {
		title := strings.TrimLeft(line, "#")
		if title == line {
			continue
		}
		id := strings.ReplaceAll(notInID.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), ""), " ", "-")
		if id == fragment {
			return true
		}
	}
	return false
}

// notInID matches what a heading loses when it becomes the fragment of a link.
var notInID = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)

// retired are phrases that docs/glossary.md replaced by standard terms, in comments, error texts
// and documentation alike, and British spellings where the project uses American ones.
var retired = regexp.MustCompile(`(?i)\b(` + strings.Join([]string{
	"says? maybe", "says? yes", "a maybe", "denies", "settled", "sync marks?", "filter keeper", "holds? up a processor",
	"neighbours?", "behaviour", "cancelled", "acknowledgements?", "towards", "outwards", "in its midst", "as ever", "tells? orders", "comes? to rest", "is told of", "drifts? apart", "anew",
	"filters? of (ranges|keys)", "in the form of LevelDB", "Redis' protocol", "knows what it does not hold",
	"is taken for no filter", "a beginning", "plan of the house", "others can reach",
	"two commands show", "point tables?", "poison(ed)? (log|database|committer)", "table.s heat", "a reply means", "of what NoSync acknowledged", "the keeper",
}, "|") + `)\b`)

// TestWords looks for retired phrases in code and documentation, including phrases that span lines,
// and for comments that are too wide.
func TestWords(t *testing.T) {
	root := filepath.Join("..", "..")
	files := 0
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if e.Name() == "testdata" || e.Name() == "chartjs" || strings.HasPrefix(e.Name(), ".") && e.Name() != ".ci" && path != root {
				return fs.SkipDir
			}
			return nil
		}
		if !slices.Contains([]string{".go", ".md", ".html", ".js", ".sh", ".h", ".cc", ".s"}, filepath.Ext(path)) && filepath.Base(filepath.Dir(path)) != ".ci" || e.Name() == "docs_test.go" {
			return nil
		}
		files++
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if filepath.Ext(path) == ".go" {
			checkComments(t, path, string(content))
		}
		text := strings.ReplaceAll(strings.Join(strings.Fields(string(content)), " "), " // ", " ")
		for _, phrase := range retired.FindAllString(text, -1) {
			t.Errorf("%s: %q; docs/glossary.md has the term for it", path, phrase)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 100 {
		t.Errorf("only %d files", files)
	}
}
