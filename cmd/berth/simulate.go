package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"berth/cmd/berth/internal/progress"
	"berth/cmd/berth/internal/scoreboard"
	"berth/cmd/berth/internal/simulate"
	"berth/cmd/berth/internal/trace"
	"berth/services"
)

// simulateCmd answers "what if", offline and in virtual time.
type simulateCmd struct {
	Scenario  string          `type:"existingfile" help:"Scenario file (YAML); flags win over it."`
	Trace     string          `type:"existingfile" help:"Play this trace (JSON lines, gzip allowed). Without it, --sessions or --from, the embedded one is played."`
	Sessions  *simulate.Count `help:"Play a synthetic population of so many sessions, like 1e6."`
	Instances *int            `help:"Instances at the start, i1, i2, …; default 100, and 8 for a trace."`
	Zones     *int            `help:"Zones the instances are dealt out over: a, b, …"`
	Weights   []int           `help:"Weights that are dealt out likewise, like 100,100,50."`
	Event     []string        `sep:"none" placeholder:"TIME:KIND:…" help:"What happens: add:COUNT[:WEIGHT], drain:WHO, kill:WHO, recover:WHO, slow:WHO:FACTOR, weight:WHO:WEIGHT, hot:SESSIONS%:LOAD%[:WHO]; WHO is ids, zone=Z, or how many. May be repeated."`
	Duration  *time.Duration  `help:"Time that is played; default 15m, or the trace's."`
	Warmup    *time.Duration  `help:"Time that is played first and not counted; default 5m, none for a trace."`
	Keys      *simulate.Count `help:"Affinity keys the sessions share; 0 gives each its own."`
	Zipf      *float64        `help:"Exponent of the keys' popularity, or without --keys of the sessions' activity; 0 is even."`
	Seed      *uint64         `help:"Seed of the population; equal seeds give equal figures."`

	Points      *int           `help:"Ring points of an instance of weight 100."`
	Bound       *int           `help:"Bound on an instance's load in percent of its fair share; 0 is none."`
	MaxAge      *time.Duration `help:"A binding older than this leaves an owner over its bound; 0 is never."`
	MinStick    *time.Duration `help:"No binding younger than this is let go for load."`
	Affinity    *time.Duration `help:"Idle time after which a binding lapses."`
	Ramp        *time.Duration `help:"Time in which a newcomer comes to its whole weight."`
	MaxChurn    *int           `help:"Percent of the key space that joins may move in a minute; 0 is no limit."`
	Pace        *float64       `help:"Sessions a second that a drain moves."`
	MaxRunning  *int           `help:"Requests an instance runs at once; default: so many that the pool is three fifths full."`
	PrefillTPS  *float64       `name:"prefill-tps" help:"Prompt tokens a second an instance computes for a request."`
	DecodeTPS   *float64       `name:"decode-tps" help:"Tokens a second of an answer."`
	CacheBlocks *int           `help:"KV cache of an instance, in blocks of 512 tokens."`

	From  string `aliases:"url" placeholder:"URL" help:"Play the live fleet of this Berth: its instances, policy and sessions, their ids hashed."`
	Token string `env:"BERTH_TOKEN" help:"Token of the caller, an operator."`
	Pool  string `help:"Pool of the live fleet."`

	TLSFlags `embed:""`

	Check string `placeholder:"JOB" help:"Print what was predicted for a drain that was really made, when it began, beside what it did; needs --from. Nothing else is played."`

	Tune    bool   `help:"Search ring points, bound, maximum age, ramp and pace for the scenario, and print what each costs."`
	Compare bool   `help:"Play random, modulo, a plain ring and a bounded ring beside it."`
	Plot    string `type:"path" placeholder:"FILE" help:"Draw the run into this .html or .svg file."`
	JSON    bool   `help:"Print JSON for scripts."`
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

// simulation is a scenario with what is played in it.
type simulation struct {
	scenario simulate.Scenario
	trace    *trace.Trace    // nil: not a trace
	fleet    *simulate.Fleet // nil: not a live fleet
	policy   services.PoolPolicy
}

func (s *simulation) run(ctx context.Context, others []string, tell func(string, int, int)) (*simulate.Report, error) {
	switch {
	case s.fleet != nil:
		return simulate.RunFleet(ctx, s.scenario, s.fleet, others, tell)
	case s.trace != nil:
		return simulate.RunTrace(ctx, s.scenario, *s.trace, others, tell)
	}
	return simulate.Run(ctx, s.scenario, others, tell)
}

// input reads the scenario, from the file and then from the flags.
func (c *simulateCmd) input(ctx context.Context) (*simulation, error) {
	file := new(simulate.File)
	if c.Scenario != "" {
		f, err := os.Open(c.Scenario)
		if err != nil {
			return nil, fmt.Errorf("open the scenario: %w", err)
		}
		file, err = simulate.ReadFile(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		if file.Trace != "" && !filepath.IsAbs(file.Trace) {
			file.Trace = filepath.Join(filepath.Dir(c.Scenario), file.Trace)
		}
	}
	s := &simulation{scenario: simulate.Default()}
	if c.Trace != "" {
		file.Trace = c.Trace
	}
	if c.Trace != "" && c.Sessions != nil || file.Trace != "" && file.Sessions != nil {
		return nil, errors.New("a trace brings its own sessions: want --trace or --sessions")
	}
	switch {
	case c.From != "" && (file.Trace != "" || c.Sessions != nil || c.Instances != nil):
		return nil, errors.New("--from brings its own instances and sessions: want it without --trace, --sessions and --instances")
	case c.From != "":
		if err := c.loadFleet(ctx, s); err != nil {
			return nil, err
		}
	case c.Sessions == nil && file.Sessions == nil:
		if err := s.loadTrace(file.Trace); err != nil {
			return nil, err
		}
	}
	if err := file.Apply(&s.scenario); err != nil {
		return nil, err
	}
	if err := c.apply(&s.scenario); err != nil {
		return nil, err
	}
	if s.trace != nil && len(s.scenario.Events) == 0 {
		return s, s.scenario.AddEvents(usualEvents(s.scenario.Duration))
	}
	return s, nil
}

// loadTrace plays a trace, by default the embedded one, on as many instances as
// the demo does.
func (s *simulation) loadTrace(path string) error {
	source := io.NopCloser(trace.Conversation())
	if path != "" {
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("open the trace: %w", err)
		}
		source = f
	}
	t, err := trace.Load(source, 0)
	if err = errors.Join(err, source.Close()); err != nil {
		return fmt.Errorf("load the trace: %w", err)
	}
	s.trace = &t
	s.scenario.Instances, s.scenario.Duration, s.scenario.Warmup = scoreboard.Instances, simulate.TraceDuration(t), 0
	return nil
}

// usualEvents are what the demo's scoreboard shows: a join, a death, a drain.
func usualEvents(whole time.Duration) []string {
	at := func(quarters int) string { return (whole * time.Duration(quarters) / 4).Round(time.Second).String() }
	return []string{at(1) + ":add:1", at(2) + ":kill:i3", at(3) + ":drain:i5"}
}

// apply writes what the flags say into the scenario.
func (c *simulateCmd) apply(s *simulate.Scenario) error {
	over := simulate.File{
		Sessions: c.Sessions, Instances: c.Instances, Zones: c.Zones, Weights: c.Weights, Keys: c.Keys, Zipf: c.Zipf, Seed: c.Seed,
		Warmup: c.Warmup, Duration: c.Duration, Pace: c.Pace, Events: c.Event,
	}
	over.Policy.Points, over.Policy.Bound, over.Policy.MaxAge, over.Policy.MinStick = c.Points, c.Bound, c.MaxAge, c.MinStick
	over.Policy.Affinity, over.Policy.Ramp, over.Policy.MaxChurn = c.Affinity, c.Ramp, c.MaxChurn
	over.Worker.MaxRunning, over.Worker.PrefillTPS, over.Worker.DecodeTPS, over.Worker.CacheBlocks = c.MaxRunning, c.PrefillTPS, c.DecodeTPS, c.CacheBlocks
	if len(c.Event) > 0 {
		s.Events = nil
	}
	return over.Apply(s)
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
