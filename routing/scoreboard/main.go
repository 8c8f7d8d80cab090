// Command scoreboard measures Berth's ring beside the Go libraries people would
// pick instead, all on the same work in one run, and prints a table.
//
// It is a module of its own, so that nobody who builds or tests Berth needs the
// libraries. docs/scoreboard.md holds its table and says what the columns mean;
// `make scoreboard` prints it anew.
//
// Every library appears with the number of points that its documentation gives
// as the default, and again with as many as it needs to spread keys as evenly
// as Berth's ring does, where that number exists: speed and movement compare
// fairly only at equal balance. A library is never patched and never given a
// hash function where it brings its own.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	err := run(os.Args[1:], os.Stdout, os.Stderr)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "scoreboard:", err)
		os.Exit(1)
	}
}

// plan says how much is measured.
type plan struct {
	keys   int // that balance and movement are counted on
	fleets int // of different member names, for means
	rounds int // interleaved rounds of lookups
	only   string
}

func run(args []string, stdout, stderr io.Writer) error {
	var p plan
	flags := flag.NewFlagSet("scoreboard", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&p.keys, "keys", 1_000_000, "keys that balance and movement are counted on")
	flags.IntVar(&p.fleets, "fleets", 3, "fleets of different names that they are averaged over")
	flags.IntVar(&p.rounds, "rounds", 301, "interleaved rounds of lookups")
	flags.StringVar(&p.only, "only", "", "only subjects whose name contains this; Berth is always there")
	asJSON := flags.Bool("json", false, "print JSON for scripts")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if p.keys < chainKeys || p.fleets < 1 || p.rounds < 1 {
		return fmt.Errorf("want at least %d keys, 1 fleet and 1 round", chainKeys)
	}
	report, err := measure(p, func(format string, args ...any) {
		fmt.Fprintf(stderr, format+"\n", args...)
	})
	if err != nil {
		return err
	}
	if *asJSON {
		return report.writeJSON(stdout)
	}
	return report.writeTable(stdout)
}
