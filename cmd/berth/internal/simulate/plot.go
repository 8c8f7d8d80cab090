package simulate

import (
	"fmt"
	"html"
	"io"
	"strings"
	"time"
)

// A plot is drawn with these measures, in pixels.
const (
	plotWidth   = 900
	plotRight   = plotWidth - 24
	marginLeft  = 70
	marginTop   = 52 // title and legend
	laneHeight  = 13 // of labels of events
	panelHeight = 130
	panelGap    = 50
)

// colours of the policies, Berth's first.
var colours = []string{"#0b6e99", "#d1495b", "#edae49", "#7a5195", "#66a182"}

// panels are the figures over time, one beneath the other.
var panels = []struct {
	title string
	value func(*Sample) float64
	axis  axis
	sum   bool // of each stretch
}{
	{"load: busiest instance / fair share", func(s *Sample) float64 { return s.MaxMean }, axis{from: 1}, false},
	{"load: standard deviation / fair share", func(s *Sample) float64 { return s.StdDevMean }, axis{}, false},
	{"hit rate of prompt blocks", func(s *Sample) float64 { return s.HitRate }, axis{to: 1, step: 0.25}, false},
	{"live jumps: turns of sessions with affinity served elsewhere", func(s *Sample) float64 { return float64(s.LiveJumps) }, axis{whole: true}, true},
	{"prompt tokens recomputed", func(s *Sample) float64 { return float64(s.Recomputed) }, axis{whole: true}, true},
	{"requests waiting", func(s *Sample) float64 { return float64(s.Waiting) }, axis{whole: true}, false},
}

// plot is a report while it is drawn.
type plot struct {
	strings.Builder
	*Report
	outcomes []Outcome
	end      time.Duration
	top      int // of the first panel
}

// WriteSVG draws the report as one SVG image that needs nothing else.
func (r *Report) WriteSVG(w io.Writer) error {
	p := &plot{Report: r, outcomes: append([]Outcome{r.Outcome}, r.Others...), end: r.end()}
	lanes := p.lanes()
	p.top = marginTop + 14 + 22
	for _, lane := range lanes {
		p.top = max(p.top, marginTop+14+22+(lane+1)*laneHeight)
	}
	height := p.top + len(panels)*(panelHeight+panelGap) - panelGap/2
	fmt.Fprintf(p, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="system-ui, sans-serif" font-size="12">`+"\n",
		plotWidth, height, plotWidth, height)
	fmt.Fprintf(p, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", plotWidth, height)
	fmt.Fprintf(p, `<text x="%d" y="20" font-size="15" font-weight="600">%s on %d instances</text>`+"\n",
		marginLeft, html.EscapeString(r.Workload), r.Instances)
	for i, o := range p.outcomes {
		x := marginLeft + i*150
		fmt.Fprintf(p, `<rect x="%d" y="36" width="14" height="4" fill="%s"/><text x="%d" y="42">%s</text>`+"\n",
			x, colours[i%len(colours)], x+20, html.EscapeString(o.Policy))
	}
	p.labels(lanes)
	for i := range panels {
		p.panel(i)
	}
	p.WriteString("</svg>\n")
	_, err := io.WriteString(w, p.String())
	return err
}

// WriteHTML wraps the plot and the tables into a page.
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

func (r *Report) end() time.Duration {
	if d, err := time.ParseDuration(r.Duration); err == nil && d > 0 {
		return d
	}
	return time.Second
}

// x is where a moment is drawn.
func (p *plot) x(at time.Duration) float64 {
	return marginLeft + at.Seconds()/p.end.Seconds()*(plotRight-marginLeft)
}

// label is what is written of an event, and how wide about that is.
func label(e *Effect) (text string, width float64) {
	const most = 36
	text = e.Event
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most-1]) + "…"
	}
	return text, 5.6 * float64(len([]rune(text)))
}

// labelAt is where an event's label begins: beside its line, on the side that has room.
func (p *plot) labelAt(at time.Duration, width float64) float64 {
	return min(p.x(at)+3, plotRight-width)
}

// lanes deals labels out over lines, so that none lies on another. Those of one event
// that comes after many others may have to.
func (p *plot) lanes() []int {
	const most = 8
	var ends [most]float64
	var lanes []int
	for i := range p.Events {
		at, _ := time.ParseDuration(p.Events[i].At)
		_, width := label(&p.Events[i])
		lane := 0
		for lane < most-1 && ends[lane] > p.labelAt(at, width) {
			lane++
		}
		ends[lane] = p.labelAt(at, width) + width + 6
		lanes = append(lanes, lane)
	}
	return lanes
}

// labels writes what happens above the first panel.
func (p *plot) labels(lanes []int) {
	for i := range p.Events {
		e := &p.Events[i]
		at, _ := time.ParseDuration(e.At)
		text, width := label(e)
		y := marginTop + 12 + lanes[i]*laneHeight
		fmt.Fprintf(p, `<text x="%.1f" y="%d" fill="#333" font-size="10">%s<title>%s</title></text>`+"\n",
			p.labelAt(at, width), y, html.EscapeString(text), html.EscapeString(e.Event))
		fmt.Fprintf(p, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#bbb"/>`+"\n", p.x(at), p.x(at), y-8, p.top-20)
	}
}

// panel draws the i-th figure.
func (p *plot) panel(i int) {
	top := p.top + i*(panelHeight+panelGap)
	ax, most := panels[i].axis, 0.0
	for _, o := range p.outcomes {
		for j := range o.Series {
			most = max(most, panels[i].value(&o.Series[j]))
		}
	}
	ax = ax.upTo(most)
	y := func(v float64) float64 {
		return float64(top+panelHeight) - (max(v, ax.from)-ax.from)/(ax.to-ax.from)*panelHeight
	}
	title := panels[i].title
	if panels[i].sum && len(p.Series) > 0 {
		title += ", every " + clockTime(time.Duration(p.Series[0].AtS*float64(time.Second)))
	}
	fmt.Fprintf(p, `<text x="%d" y="%d" font-weight="600">%s</text>`+"\n", marginLeft, top-8, title)
	for _, v := range ax.ticks() {
		fmt.Fprintf(p, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#e2e2e2"/><text x="%d" y="%.1f" text-anchor="end" fill="#555">%s</text>`+"\n",
			marginLeft, plotRight, y(v), y(v), marginLeft-6, y(v)+4, tick(v))
	}
	step := timeStep(p.end)
	for at := time.Duration(0); at <= p.end; at += step {
		fmt.Fprintf(p, `<text x="%.1f" y="%d" text-anchor="middle" fill="#555">%s</text>`+"\n", p.x(at), top+panelHeight+16, clockTime(at))
	}
	for n := range p.Events {
		e := &p.Events[n]
		at, _ := time.ParseDuration(e.At)
		fmt.Fprintf(p, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#999" stroke-dasharray="4 3"><title>%s</title></line>`+"\n",
			p.x(at), p.x(at), top, top+panelHeight, html.EscapeString(e.Event))
	}
	for n := len(p.outcomes) - 1; n >= 0; n-- { // Berth on top
		var path strings.Builder
		for j := range p.outcomes[n].Series {
			s := &p.outcomes[n].Series[j]
			fmt.Fprintf(&path, "%.1f,%.1f ", p.x(time.Duration(s.AtS*float64(time.Second))), y(panels[i].value(s)))
		}
		fmt.Fprintf(p, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="%s"/>`+"\n", colours[n%len(colours)], strings.TrimSpace(path.String()))
	}
}
