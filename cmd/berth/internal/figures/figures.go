// Package figures writes numbers as the reports of this program show them, so
// that a figure reads the same wherever it is printed.
package figures

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Ratio is part ÷ whole with six digits, 0 of nothing.
func Ratio(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return Round(float64(part) / float64(whole))
}

// Round keeps six digits: more are noise to whoever reads the JSON.
func Round(x float64) float64 { return math.Round(x*1e6) / 1e6 }

// Percent writes a share of 0 to 1.
func Percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 1, 64) + " %" }

// Short writes a count short: 812, 45k, 2.3M.
func Short(n int) string {
	switch {
	case n >= 1_000_000:
		return strconv.FormatFloat(float64(n)/1e6, 'f', 1, 64) + "M"
	case n >= 1_000:
		return strconv.Itoa((n+500)/1_000) + "k"
	}
	return strconv.Itoa(n)
}

// Row writes the cells of one line of a table that aligns at tabs.
func Row(w io.Writer, cells ...string) { fmt.Fprintln(w, strings.Join(cells, "\t")+"\t") }
