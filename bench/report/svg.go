package report

import (
	"image/color"
	"io"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Figures hold in a README's column.
const (
	svgWidth  = 8 * vg.Inch
	barHeight = 0.17 * vg.Inch
)

// WriteSVG draws a plot as a picture.
func WriteSVG(w io.Writer, p *Plot) error {
	g := plot.New()
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
		height, err = addBars(g, p)
	} else {
		err = addLines(g, p)
	}
	if err != nil {
		return err
	}
	c := vgsvg.New(svgWidth, height)
	canvas := draw.New(c)
	canvas = draw.Crop(canvas, 6, -12, 6, -6)
	g.Draw(canvas)
	_, err = c.WriteTo(w)
	return err
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

func addLines(g *plot.Plot, p *Plot) error {
	if p.XLog {
		g.X.Scale, g.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	if p.YLog {
		g.Y.Scale, g.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	g.Legend.Top, g.Legend.Left = false, true
	if p.Name != "fpr" {
		g.Legend.Top, g.Legend.Left = true, false
	}
	g.Legend.TextStyle.Font.Size = 8
	for _, s := range p.Series {
		points := make(plotter.XYs, 0, len(s.Points))
		for _, q := range s.Points {
			if p.YLog && q.Y <= 0 || p.XLog && q.X <= 0 {
				continue
			}
			points = append(points, plotter.XY{X: q.X, Y: q.Y})
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
			g.Legend.Add(s.Name, line)
			continue
		}
		g.Add(marks)
		g.Legend.Add(s.Name, line, marks)
	}
	return nil
}

// addBars draws lying bars and writes the values beside them.
func addBars(g *plot.Plot, p *Plot) (height vg.Length, err error) {
	n := len(p.Series)
	g.Legend.Top, g.Legend.Left = false, false
	g.Legend.TextStyle.Font.Size = 9
	names := make([]string, len(p.Bars))
	most := 0.0
	for i, name := range p.Bars {
		names[len(names)-1-i] = name // the first one on top
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
		g.Legend.Add(s.Name, bars)
		// In units of a bar's place, of which each is one slot high.
		shift := float64(bars.Offset / slot)
		for j, v := range values {
			if v > 0 {
				labels.XYs = append(labels.XYs, plotter.XY{X: v, Y: float64(j) + shift})
				labels.Labels = append(labels.Labels, " "+figure(v))
			}
		}
	}
	l, err := plotter.NewLabels(labels)
	if err != nil {
		return 0, err
	}
	for i := range l.TextStyle {
		l.TextStyle[i].Font.Size = 8
		l.TextStyle[i].YAlign = draw.YCenter
	}
	g.Add(l)
	g.NominalY(names...)
	g.Y.Min, g.Y.Max = -0.6, float64(len(names))-0.4
	g.X.Min, g.X.Max = 0, math.Max(most*1.12, 1e-9)
	return height, nil
}
