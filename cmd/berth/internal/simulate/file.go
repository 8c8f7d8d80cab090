package simulate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"go.yaml.in/yaml/v3"
)

// File is a scenario as it is written down. What is absent keeps its default.
//
//	sessions: 100000
//	instances: 100
//	zones: 3
//	duration: 20m
//	policy: {points: 512, bound: 125, max_age: 5m}
//	events:
//	  - 2m:add:4
//	  - 5m:kill:zone=b
type File struct {
	Trace     string         `yaml:"trace"`
	Sessions  *Count         `yaml:"sessions"`
	Instances *Count         `yaml:"instances"`
	Zones     *Count         `yaml:"zones"`
	Weights   []Count        `yaml:"weights"`
	Keys      *Count         `yaml:"keys"`
	Zipf      *float64       `yaml:"zipf"`
	Seed      *uint64        `yaml:"seed"`
	Warmup    *time.Duration `yaml:"warmup"`
	Duration  *time.Duration `yaml:"duration"`
	Policy    filePolicy     `yaml:"policy"`
	Worker    fileWorker     `yaml:"worker"`
	Pace      *float64       `yaml:"pace"`    // sessions a second of a drain
	Workers   *Workers       `yaml:"workers"` // cooperative, passive or silent in drains
	Grace     *time.Duration `yaml:"in_flight_grace"`
	Events    []string       `yaml:"events"`
}

type filePolicy struct {
	Points     *Count         `yaml:"points"`
	Slots      *Count         `yaml:"slots"`
	CapPercent *Count         `yaml:"cap_percent"`
	Bound      *Count         `yaml:"bound"` // percent; 0 is none
	Gap        *Count         `yaml:"gap"`
	Noise      *Count         `yaml:"noise"`
	MinStick   *time.Duration `yaml:"min_stick"`
	MaxAge     *time.Duration `yaml:"max_age"`
	Affinity   *time.Duration `yaml:"affinity_idle"`
	Ramp       *time.Duration `yaml:"ramp"`
	MaxChurn   *Count         `yaml:"max_churn"` // percent of the key space a minute
}

type fileWorker struct {
	MaxRunning  *Count   `yaml:"max_running"`
	PrefillTPS  *float64 `yaml:"prefill_tps"`
	DecodeTPS   *float64 `yaml:"decode_tps"`
	CacheBlocks *Count   `yaml:"cache_blocks"`
}

// Count is a whole number that may be written like 1e6.
type Count int

// UnmarshalText reads 1000000, 1_000_000 or 1e6.
func (c *Count) UnmarshalText(text []byte) error {
	var f float64
	cleaned := bytes.ReplaceAll(text, []byte("_"), nil)
	var rest string
	if n, _ := fmt.Sscanf(string(cleaned), "%g%s", &f, &rest); n != 1 || f != float64(int(f)) || f < 0 {
		return fmt.Errorf("%q is no whole number like 100000 or 1e6", text)
	}
	*c = Count(f)
	return nil
}

// UnmarshalYAML reads the same from a file, whose own decoder cuts fractions off.
func (c *Count) UnmarshalYAML(n *yaml.Node) error {
	if err := c.UnmarshalText([]byte(n.Value)); err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	return nil
}

// mostOfFile is how long a scenario file may be.
const mostOfFile = 1 << 20

// ReadFile reads a scenario file. An unknown member, one that is there twice or
// has no value, and a second document are errors that name their line.
func ReadFile(src io.Reader) (*File, error) {
	text, err := io.ReadAll(io.LimitReader(src, mostOfFile+1))
	if err != nil {
		return nil, fmt.Errorf("scenario: %w", err)
	}
	if len(text) > mostOfFile {
		return nil, fmt.Errorf("scenario: longer than %d bytes", mostOfFile)
	}
	f := new(File)
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	switch err := dec.Decode(f); {
	case errors.Is(err, io.EOF):
		return nil, errors.New("scenario: the file says nothing")
	case err != nil:
		return nil, fmt.Errorf("scenario: %w", err)
	}
	var doc, second yaml.Node
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("scenario: want one document, a second one is there at line %d", second.Line)
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("scenario: %w", err)
	}
	if line := lineWithoutValue(&doc); line > 0 {
		return nil, fmt.Errorf("scenario: line %d: a member without a value", line)
	}
	return f, nil
}

// lineWithoutValue finds a null, which a decoder takes for absent; 0 for none.
func lineWithoutValue(n *yaml.Node) int {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return n.Line
	}
	for _, in := range n.Content {
		if line := lineWithoutValue(in); line > 0 {
			return line
		}
	}
	return 0
}

// Apply writes what the file says into a scenario.
func (f *File) Apply(s *Scenario) error {
	set(&s.Sessions, (*int)(f.Sessions))
	set(&s.Keys, (*int)(f.Keys))
	set(&s.Instances, (*int)(f.Instances))
	set(&s.Zones, (*int)(f.Zones))
	set(&s.Zipf, f.Zipf)
	set(&s.Seed, f.Seed)
	set(&s.Warmup, f.Warmup)
	set(&s.Duration, f.Duration)
	set(&s.Move.SessionsPerS, f.Pace)
	set(&s.Move.Workers, f.Workers)
	set(&s.Move.Grace, f.Grace)
	if f.Weights != nil {
		s.Weights = nil
		for _, w := range f.Weights {
			s.Weights = append(s.Weights, int(w))
		}
	}
	p := &f.Policy
	set(&s.Policy.Ring.Points, (*int)(p.Points))
	set(&s.Policy.Ring.Slots, (*int)(p.Slots))
	set(&s.Policy.Ring.CapPercent, (*int)(p.CapPercent))
	if p.Bound != nil {
		s.SetBound(int(*p.Bound))
	}
	set(&s.Policy.Bound.Gap, (*int)(p.Gap))
	set(&s.Policy.Bound.Noise, (*int)(p.Noise))
	set(&s.Policy.MinStick, p.MinStick)
	set(&s.Policy.MaxAge, p.MaxAge)
	set(&s.Affinity, p.Affinity)
	set(&s.Policy.Ramp.Over, p.Ramp)
	set(&s.Policy.Ramp.MaxChurn, (*int)(p.MaxChurn))
	set(&s.Worker.MaxRunning, (*int)(f.Worker.MaxRunning))
	set(&s.Worker.PrefillTPS, f.Worker.PrefillTPS)
	set(&s.Worker.DecodeTPS, f.Worker.DecodeTPS)
	set(&s.Worker.CacheBlocks, (*int)(f.Worker.CacheBlocks))
	return s.AddEvents(f.Events)
}

// SetBound sets the bound in percent of the fair share; 0 means as good as none.
func (s *Scenario) SetBound(percent int) {
	if percent == 0 {
		percent = noBound
	}
	s.Policy.Bound.Percent = percent
}

// noBound is the highest bound a policy may have.
const noBound = 10_000

// AddEvents parses events and appends them.
func (s *Scenario) AddEvents(texts []string) error {
	for _, text := range texts {
		ev, err := ParseEvent(text)
		if err != nil {
			return err
		}
		s.Events = append(s.Events, ev)
	}
	return nil
}

func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}
