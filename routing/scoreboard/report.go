package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
)

// report is what a run measured. Its JSON is for scripts.
type report struct {
	Machine  machine           `json:"machine"`
	Keys     int               `json:"keys"`
	Fleets   int               `json:"fleets"`
	Rounds   int               `json:"rounds"`
	Versions map[string]string `json:"versions"` // module → version
	Rows     []line            `json:"rows"`
	Notes    []string          `json:"notes"`
}

type machine struct {
	CPU   string `json:"cpu"`
	Cores int    `json:"cores"`
	OS    string `json:"os"`
	Go    string `json:"go"`
}

// line is a row as it is printed. A figure that could not be had is null.
type line struct {
	Library     string   `json:"library"`
	Points      int      `json:"points"`
	Why         string   `json:"why"`
	Lookup10    *float64 `json:"lookup_x_hash_10"`
	Lookup100   *float64 `json:"lookup_x_hash_100"`
	Lookup1000  *float64 `json:"lookup_x_hash_1000"`
	Abreast     *float64 `json:"abreast_x_hash_100"`
	Allocs      float64  `json:"allocs"`
	MaxMean     float64  `json:"max_mean"`
	Build       float64  `json:"build_100_ms"`
	BuildRatio  float64  `json:"build_100_over_berth"`
	Build1000   *float64 `json:"build_1000_ms"`
	Add         float64  `json:"add_ms"`
	AddRatio    float64  `json:"add_over_berth"`
	Remove      float64  `json:"remove_ms"`
	RemoveRatio float64  `json:"remove_over_berth"`
	RemoveAnew  bool     `json:"remove_is_a_build"`
	MovedAdd    float64  `json:"moved_on_add_over_ideal"`
	MovedRemove float64  `json:"moved_on_remove_over_ideal"`
	Avoidable   float64  `json:"avoidable_percent"`
}

func newReport(p plan, rows []*row, notes []string) *report {
	r := &report{
		Machine: machine{CPU: cpu(), Cores: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version()},
		Keys:    p.keys, Fleets: p.fleets, Rounds: p.rounds, Versions: versions(rows), Notes: notes,
	}
	berth := rows[0]
	for _, x := range rows {
		r.Rows = append(r.Rows, line{
			Library: x.name, Points: x.given, Why: x.why,
			Lookup10: figure(x.lookup, 10), Lookup100: figure(x.lookup, 100), Lookup1000: figure(x.lookup, 1000),
			Abreast: figure(x.abreast, 100), Allocs: math.Round(x.allocs), MaxMean: round(x.maxMean),
			Build: round(median(x.builds)), BuildRatio: round(x.builds.over(berth.builds)), Build1000: once(x.large),
			Add: round(median(x.adds)), AddRatio: round(x.adds.over(berth.adds)),
			Remove: round(median(x.removes)), RemoveRatio: round(x.removes.over(berth.removes)), RemoveAnew: x.anew,
			MovedAdd: round(x.added), MovedRemove: round(x.removed), Avoidable: round(x.avoidable),
		})
	}
	return r
}

func figure(from map[int]float64, n int) *float64 {
	if x, ok := from[n]; ok {
		x = round(x)
		return &x
	}
	return nil
}

// once is a figure that was measured at most once.
func once(s series) *float64 {
	if len(s) == 0 {
		return nil
	}
	x := round(s[0])
	return &x
}

func round(x float64) float64 { return math.Round(x*1000) / 1000 }

// cpu is the processor's name where the system tells it.
func cpu() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	defer f.Close() //nolint:errcheck // only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "model name"); ok {
			return strings.TrimLeft(name, "\t :")
		}
	}
	return "unknown"
}

// versions are those that this program was built with.
func versions(rows []*row) map[string]string {
	wanted := make(map[string]string)
	for _, r := range rows {
		if r.module != "berth" {
			wanted[r.module] = ""
		}
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if _, listed := wanted[dep.Path]; listed {
				wanted[dep.Path] = dep.Version
			}
		}
	}
	return wanted
}

func (r *report) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// writeTable writes Markdown, which docs/scoreboard.md shows as it stands.
func (r *report) writeTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d cores, %s, %s; %d keys, %d fleets, %d rounds\n\n",
		r.Machine.CPU, r.Machine.Cores, r.Machine.OS, r.Machine.Go, r.Keys, r.Fleets, r.Rounds)
	b.WriteString("| library | points | lookup × hash at 10 / 100 / 1,000 | abreast at 100 | allocs | max/mean | build ms at 100 (× Berth) / at 1,000 | add ms (× Berth) | remove ms (× Berth) | moved on add | on remove | avoidable % |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, l := range r.Rows {
		anew := ""
		if l.RemoveAnew {
			anew = "*"
		}
		fmt.Fprintf(&b, "| %s | %s | %s / %s / %s | %s | %.0f | %.3f | %s / %s | %s | %s%s | %.2f | %.2f | %s |\n",
			l.Library, l.points(), ratio(l.Lookup10), ratio(l.Lookup100), ratio(l.Lookup1000), ratio(l.Abreast), l.Allocs, l.MaxMean,
			ms(l.Build, l.BuildRatio), whole(l.Build1000), ms(l.Add, l.AddRatio), ms(l.Remove, l.RemoveRatio), anew, l.MovedAdd, l.MovedRemove, percent(l.Avoidable))
	}
	b.WriteString("\n`*` has no way to remove one: built anew. `–` over a minute to build.\n")
	for _, note := range r.Notes {
		b.WriteString("\n" + note + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (l *line) points() string {
	if l.Points == 0 {
		return l.Why
	}
	return fmt.Sprintf("%d (%s)", l.Points, l.Why)
}

func ratio(x *float64) string {
	if x == nil {
		return "–"
	}
	if *x >= 100 {
		return fmt.Sprintf("%.0f", *x)
	}
	if *x >= 10 {
		return fmt.Sprintf("%.1f", *x)
	}
	return fmt.Sprintf("%.2f", *x)
}

// ms writes milliseconds and how often Berth fits into them.
func ms(x, overBerth float64) string {
	switch {
	case x < 0.01:
		return "<0.01"
	case x < 10:
		return fmt.Sprintf("%.2f (%s×)", x, ratio(&overBerth))
	}
	return fmt.Sprintf("%.0f (%s×)", x, ratio(&overBerth))
}

func whole(ms *float64) string {
	switch {
	case ms == nil:
		return "–"
	case *ms < 1:
		return "<1"
	}
	return fmt.Sprintf("%.0f", *ms)
}

func percent(x float64) string {
	if x == 0 {
		return "0"
	}
	return fmt.Sprintf("%.2f", x)
}
