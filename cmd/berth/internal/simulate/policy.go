package simulate

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"berth/services"
)

// filePolicy is the policy of a scenario: under the short names of the flags, or the
// whole document that PUT /v1/pools/{pool}/policy takes, which a search prints and a
// live fleet has. Under short names what is absent keeps what it was; the document
// replaces all of it, as it does when it is put.
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

	document *services.PoolPolicy
}

// UnmarshalYAML reads either form, and refuses a mixture: a member of one would have to
// win over the same of the other.
func (p *filePolicy) UnmarshalYAML(n *yaml.Node) error {
	var members map[string]yaml.Node
	if err := n.Decode(&members); err != nil {
		return err //nolint:wrapcheck // it names the line
	}
	short, other := "", ""
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if isShort(name, members[name]) {
			short = name
		} else {
			other = name
		}
	}
	switch {
	case other == "":
		type plain filePolicy
		return n.Decode((*plain)(p)) //nolint:wrapcheck // it names the line
	case short != "":
		return fmt.Errorf("line %d: policy: %q cannot stand beside the short name %q: want short names alone, or the document that the API takes", n.Line, other, short)
	}
	document, err := services.ReadPolicy(n)
	if err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	p.document = &document
	return nil
}

// isShort tells the forms apart: of the names that both have, the short ones have a
// plain value.
func isShort(name string, value yaml.Node) bool {
	t := reflect.TypeFor[filePolicy]()
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("yaml") == name {
			return value.Kind != yaml.MappingNode
		}
	}
	return false
}

// Document is the whole policy of the API that the file has; nil for none.
func (f *File) Document() *services.PoolPolicy { return f.Policy.document }

func (p *filePolicy) apply(s *Scenario) (err error) {
	if p.document != nil {
		if s.Policy, s.Affinity, err = p.document.InForce(); err != nil {
			return fmt.Errorf("policy: %w", err)
		}
	}
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
	return nil
}
