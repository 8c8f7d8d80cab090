package services

import (
	"testing"
	"time"

	"berth/routing"
)

// A policy that lets bindings go at any age is not one that says nothing of it.
func TestNoMinStickIsNoDefault(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]time.Duration{`{"min_stick_ms":0}`: 0, `{}`: routing.DefaultPolicy().MinStick, `{"min_stick_ms":7}`: 7 * time.Millisecond} {
		p, err := parsePolicy([]byte(doc))
		if err != nil || p.routing.MinStick != want {
			t.Errorf("%s: %v, %v; want %v", doc, p.routing.MinStick, err, want)
		}
	}
}

// A bound may be said in part, as every other member; what is absent keeps its default.
func TestABoundInPart(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]routing.Bound{
		`{"bound":{}}`:                                {Percent: 125, Gap: 2, Noise: 3},
		`{"bound":{"percent":130}}`:                   {Percent: 130, Gap: 2, Noise: 3},
		`{"bound":{"gap":0}}`:                         {Percent: 125, Gap: 0, Noise: 3},
		`{"bound":{"noise":0}}`:                       {Percent: 125, Gap: 2, Noise: 0},
		`{"bound":{"percent":130,"gap":5,"noise":0}}`: {Percent: 130, Gap: 5, Noise: 0},
	} {
		p, err := parsePolicy([]byte(doc))
		if err != nil {
			t.Errorf("%s: %v", doc, err)
		} else if p.routing.Bound != want {
			t.Errorf("%s: %+v, want %+v", doc, p.routing.Bound, want)
		}
	}
}
