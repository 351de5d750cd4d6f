package torture

import (
	"fmt"
	"math"
	"strings"
)

// panel is one diagram of a plot: fields over time, on a common axis.
type panel struct {
	title  string
	fields []string
	scale  float64 // values are divided by it
	log    bool    // a logarithmic axis
}

var panels = []panel{
	{"memory, MiB", []string{"rss_bytes", "heap_bytes"}, 1 << 20, false},
	{"descriptors, files, tables", []string{"descriptors", "files", "tables"}, 1, false},
	{"99th percentile, µs", []string{"get_p99_us", "write_p99_us"}, 1, true},
	{"on disk, MiB", []string{"disk_bytes"}, 1 << 20, false},
}

var colors = []string{"#1f6fb2", "#c2571a", "#3c8d40"}

const (
	plotWidth, panelHeight = 760, 150
	plotLeft, plotTop      = 60, 40
)

// plotSamples draws the samples of a long run as an SVG.
func plotSamples(samples [][]float64, title string) string {
	var b strings.Builder
	height := plotTop + len(panels)*(panelHeight+40)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n", plotWidth, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/><text x="%d" y="20" font-size="14">%s</text>`+"\n", plotWidth, height, plotLeft, title)
	for i, p := range panels {
		p.draw(&b, samples, plotTop+i*(panelHeight+40))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (p panel) draw(b *strings.Builder, samples [][]float64, top int) {
	width := float64(plotWidth - plotLeft - 20)
	end := samples[len(samples)-1][0]
	low, high := math.Inf(1), 0.0
	for _, f := range p.fields {
		for _, s := range samples {
			v := s[fieldIndex(f)] / p.scale
			high = max(high, v)
			if v > 0 {
				low = min(low, v)
			}
		}
	}
	if !p.log || math.IsInf(low, 1) {
		low = 0
	}
	high = max(high*1.05, low+1)
	y := func(v float64) float64 {
		share := (v - low) / (high - low)
		if p.log {
			share = math.Log(max(v, low)/low) / math.Log(high/low)
		}
		return float64(top+panelHeight) - share*panelHeight
	}
	fmt.Fprintf(b, `<text x="%d" y="%d">%s</text>`+"\n", plotLeft, top-4, p.title)
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%.0f" height="%d" fill="none" stroke="#999"/>`+"\n", plotLeft, top, width, panelHeight)
	for i := range 5 {
		v := low + (high-low)*float64(i)/4
		if p.log {
			v = low * math.Pow(high/low, float64(i)/4)
		}
		fmt.Fprintf(b, `<text x="%d" y="%.0f" text-anchor="end">%.4g</text>`+"\n", plotLeft-4, y(v)+4, v)
		fmt.Fprintf(b, `<text x="%.0f" y="%d" text-anchor="middle">%.0f min</text>`+"\n", plotLeft+width*float64(i)/4, top+panelHeight+14, end/60*float64(i)/4)
	}
	for i, f := range p.fields {
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" points="`, colors[i])
		for _, s := range samples {
			fmt.Fprintf(b, "%.1f,%.1f ", plotLeft+width*s[0]/end, y(s[fieldIndex(f)]/p.scale))
		}
		fmt.Fprintf(b, `"/><text x="%d" y="%d" fill="%s">%s</text>`+"\n", plotLeft+8+i*110, top+14, colors[i], f)
	}
}

func fieldIndex(name string) int {
	for i, f := range sampleFields {
		if f == name {
			return i
		}
	}
	panic("no field " + name)
}
