package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/siftdb/sift"
)

var (
	//go:embed browse.css
	browseStyle []byte
	//go:embed browse.html
	browseHTML string

	browseTemplates = template.Must(template.New("browse").Funcs(template.FuncMap{
		"count": func(n any) string { return groupDigits(fmt.Sprint(n)) },
		"size": func(n any) (string, error) {
			bytes, err := strconv.ParseUint(fmt.Sprint(n), 10, 64)
			return size(bytes), err
		},
		"amount": amount[int], "rate": rate, "reads": reads,
	}).Parse(browseHTML))
)

// How much a page shows.
const (
	keysPerPage    = 50
	tablesPerPage  = 100
	blocksPerPage  = 100
	entriesPerPage = 1000
	shortBytes     = 200      // of a key or a value in a list
	linkBytes      = 16 << 10 // of a key that is linked to its page
	longBytes      = 64 << 10 // of a value on its own page
)

// pageData is what a template shows.
type pageData struct {
	Dir, Title string
	Error      string // on the error page
	Data       any
}

// errNoPage is the error of a path that is not a page.
var errNoPage = errors.New("there is no such page")

// page serves a page. An error is shown on the page.
func (b *browser) page(w http.ResponseWriter, r *http.Request, path string) {
	p := pageData{Dir: b.dir, Title: "Error"}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err = usage(err); err == nil {
		err = b.read(&p, path, q)
	}
	name := cmp.Or(path, "overview")
	status := http.StatusOK
	if err != nil {
		status = http.StatusInternalServerError
		switch {
		case errors.Is(err, errNoPage):
			status = http.StatusNotFound
		case errors.As(err, new(*mistake)):
			status = http.StatusBadRequest
		}
		name, p.Error = "error", err.Error()
	}
	var page bytes.Buffer
	if err := browseTemplates.ExecuteTemplate(&page, name, p); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(page.Bytes()) // an error means that the client has disconnected
}

// read reads the title and the data of a page.
func (b *browser) read(p *pageData, path string, q url.Values) (err error) {
	switch path {
	case "":
		p.Title, p.Data = "Overview", b.overview()
	case "keys":
		p.Title = "Keys"
		p.Data, err = b.keys(q)
	case "key":
		p.Title = "Key"
		p.Data, err = b.key(q)
	case "tables":
		p.Title = "Tables"
		p.Data, err = b.tables(q)
	case "filters":
		p.Title = "Filters"
		p.Data, err = b.filters(q)
	case "table":
		p.Title = "Table " + q.Get("number")
		p.Data, err = b.table(q)
	case "block":
		p.Title = "Block " + q.Get("block") + " of table " + q.Get("number")
		p.Data, err = b.block(q)
	default:
		err = errNoPage
	}
	return err
}

// overview is the first page: the levels.
func (b *browser) overview() any {
	tables, m := b.db.Tables(), b.db.Metrics()
	sums := make([]tableSum, len(m.Levels))
	var total tableSum
	for i := range tables {
		sums[tables[i].Level].add(&tables[i])
		total.add(&tables[i])
	}
	var rows [][]string
	for i := range sums {
		if sums[i].tables > 0 {
			rows = append(rows, sums[i].cells(strconv.Itoa(i)))
		}
	}
	return struct {
		Levels  [][]string
		Total   []string
		Metrics *sift.Metrics
	}{rows, total.cells("total"), &m}
}

// shown is a key or a value on a page.
type shown struct {
	Text  string // as the commands print it; truncated if Cut
	Bytes int
	Cut   bool
	Link  string // the whole key; "" if it is too long
}

// show returns at most limit bytes of a key or a value.
func (b *browser) show(v []byte, limit int) shown {
	s := shown{Bytes: len(v), Cut: len(v) > limit}
	s.Text = string(b.append(nil, v[:min(len(v), limit)]))
	return s
}

// showKey is show for a key that links to its page.
func (b *browser) showKey(key []byte) shown {
	s := b.show(key, shortBytes)
	switch {
	case !s.Cut:
		s.Link = s.Text
	case len(key) <= linkBytes:
		s.Link = string(b.append(nil, key))
	}
	return s
}

// entryRow is a key and its value.
type entryRow struct{ Key, Value shown }

// keysPage lists some of the keys.
type keysPage struct {
	From, Prefix string
	Entries      []entryRow
	Next, Prev   *string // where the pages after and before this one begin and end
}

// keys lists a page of keys: those from a key on, or those before a key.
func (b *browser) keys(q url.Values) (any, error) {
	p := keysPage{From: q.Get("from"), Prefix: q.Get("prefix")}
	from, err := b.arg("from", p.From)
	if err != nil {
		return nil, err
	}
	prefix, err := b.arg("prefix", p.Prefix)
	if err != nil {
		return nil, err
	}
	before, err := b.arg("before", q.Get("before"))
	if err != nil {
		return nil, err
	}
	it, err := b.db.NewIter(&sift.IterOptions{Prefix: prefix, DontFillCache: true})
	if err != nil {
		return nil, err
	}
	defer it.Close()
	first := from
	if q.Has("before") {
		if first, err = startBefore(it, before); err != nil {
			return nil, err
		}
	}
	ok := it.SeekGE(first)
	if ok {
		firstKey := bytes.Clone(it.Key())
		if it.Prev() {
			p.Prev = b.link(firstKey)
		}
		ok = it.SeekGE(first)
	}
	for ; ok && len(p.Entries) < keysPerPage; ok = it.Next() {
		p.Entries = append(p.Entries, entryRow{b.showKey(it.Key()), b.show(it.Value(), shortBytes)})
	}
	if ok {
		p.Next = b.link(it.Key())
	}
	return p, it.Err()
}

// link returns a key in the form that addresses use.
func (b *browser) link(key []byte) *string { return new(string(b.append(nil, key))) }

// startBefore returns the first key of the page that ends before a key.
func startBefore(it *sift.Iter, before []byte) ([]byte, error) {
	var first []byte
	ok := it.SeekLT(before)
	for n := 0; ok && n < keysPerPage; n++ {
		first = append(first[:0], it.Key()...)
		ok = it.Prev()
	}
	return first, it.Err()
}

// keyPage is a key, its value, and its lookup in each table that could hold it.
type keyPage struct {
	Key     shown
	Found   bool
	Value   shown
	Lookups []tableLookup
}

// key shows one key.
func (b *browser) key(q url.Values) (any, error) {
	key, err := b.arg("key", q.Get("key"))
	if err != nil {
		return nil, err
	}
	p := keyPage{Key: b.show(key, longBytes)}
	err = b.db.View(key, func(value []byte) error {
		p.Found, p.Value = true, b.show(value, longBytes)
		return nil
	})
	if err != nil && !errors.Is(err, sift.ErrNotFound) {
		return nil, err
	}
	tables := b.db.Tables()
	slices.SortStableFunc(tables, func(x, y sift.TableMetrics) int {
		if x.Level == 0 && y.Level == 0 {
			return cmp.Compare(y.Num, x.Num) // newest first, as in a lookup
		}
		return x.Level - y.Level
	})
	for i := range tables {
		m := &tables[i]
		if bytes.Compare(key, m.Smallest) >= 0 && bytes.Compare(key, m.Largest) <= 0 {
			p.Lookups = append(p.Lookups, lookUp(m, key))
		}
	}
	return p, nil
}

// tablesPage lists some of the tables.
type tablesPage struct {
	Tables     []tableRow
	Total      int
	First      int
	Next, Prev *int
}

// tableRow describes a table in a list.
type tableRow struct {
	*sift.TableMetrics
	Name              string
	Smallest, Largest shown
	Keys, Deletions   string
	Filter, Units     string
	BitsPerKey        string
	Wasted            float64 // block reads of an absent key, on average
}

// tables lists tables.
func (b *browser) tables(q url.Values) (any, error) { return b.tableRows(q, nil) }

// filters lists the filters of tables.
func (b *browser) filters(q url.Values) (any, error) {
	plan, err := b.db.PlanFilters(math.MaxInt64)
	if err != nil {
		return nil, err
	}
	return b.tableRows(q, &plan)
}

func (b *browser) tableRows(q url.Values, plan *sift.FilterPlan) (*tablesPage, error) {
	tables := b.db.Tables()
	first, err := number(q, "first", len(tables))
	if err != nil {
		return nil, err
	}
	p := &tablesPage{Total: len(tables), First: first}
	end := min(len(tables), first+tablesPerPage)
	for i := first; i < end; i++ {
		m := &tables[i]
		row := tableRow{
			TableMetrics: m, Name: fmt.Sprintf("%06d", m.Num),
			Smallest: b.show(m.Smallest, shortBytes), Largest: b.show(m.Largest, shortBytes),
			Keys: known(m.Keys, m.Keys > 0), Deletions: known(m.Deletions, m.Entries > 0),
			Filter: filterName(m), Units: filterUnits(m),
			BitsPerKey: bitsPerKey(uint64(m.FilterBytes), m.Keys, m.Keys == 0),
		}
		if plan != nil && i < len(plan.Tables) {
			row.Wasted = plan.Tables[i].WastedReads
		}
		p.Tables = append(p.Tables, row)
	}
	p.Next, p.Prev = around(first, tablesPerPage, len(tables))
	return p, nil
}

// around returns where the next and the previous page begin, nil where there is none.
func around(first, perPage, total int) (next, prev *int) {
	if first+perPage < total {
		next = new(first + perPage)
	}
	if first > 0 {
		prev = new(max(0, first-perPage))
	}
	return next, prev
}

// number returns a parameter that must be below limit, 0 if it was not given.
func number(q url.Values, name string, limit int) (int, error) {
	if !q.Has(name) || q.Get(name) == "0" {
		return 0, nil
	}
	n, err := strconv.Atoi(q.Get(name))
	if err != nil || n < 0 {
		return 0, usage(fmt.Errorf("%s: %q is not a number", name, q.Get(name)))
	}
	if n >= limit {
		return 0, fmt.Errorf("%s %d: %w", name, n, errNoPage)
	}
	return n, nil
}
