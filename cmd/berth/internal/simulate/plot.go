package simulate

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
	"time"
)

// A plot is drawn with these measures, in pixels.
const (
	plotWidth   = 900
	panelHeight = 130
	panelGap    = 46
	marginLeft  = 70
	marginRight = 20
	marginTop   = 64
)

// colours of the policies, Berth's first.
var colours = []string{"#0b6e99", "#d1495b", "#edae49", "#7a5195", "#66a182"}

// panels are the figures over time, one beneath the other.
var panels = []struct {
	title string
	value func(*Sample) float64
	from  float64 // the axis begins here
}{
	{"load: busiest instance / fair share", func(s *Sample) float64 { return s.MaxMean }, 1},
	{"load: standard deviation / fair share", func(s *Sample) float64 { return s.StdDevMean }, 0},
	{"hit rate of prompt blocks", func(s *Sample) float64 { return s.HitRate }, 0},
	{"live jumps: turns of sessions with affinity served elsewhere", func(s *Sample) float64 { return float64(s.LiveJumps) }, 0},
	{"prompt tokens recomputed", func(s *Sample) float64 { return float64(s.Recomputed) }, 0},
	{"requests waiting", func(s *Sample) float64 { return float64(s.Waiting) }, 0},
}

// WriteSVG draws the report as one SVG image that needs nothing else.
func (r *Report) WriteSVG(w io.Writer) error {
	outcomes := append([]Outcome{r.Outcome}, r.Others...)
	height := marginTop + len(panels)*(panelHeight+panelGap)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="system-ui, sans-serif" font-size="12">`+"\n",
		plotWidth, height, plotWidth, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", plotWidth, height)
	fmt.Fprintf(&b, `<text x="%d" y="20" font-size="15" font-weight="600">%s on %d instances</text>`+"\n",
		marginLeft, html.EscapeString(r.Workload), r.Instances)
	for i, o := range outcomes {
		x := marginLeft + i*150
		fmt.Fprintf(&b, `<rect x="%d" y="32" width="14" height="4" fill="%s"/><text x="%d" y="39">%s</text>`+"\n",
			x, colours[i%len(colours)], x+20, html.EscapeString(o.Policy))
	}
	end := r.end()
	for i := range panels {
		r.drawPanel(&b, i, outcomes, end)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteHTML wraps the plot and the events into a page.
func (r *Report) WriteHTML(w io.Writer) error {
	var table strings.Builder
	if err := r.WriteTable(&table); err != nil {
		return err
	}
	if _, err := io.WriteString(w, "<!doctype html>\n<meta charset=\"utf-8\">\n<title>berth simulate</title>\n<body style=\"margin:2em;max-width:1200px\">\n"); err != nil {
		return err
	}
	if err := r.WriteSVG(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "<pre style=\"overflow:auto\">%s</pre>\n</body>\n", html.EscapeString(table.String()))
	return err
}

func (r *Report) end() float64 {
	end := 1.0
	if n := len(r.Series); n > 0 {
		end = r.Series[n-1].AtS
	}
	return end
}

func (r *Report) drawPanel(b *strings.Builder, i int, outcomes []Outcome, end float64) {
	p := panels[i]
	top := marginTop + i*(panelHeight+panelGap)
	most := p.from
	for _, o := range outcomes {
		for j := range o.Series {
			most = max(most, p.value(&o.Series[j]))
		}
	}
	most = niceAbove(most, p.from)
	x := func(at float64) float64 { return marginLeft + at/end*(plotWidth-marginLeft-marginRight) }
	y := func(v float64) float64 {
		return float64(top+panelHeight) - (max(v, p.from)-p.from)/(most-p.from)*panelHeight
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" font-weight="600">%s</text>`+"\n", marginLeft, top-6, p.title)
	for step := range 5 {
		v := p.from + (most-p.from)*float64(step)/4
		fmt.Fprintf(b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end" fill="#555">%s</text>`+"\n",
			marginLeft, plotWidth-marginRight, y(v), y(v), marginLeft-6, y(v)+4, axis(v))
	}
	for step := range 7 {
		at := end * float64(step) / 6
		anchor := "middle"
		if step == 6 {
			anchor = "end"
		}
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="%s" fill="#555">%s</text>`+"\n",
			x(at), top+panelHeight+15, anchor, (time.Duration(at) * time.Second).String())
	}
	for n, e := range r.Events {
		at, err := time.ParseDuration(e.At)
		if err != nil {
			continue
		}
		fmt.Fprintf(b, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#888" stroke-dasharray="4 3"><title>%s</title></line>`+"\n",
			x(at.Seconds()), x(at.Seconds()), top, top+panelHeight, html.EscapeString(e.Event))
		if i == 0 {
			fmt.Fprintf(b, `<text x="%.1f" y="%d" fill="#555" font-size="10">%s</text>`+"\n",
				x(at.Seconds())+3, top+10+n%4*11, html.EscapeString(e.Event))
		}
	}
	for n := len(outcomes) - 1; n >= 0; n-- { // Berth on top
		var path strings.Builder
		for j := range outcomes[n].Series {
			s := &outcomes[n].Series[j]
			fmt.Fprintf(&path, "%.1f,%.1f ", x(s.AtS), y(p.value(s)))
		}
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="%s"/>`+"\n", colours[n%len(colours)], strings.TrimSpace(path.String()))
	}
}

// niceAbove is a round number above the values to be drawn.
func niceAbove(most, from float64) float64 {
	span := (most - from) * 1.05
	if span <= 0 {
		return from + 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(span)))
	for _, f := range []float64{1, 2, 4, 5, 8, 10} {
		if f*unit >= span {
			return from + f*unit
		}
	}
	return from + 10*unit
}

// axis writes a value of an axis short.
func axis(v float64) string {
	switch {
	case v >= 1_000_000:
		return fmt.Sprintf("%.3gM", v/1e6)
	case v >= 10_000:
		return fmt.Sprintf("%.3gk", v/1e3)
	}
	return fmt.Sprintf("%.3g", v)
}
