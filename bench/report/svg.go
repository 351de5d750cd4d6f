package report

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"io"
	"math"
	"regexp"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The width fits a column of text.
const (
	svgWidth  = 8.5 * vg.Inch
	barHeight = 0.14 * vg.Inch
)

// WriteSVG writes a plot as SVG.
func WriteSVG(w io.Writer, p *Plot) error {
	g := plot.New()
	sans(&g.Title.TextStyle, 13)
	for _, a := range []*plot.Axis{&g.X, &g.Y} {
		sans(&a.Label.TextStyle, 11)
		sans(&a.Tick.Label, 9)
		a.LineStyle.Color, a.Tick.LineStyle.Color = color.Gray{150}, color.Gray{150}
	}
	g.X.Tick.Marker, g.Y.Tick.Marker = plot.TickerFunc(linearTicks), plot.TickerFunc(linearTicks)
	legend := plot.NewLegend()
	sans(&legend.TextStyle, 9)
	legend.Top, legend.Left = true, true
	legend.Padding = 3
	g.Title.Text = p.Title
	g.Title.Padding = 8
	g.X.Label.Text, g.Y.Label.Text = p.X, p.Y
	g.BackgroundColor = color.White
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{225}, color.Gray{225}
	g.Add(grid)
	height := 4.6 * vg.Inch
	var err error
	if len(p.Bars) > 0 {
		height, err = addBars(g, p, &legend)
	} else {
		err = addLines(g, p, &legend)
	}
	if err != nil {
		return err
	}
	c := vgsvg.New(svgWidth, height)
	canvas := draw.New(c)
	canvas.SetColor(color.White)
	canvas.Fill(canvas.Rectangle.Path())
	canvas = draw.Crop(canvas, 6, -12, 6, -6)
	beside := legend.Rectangle(canvas).Size().X + 16
	g.Draw(draw.Crop(canvas, 0, -beside, 0, 0))
	legend.Draw(draw.Crop(canvas, canvas.Size().X-beside+10, 0, 0, -30))
	var b bytes.Buffer
	if _, err = c.WriteTo(&b); err != nil {
		return err
	}
	_, err = io.WriteString(w, fitTexts(b.String()))
	return err
}

// textElement matches a text element: its attributes up to the font, those up to the size, the
// size, and the text.
var textElement = regexp.MustCompile(`<text ([^>]*font-family:)Liberation Sans([^>]*font-size:)(\d+)px">([^<]*)</text>`)

// fitTexts names fallback fonts for systems that lack the font used for the layout, and sets
// the length of each text to its length in that font, so that texts do not overlap their
// neighbors.
func fitTexts(svg string) string {
	return textElement.ReplaceAllStringFunc(svg, func(element string) string {
		m := textElement.FindStringSubmatch(element)
		size, _ := strconv.Atoi(m[3]) // it has digits only
		face := font.DefaultCache.Lookup(font.Font{Typeface: "Liberation", Variant: "Sans"}, vg.Points(float64(size)))
		width := face.Width(html.UnescapeString(m[4])).Points()
		return fmt.Sprintf(`<text textLength="%.1f" lengthAdjust="spacingAndGlyphs" %sLiberation Sans,Arial,Helvetica,sans-serif%s%spx">%s</text>`,
			width, m[1], m[2], m[3], m[4])
	})
}

// sans sets the font of a text.
func sans(style *draw.TextStyle, size vg.Length) {
	style.Font = font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
}

// logTicks labels 1, 2 and 5 of each power of ten, or only 1 if the axis spans many powers.
func logTicks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	many := high/low >= 500
	for power := math.Floor(math.Log10(low)); power <= math.Ceil(math.Log10(high)); power++ {
		for first := 1.0; first < 10; first++ {
			v := first * math.Pow(10, power)
			if v < low*0.999 || v > high*1.001 {
				continue
			}
			t := plot.Tick{Value: v}
			if first == 1 || !many && (first == 2 || first == 5) {
				t.Label = strconv.FormatFloat(v, 'g', 3, 64)
				if v >= 1000 {
					t.Label = thousands(v)
				}
			}
			ticks = append(ticks, t)
		}
	}
	return ticks
}

// linearTicks labels about eight round numbers.
func linearTicks(low, high float64) []plot.Tick {
	step := math.Pow(10, math.Floor(math.Log10((high-low)/8)))
	for _, f := range []float64{2, 2.5, 2} { // 1, 2, 5, 10
		if (high-low)/step > 10 {
			step *= f
		}
	}
	var ticks []plot.Tick
	for i := math.Ceil(low / step); i*step <= high; i++ {
		v := i * step
		t := plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'g', 4, 64)}
		if v >= 1000 {
			t.Label = thousands(v)
		}
		ticks = append(ticks, t)
	}
	return ticks
}

func rgb(s string) color.Color {
	var c color.RGBA
	c.A = 255
	for i, p := range []*uint8{&c.R, &c.G, &c.B} {
		*p = hexDigit(s[1+2*i])<<4 | hexDigit(s[2+2*i])
	}
	return c
}

func hexDigit(b byte) uint8 {
	if b >= 'a' {
		return b - 'a' + 10
	}
	return b - '0'
}

func addLines(g *plot.Plot, p *Plot, legend *plot.Legend) error {
	if p.XLog {
		g.X.Scale, g.X.Tick.Marker = plot.LogScale{}, plot.TickerFunc(logTicks)
	}
	// Logarithms are plotted on a linear axis, because the plotter reserves space for the
	// title of a logarithmic axis in the wrong place.
	height := func(y float64) float64 { return y }
	if p.YLog {
		height = math.Log10
		g.Y.Tick.Marker = plot.TickerFunc(func(low, high float64) []plot.Tick {
			ticks := logTicks(math.Pow(10, low), math.Pow(10, high))
			for i := range ticks {
				ticks[i].Value = math.Log10(ticks[i].Value)
			}
			return ticks
		})
	}
	for _, s := range p.Series {
		points := make(plotter.XYs, 0, len(s.Points))
		for _, q := range s.Points {
			if p.YLog && q.Y <= 0 || p.XLog && q.X <= 0 {
				continue
			}
			points = append(points, plotter.XY{X: q.X, Y: height(q.Y)})
		}
		if len(points) == 0 {
			continue
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		line.Color = rgb(s.Color)
		line.Width = 1.5
		marks.Color = line.Color
		marks.Shape, marks.Radius = draw.CircleGlyph{}, 2
		if s.Dashed {
			line.Dashes = []vg.Length{5, 4}
		}
		g.Add(line)
		if s.Plain {
			legend.Add(s.Name, line)
			continue
		}
		g.Add(marks)
		legend.Add(s.Name, line, marks)
	}
	return nil
}

// addBars draws horizontal bars with their values beside them.
func addBars(g *plot.Plot, p *Plot, legend *plot.Legend) (height vg.Length, err error) {
	n := len(p.Series)
	names := make([]string, len(p.Bars))
	most := 0.0
	for i, name := range p.Bars {
		names[len(names)-1-i] = name // the first one at the top
	}
	labels := plotter.XYLabels{}
	slot := barHeight*vg.Length(n) + barHeight
	height = slot*vg.Length(len(names)) + 1.3*vg.Inch
	for i, s := range p.Series {
		values := make(plotter.Values, len(names))
		for j, q := range s.Points {
			values[len(names)-1-j] = q.Y
			most = max(most, q.Y)
		}
		bars, err := plotter.NewBarChart(values, barHeight)
		if err != nil {
			return 0, err
		}
		bars.Horizontal = true
		bars.Color = rgb(s.Color)
		bars.LineStyle.Width = 0
		bars.Offset = barHeight * vg.Length(float64(n-1)/2-float64(i))
		g.Add(bars)
		legend.Add(s.Name, bars)
		// In units of the axis, where each name takes one slot.
		shift := float64(bars.Offset / slot)
		for j, v := range values {
			if v > 0 {
				labels.XYs = append(labels.XYs, plotter.XY{X: v, Y: float64(j) + shift})
				labels.Labels = append(labels.Labels, " "+Figure(v))
			}
		}
	}
	l, err := plotter.NewLabels(labels)
	if err != nil {
		return 0, err
	}
	for i := range l.TextStyle {
		sans(&l.TextStyle[i], 8)
		l.TextStyle[i].YAlign = draw.YCenter
	}
	g.Add(l)
	g.NominalY(names...)
	g.Y.Min, g.Y.Max = -0.6, float64(len(names))-0.4
	g.X.Min, g.X.Max = 0, math.Max(most*1.12, 1e-9)
	return height, nil
}
