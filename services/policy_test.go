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
