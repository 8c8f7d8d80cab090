package simulate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"go.yaml.in/yaml/v3"
)

// Example is a scenario as it is written down, which help and docs show.
const Example = `sessions: 20000        # a synthetic population; or trace: FILE
instances: 12
zones: 3
warmup: 1m
duration: 4m
policy: {bound: 140, max_age: 5m, ramp: 2m}
workers: passive       # in drains: cooperative, passive or silent
pace: 50               # sessions a second of a drain
events:
  - 30s:add:2
  - 1m:kill:zone=b
  - 2m:drain:i3
  - 3m:hot:1%:50%:i1
`

// File is a scenario as it is written down. What is absent keeps its default.
// docs/scenarios.md is about its keys.
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
	Pace      *float64       `yaml:"pace"` // sessions a second of a drain
	Workers   *Workers       `yaml:"workers"`
	Grace     *time.Duration `yaml:"in_flight_grace"`
	Events    []string       `yaml:"events"`
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
	if err := f.Policy.apply(s); err != nil {
		return err
	}
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
