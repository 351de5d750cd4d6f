package report

import (
	_ "embed"
	"encoding/json"
	"html/template"
	"io"

	"github.com/siftdb/sift/bench/result"
)

//go:embed page.html
var pageSource string

//go:embed page.css
var pageStyle string

//go:embed page.js
var pageScript string

//go:embed chartjs/chart.umd.min.js
var chartScript string

//go:embed chartjs/LICENSE.md
var chartLicense string

//go:embed chartjs/LICENSE-kurkle-color.md
var colorLicense string

var page = template.Must(template.New("page").Parse(pageSource))

// explored is a measurement that users of the page can plot.
type explored struct {
	Section   string             `json:"section"`
	Name      string             `json:"name"`
	Benchmark string             `json:"benchmark"`
	Num       int                `json:"num"`
	Values    map[string]spread3 `json:"values"`
}

// spread3 holds median, minimum and maximum.
type spread3 [3]float64

type pageData struct {
	Plots []*Plot     `json:"plots"`
	Rows  []explored  `json:"rows"`
	Units [][2]string `json:"units"` // name and title, in order
}

// WriteHTML writes a self-contained HTML page.
func WriteHTML(w io.Writer, f *result.File) error {
	d := pageData{Plots: Plots(f)}
	for _, u := range f.Units() {
		d.Units = append(d.Units, [2]string{u, result.UnitOf(u).Title})
	}
	for _, r := range f.Rows {
		e := explored{Section: r.Section, Name: label(r.Key), Benchmark: r.Benchmark, Num: r.Num, Values: map[string]spread3{}}
		if r.State != "" {
			e.Benchmark += ", " + r.State
		}
		for u := range r.Values {
			s := r.Of(u)
			e.Values[u] = spread3{s.Median, s.Min, s.Max}
		}
		d.Rows = append(d.Rows, e)
	}
	// json.Marshal escapes <, > and &, so that the data cannot close the script
	// element.
	data, err := json.Marshal(d)
	if err != nil {
		return err
	}
	type shownTable struct {
		Title string
		Body  template.HTML
	}
	var tables []shownTable
	for _, t := range Tables(f) {
		tables = append(tables, shownTable{t.Title, template.HTML(t.HTML())})
	}
	return page.Execute(w, map[string]any{
		"Meta":    f.Meta,
		"Heading": Heading(&f.Meta),
		"Plots":   d.Plots,
		"Tables":  tables,
		"Style":   template.CSS(pageStyle),
		"Data":    template.JS(data),
		"Chart":   template.JS(chartScript),
		"Script":  template.JS(pageScript),
		"License": "Chart.js\n\n" + chartLicense + "\n@kurkle/color\n\n" + colorLicense,
	})
}
