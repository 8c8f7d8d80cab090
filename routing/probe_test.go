package routing

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestProbesAreSpread(t *testing.T) {
	t.Parallel()
	p := DefaultProbePolicy()
	rapid.Check(t, func(t *rapid.T) {
		if wait := p.Wait(rapid.Uint64().Draw(t, "random")); wait < 4500*time.Millisecond || wait > 5500*time.Millisecond {
			t.Fatalf("waits %v", wait)
		}
	})
	if p.JitterPercent = 0; p.Wait(12345) != p.Every {
		t.Error("jitter although there is none")
	}
	for status, want := range map[int]Probe{200: ProbePassed, 204: ProbePassed, 302: ProbeFailed, 404: ProbeFailed, 503: ProbeFailed} {
		if ProbeOfStatus(status) != want {
			t.Errorf("%d ends as %v", status, ProbeOfStatus(status))
		}
	}
}

func TestHealthPoliciesRefuseNonsense(t *testing.T) {
	t.Parallel()
	if err := DefaultHealthPolicy().Validate(); err != nil {
		t.Error(err)
	}
	if err := DefaultProbePolicy().Validate(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*HealthPolicy){
		"no silence":          func(p *HealthPolicy) { p.SuspectAfter = 0 },
		"down before suspect": func(p *HealthPolicy) { p.DownAfter = p.SuspectAfter - 1 },
		"rounds too far":      func(p *HealthPolicy) { p.Every = p.SuspectAfter + 1 },
		"returns shrink":      func(p *HealthPolicy) { p.MaxReturn = p.Return - 1 },
		"absurd":              func(p *HealthPolicy) { p.Forget = math.MaxInt64 },
	} {
		p := DefaultHealthPolicy()
		if spoil(&p); p.Validate() == nil {
			t.Errorf("%s: was accepted", name)
		}
	}
	for name, spoil := range map[string]func(*ProbePolicy){
		"no path":         func(p *ProbePolicy) { p.Path = "" },
		"another host":    func(p *ProbePolicy) { p.Path = "evil.example/" },
		"a second header": func(p *ProbePolicy) { p.Path = "/health\r\nx: y" },
		"no pause":        func(p *ProbePolicy) { p.Every = 0 },
		"no timeout":      func(p *ProbePolicy) { p.Timeout = 0 },
		"jitter":          func(p *ProbePolicy) { p.JitterPercent = 101 },
		"no fall":         func(p *ProbePolicy) { p.Fall = 0 },
		"no rise":         func(p *ProbePolicy) { p.Rise = 0 },
	} {
		p := DefaultProbePolicy()
		if spoil(&p); p.Validate() == nil {
			t.Errorf("%s: was accepted", name)
		}
	}
}
