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
	Instances *int           `yaml:"instances"`
	Zones     *int           `yaml:"zones"`
	Weights   []int          `yaml:"weights"`
	Keys      *Count         `yaml:"keys"`
	Zipf      *float64       `yaml:"zipf"`
	Seed      *uint64        `yaml:"seed"`
	Warmup    *time.Duration `yaml:"warmup"`
	Duration  *time.Duration `yaml:"duration"`
	Policy    filePolicy     `yaml:"policy"`
	Worker    fileWorker     `yaml:"worker"`
	Pace      *float64       `yaml:"pace"` // sessions a second of a drain
	Events    []string       `yaml:"events"`
}

type filePolicy struct {
	Points     *int           `yaml:"points"`
	Slots      *int           `yaml:"slots"`
	CapPercent *int           `yaml:"cap_percent"`
	Bound      *int           `yaml:"bound"` // percent; 0 is none
	Gap        *int           `yaml:"gap"`
	Noise      *int           `yaml:"noise"`
	MinStick   *time.Duration `yaml:"min_stick"`
	MaxAge     *time.Duration `yaml:"max_age"`
	Affinity   *time.Duration `yaml:"affinity_idle"`
	Ramp       *time.Duration `yaml:"ramp"`
	MaxChurn   *int           `yaml:"max_churn"` // percent of the key space a minute
}

type fileWorker struct {
	MaxRunning  *int     `yaml:"max_running"`
	PrefillTPS  *float64 `yaml:"prefill_tps"`
	DecodeTPS   *float64 `yaml:"decode_tps"`
	CacheBlocks *int     `yaml:"cache_blocks"`
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

// ReadFile reads a scenario file. An unknown member is an error that names its
// line.
func ReadFile(src io.Reader) (*File, error) {
	dec := yaml.NewDecoder(io.LimitReader(src, 1<<20))
	dec.KnownFields(true)
	var f File
	if err := dec.Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("scenario: %w", err)
	}
	return &f, nil
}

// Apply writes what the file says into a scenario.
func (f *File) Apply(s *Scenario) error {
	set(&s.Sessions, (*int)(f.Sessions))
	set(&s.Keys, (*int)(f.Keys))
	set(&s.Instances, f.Instances)
	set(&s.Zones, f.Zones)
	set(&s.Zipf, f.Zipf)
	set(&s.Seed, f.Seed)
	set(&s.Warmup, f.Warmup)
	set(&s.Duration, f.Duration)
	set(&s.Move.SessionsPerS, f.Pace)
	if f.Weights != nil {
		s.Weights = f.Weights
	}
	p := &f.Policy
	set(&s.Policy.Ring.Points, p.Points)
	set(&s.Policy.Ring.Slots, p.Slots)
	set(&s.Policy.Ring.CapPercent, p.CapPercent)
	if p.Bound != nil {
		s.SetBound(*p.Bound)
	}
	set(&s.Policy.Bound.Gap, p.Gap)
	set(&s.Policy.Bound.Noise, p.Noise)
	set(&s.Policy.MinStick, p.MinStick)
	set(&s.Policy.MaxAge, p.MaxAge)
	set(&s.Affinity, p.Affinity)
	set(&s.Policy.Ramp.Over, p.Ramp)
	set(&s.Policy.Ramp.MaxChurn, p.MaxChurn)
	set(&s.Worker.MaxRunning, f.Worker.MaxRunning)
	set(&s.Worker.PrefillTPS, f.Worker.PrefillTPS)
	set(&s.Worker.DecodeTPS, f.Worker.DecodeTPS)
	set(&s.Worker.CacheBlocks, f.Worker.CacheBlocks)
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
