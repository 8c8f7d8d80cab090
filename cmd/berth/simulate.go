package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/cmd/berth/internal/progress"
	"berth/cmd/berth/internal/simulate"
)

// simulateCmd answers "what if", offline and in virtual time.
type simulateCmd struct {
	Scenario  string           `type:"existingfile" help:"Scenario file (YAML), of which an example stands above; flags win over it."`
	Trace     string           `type:"existingfile" help:"Play this trace (JSON lines, gzip allowed). Without it, --sessions or --from, the embedded one is played."`
	Sessions  *simulate.Count  `help:"Play a synthetic population of so many sessions, like 1e6."`
	Instances *simulate.Count  `help:"Instances at the start, i1, i2, …; default 100, and 8 for a trace."`
	Zones     *simulate.Count  `help:"Zones the instances are dealt out over: a, b, …"`
	Weights   []simulate.Count `help:"Weights that are dealt out likewise, like 100,100,50."`
	Event     []string         `sep:"none" placeholder:"TIME:KIND:…" help:"What happens, in place of the file's events: add:COUNT[:WEIGHT], drain:WHO, kill:WHO, recover:WHO, slow:WHO:FACTOR, weight:WHO:WEIGHT, hot:SESSIONS%:LOAD%[:WHO]; WHO is ids, zone=Z, or how many. May be repeated."`
	Duration  *time.Duration   `help:"Time that is played; default 15m, or the trace's."`
	Warmup    *time.Duration   `help:"Time that is played first and not counted; default 5m, none for a trace."`
	Keys      *simulate.Count  `help:"Affinity keys the sessions share; 0 gives each its own."`
	Zipf      *float64         `help:"Exponent of the keys' popularity, or without --keys of the sessions' activity; 0 is even."`
	Seed      *uint64          `help:"Seed of the population; equal seeds give equal figures."`

	Points      *simulate.Count   `help:"Ring points of an instance of weight 100."`
	Bound       *simulate.Count   `help:"Bound on an instance's load in percent of its fair share; 0 is none."`
	MaxAge      *time.Duration    `help:"A binding older than this leaves an owner over its bound; 0 is never."`
	MinStick    *time.Duration    `help:"No binding younger than this is let go for load."`
	Affinity    *time.Duration    `help:"Idle time after which a binding lapses."`
	Ramp        *time.Duration    `help:"Time in which a newcomer comes to its whole weight."`
	MaxChurn    *simulate.Count   `help:"Percent of the key space that joins may move in a minute; 0 is no limit."`
	Pace        *float64          `help:"Sessions a second that a drain moves."`
	Workers     *simulate.Workers `placeholder:"KIND" help:"How workers take part in drains: cooperative pull tasks, passive send heartbeats alone, silent neither."`
	Grace       *time.Duration    `name:"in-flight-grace" help:"How long a drain waits after the last turn of a session, and for the last of silent workers; default 30s. Cooperative workers say it themselves."`
	MaxRunning  *simulate.Count   `help:"Requests an instance runs at once; default: so many that the pool is three fifths full, with what hot sets bring."`
	PrefillTPS  *float64          `name:"prefill-tps" help:"Prompt tokens a second an instance computes for a request."`
	DecodeTPS   *float64          `name:"decode-tps" help:"Tokens a second of an answer."`
	CacheBlocks *simulate.Count   `help:"KV cache of an instance, in blocks of 512 tokens."`

	From  string `aliases:"url" placeholder:"URL" help:"Play the live fleet of this Berth: its instances, policy and sessions, their ids hashed."`
	Token string `env:"BERTH_TOKEN" help:"Token of the caller, an operator."`
	Pool  string `help:"Pool of the live fleet."`

	TLSFlags `embed:""`

	Check string `placeholder:"JOB" help:"Print what was predicted for a drain that was really made, when it began, beside what it did; needs --from. Nothing else is played."`

	Tune    bool   `help:"Search ring points, bound, maximum age, ramp, churn and pace for the scenario: print what each value costs and how sure that is, and the policy to put. It changes what costs less beyond chance, and keeps the rest."`
	Compare bool   `help:"Play random, modulo, a plain ring and a bounded ring beside it."`
	Plot    string `type:"path" placeholder:"FILE" help:"Draw the run into this .html or .svg file."`
	JSON    bool   `help:"Print JSON for scripts."`
}

// Help shows a scenario file. The indent keeps its lines.
func (c *simulateCmd) Help() string {
	return "Plays a trace, a synthetic population or a live fleet through the code that decides in production. A scenario file says" +
		" what the flags say, and its policy may be the document that PUT /v1/pools/{pool}/policy takes and --tune prints:\n\n    " +
		strings.ReplaceAll(strings.TrimSpace(simulate.Example), "\n", "\n    ") +
		"\n\nEvery key, its unit and its limits: docs/scenarios.md."
}

// Run plays the scenario and prints what it shows.
func (c *simulateCmd) Run(ctx context.Context, std *streams) error {
	if c.Check != "" {
		return c.check(ctx, std)
	}
	input, err := c.input(ctx)
	if err != nil {
		return err
	}
	if c.Tune {
		return c.tune(ctx, std, input)
	}
	draw, err := c.drawer()
	if err != nil {
		return err
	}
	var others []string
	if c.Compare {
		others = []string{simulate.Random, simulate.Modulo, simulate.PlainRing, simulate.BoundedRing}
	}
	report, err := input.run(ctx, others, progressOf(std.err))
	if err != nil {
		return err
	}
	if err := draw(report); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(std, report)
	}
	return report.WriteTable(std.out)
}

// drawer opens the plot's file first, so that a long run does not end in an
// error that could have been known.
func (c *simulateCmd) drawer() (func(*simulate.Report) error, error) {
	if c.Plot == "" {
		return func(*simulate.Report) error { return nil }, nil
	}
	kind := filepath.Ext(c.Plot)
	if kind != ".html" && kind != ".svg" {
		return nil, fmt.Errorf("--plot %s: want a name that ends in .html or .svg", c.Plot)
	}
	f, err := os.Create(c.Plot)
	if err != nil {
		return nil, fmt.Errorf("--plot: %w", err)
	}
	return func(r *simulate.Report) error {
		draw := r.WriteHTML
		if kind == ".svg" {
			draw = r.WriteSVG
		}
		return errors.Join(draw(f), f.Close())
	}, nil
}

// progressOf shows a bar for each policy that is played.
func progressOf(out io.Writer) func(policy string, done, of int) {
	var bar *progress.Bar
	var on string
	return func(policy string, done, of int) {
		if policy != on {
			on, bar = policy, progress.New(out, "simulating "+policy, of)
		}
		bar.Set(done, of)
		if done == of {
			bar.Done()
		}
	}
}
