package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/cmd/berth/internal/scoreboard"
	"berth/cmd/berth/internal/simulate"
	"berth/cmd/berth/internal/trace"
	"berth/services"
)

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
	file, err := c.file()
	if err != nil {
		return nil, err
	}
	flags := c.flags()
	if err := errors.Join(c.contradiction(), c.leftOver(file, flags)); err != nil {
		return nil, err
	}
	s := &simulation{scenario: simulate.Default()}
	switch {
	case c.From != "":
		err = c.loadFleet(ctx, s)
	case file.Sessions == nil && flags.Sessions == nil:
		err = s.loadTrace(cmp.Or(flags.Trace, file.Trace))
	}
	if err != nil {
		return nil, err
	}
	if flags.Events != nil {
		file.Events = nil
	}
	usual := s.trace != nil && file.Events == nil && flags.Events == nil
	if err := errors.Join(file.Apply(&s.scenario), flags.Apply(&s.scenario)); err != nil {
		return nil, err
	}
	if document := file.Document(); document != nil {
		s.policy = *document
	}
	if !usual {
		return s, nil
	}
	if s.scenario.Instances < usualInstances {
		return nil, fmt.Errorf("the usual events of a trace are about %d instances: name your own with --event", usualInstances)
	}
	return s, s.scenario.AddEvents(usualEvents(s.scenario.Duration))
}

// file reads the scenario file; a trace that it names lies beside it.
func (c *simulateCmd) file() (*simulate.File, error) {
	if c.Scenario == "" {
		return new(simulate.File), nil
	}
	f, err := os.Open(c.Scenario)
	if err != nil {
		return nil, fmt.Errorf("open the scenario: %w", err)
	}
	file, err := simulate.ReadFile(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if file.Trace != "" && !filepath.IsAbs(file.Trace) {
		file.Trace = filepath.Join(filepath.Dir(c.Scenario), file.Trace)
	}
	return file, nil
}

// flags are what the flags say, as a file would.
func (c *simulateCmd) flags() *simulate.File {
	f := &simulate.File{
		Trace: c.Trace, Sessions: c.Sessions, Instances: c.Instances, Zones: c.Zones, Weights: c.Weights, Keys: c.Keys, Zipf: c.Zipf, Seed: c.Seed,
		Warmup: c.Warmup, Duration: c.Duration, Pace: c.Pace, Workers: c.Workers, Grace: c.Grace, Events: c.Event,
	}
	f.Policy.Points, f.Policy.Bound, f.Policy.MaxAge, f.Policy.MinStick = c.Points, c.Bound, c.MaxAge, c.MinStick
	f.Policy.Affinity, f.Policy.Ramp, f.Policy.MaxChurn = c.Affinity, c.Ramp, c.MaxChurn
	f.Worker.MaxRunning, f.Worker.PrefillTPS, f.Worker.DecodeTPS, f.Worker.CacheBlocks = c.MaxRunning, c.PrefillTPS, c.DecodeTPS, c.CacheBlocks
	return f
}

// contradiction names flags of which one would be ignored.
func (c *simulateCmd) contradiction() error {
	switch {
	case c.Pool != "" && c.From == "":
		return errors.New("--pool is the pool of a live fleet: it needs --from")
	case c.Tune && (c.Compare || c.Plot != ""):
		return errors.New("--tune plays many runs and prints what they cost: want it without --compare and --plot")
	}
	return nil
}

// leftOver names what file and flags say of the sessions or instances where these
// come from elsewhere, and would be ignored.
func (c *simulateCmd) leftOver(file, flags *simulate.File) error {
	said := map[string]bool{}
	for _, f := range []*simulate.File{file, flags} {
		for name, is := range map[string]bool{
			"trace": f.Trace != "", "sessions": f.Sessions != nil, "instances": f.Instances != nil, "weights": f.Weights != nil,
			"keys": f.Keys != nil, "zipf": f.Zipf != nil, "warmup": f.Warmup != nil && *f.Warmup != 0,
		} {
			said[name] = said[name] || is
		}
	}
	what, without := "", []string(nil)
	switch {
	case c.From != "":
		what, without = "--from brings its own instances and sessions, in their stride", []string{"trace", "sessions", "instances", "weights", "keys", "warmup"}
	case said["trace"] || !said["sessions"]:
		what, without = "a trace brings its own sessions and is played from its beginning", []string{"sessions", "keys", "zipf", "warmup"}
	}
	var extra []string
	for _, name := range without {
		if said[name] {
			extra = append(extra, name)
		}
	}
	switch {
	case extra == nil:
		return nil
	case c.From == "" && !said["trace"]:
		what = "without sessions a trace is played, which " + strings.TrimPrefix(what, "a trace ")
	}
	return fmt.Errorf("%s: want it without %s, as a flag and in a scenario file", what, strings.Join(extra, ", "))
}

// loadTrace plays a trace, by default the embedded one, on as many instances as
// the demo does.
func (s *simulation) loadTrace(path string) error {
	t, err := loadTrace(path, 0)
	if err != nil {
		return err
	}
	s.trace = &t
	s.scenario.Instances, s.scenario.Duration, s.scenario.Warmup = scoreboard.Instances, simulate.TraceDuration(t), 0
	return nil
}

// usualInstances is how many instances the usual events are about.
const usualInstances = 5

// usualEvents are what the demo's scoreboard shows: a join, a death, a drain.
func usualEvents(whole time.Duration) []string {
	at := func(quarters int) string { return (whole * time.Duration(quarters) / 4).Truncate(time.Second).String() }
	return []string{at(1) + ":add:1", at(2) + ":kill:i3", at(3) + ":drain:i5"}
}
