package simulate

import (
	"math"
	"slices"
	"testing"
	"time"
)

// wantShare checks what part of the key space an event moved, of a pool of 12.
func wantShare(t *testing.T, e Effect, want float64) {
	t.Helper()
	if math.Abs(e.MovedShare-want) > 0.03 {
		t.Errorf("%s: %.3f of the key space moved, want about %.3f", e.Event, e.MovedShare, want)
	}
}

// Of two events in one second, or a few seconds apart, each is charged with what
// it did itself.
func TestEventsCloseTogetherAreToldApart(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]string{"one second": "2m", "three seconds": "2m3s"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("kills", func(t *testing.T) {
				t.Parallel()
				for _, e := range mustRun(t, with(t, small(), "2m:kill:i3", second+":kill:i5")).Events {
					wantOnlyItsSessions(t, e)
					wantShare(t, e, 1.0/12)
					if e.FailedTries == 0 || e.RecomputedTokens == 0 || e.HitRate < 0.5 {
						t.Errorf("%s: %d tries failed, %d tokens recomputed, hit rate %.2f", e.Event, e.FailedTries, e.RecomputedTokens, e.HitRate)
					}
				}
			})
			t.Run("drain and kill", func(t *testing.T) {
				t.Parallel()
				events := mustRun(t, with(t, small(), "2m:drain:i3", second+":kill:i5")).Events
				wantOnlyItsSessions(t, events[1])
				wantShare(t, events[1], 1.0/12)
				drained := events[0]
				wantShare(t, drained, 1.0/12)
				if drained.MovedSessions != drained.Bound || drained.FailedTries != 0 || drained.Why["drain"] != drained.LiveJumps {
					t.Errorf("%s: %d of %d moved, %d tries failed, jumps by %v", drained.Event, drained.MovedSessions, drained.Bound, drained.FailedTries, drained.Why)
				}
			})
			t.Run("add and kill", func(t *testing.T) {
				t.Parallel()
				events := mustRun(t, with(t, small(), "2m:add:2", second+":kill:i3")).Events
				wantNobodyMoved(t, events[0])
				wantShare(t, events[0], 2.0/14)
				wantOnlyItsSessions(t, events[1])
				wantShare(t, events[1], 1.0/12)
				if events[0].RecomputedTokens != 0 || events[0].FailedTries != 0 {
					t.Errorf("%s: %d tokens recomputed, %d tries failed", events[0].Event, events[0].RecomputedTokens, events[0].FailedTries)
				}
				if n := len(events[0].Ramp); n < 8 || events[0].Ramp[n-1].Percent != 100 {
					t.Fatalf("the ramp has the steps %+v", events[0].Ramp)
				}
				last := events[0].Ramp[len(events[0].Ramp)-1]
				if math.Abs(last.Expected-2.0/13) > 1e-9 || math.Abs(last.Share/last.Expected-1) > 0.2 {
					t.Errorf("of all new sessions the newcomers got %.4f, expected %.4f, want %.4f", last.Share, last.Expected, 2.0/13)
				}
			})
		})
	}
}

// A plain ring lets sessions go for a newcomer. Those of one that died are not
// its, and the newcomer's are not the dead one's.
func TestOtherPoliciesAreChargedByCauseToo(t *testing.T) {
	t.Parallel()
	ring := mustRun(t, with(t, small(), "2m:add:2", "2m:kill:i3"), PlainRing).Others[0]
	added, killed := ring.Events[0], ring.Events[1]
	wantOnlyItsSessions(t, killed)
	if added.LiveJumps == 0 || added.From["i3"] != 0 || len(added.To) != 2 || ring.JumpsOfNoEvent != 0 {
		t.Errorf("for the newcomers %d live jumps from %v to %v, %d for no event", added.LiveJumps, added.From, added.To, ring.JumpsOfNoEvent)
	}
	wantShare(t, added, 2.0/13)
	wantShare(t, killed, 1.0/12)
}

// A session whose new place dies before it came there jumps because of the drain
// that took its old one away.
func TestADrainWhoseTargetDies(t *testing.T) {
	t.Parallel()
	sc := small()
	sc.Instances, sc.Sessions = 3, 6000
	events := mustRun(t, with(t, sc, "2m:drain:i1", "2m20s:kill:i2")).Events
	wantOnlyItsSessions(t, events[1])
	for id := range events[0].From {
		if id != "i1" {
			t.Errorf("%s: a session left %s", events[0].Event, id)
		}
	}
}

// Who is let go because of load jumps for what made the load: not for what
// happened elsewhere meanwhile.
func TestLoadIsChargedToWhatMadeIt(t *testing.T) {
	t.Parallel()
	sc := small()
	sc.Policy.MaxAge = 90 * time.Second
	events := mustRun(t, with(t, sc, "2m:slow:i3:3", "2m5s:weight:i7:100", "2m10s:add:1", "5m:kill:i5")).Events
	slow := events[0]
	if slow.LiveJumps == 0 || len(slow.From) != 1 || slow.From["i3"] != slow.LiveJumps || slow.Why["breaker"] != slow.LiveJumps {
		t.Errorf("%s: %d live jumps from %v by %v", slow.Event, slow.LiveJumps, slow.From, slow.Why)
	}
	wantNobodyMoved(t, events[1])
	if e := events[2]; e.From["i3"] != 0 {
		t.Errorf("%s: %d sessions left i3", e.Event, e.From["i3"])
	}
	wantOnlyItsSessions(t, events[3])
}

// What is killed in the middle of its drain leaves its rest to the kill.
func TestADrainingInstanceIsKilled(t *testing.T) {
	t.Parallel()
	sc := small()
	sc.Zones, sc.Move.SessionsPerS = 3, 5
	events := mustRun(t, with(t, sc, "2m:drain:i3", "2m30s:kill:i3", "4m:drain:i5", "4m1s:kill:zone=b")).Events
	drained, killed := events[0], events[1]
	if drained.MovedSessions == 0 || killed.MovedSessions == 0 || killed.MovedSessions != killed.Bound || drained.MovedSessions >= drained.Bound || drained.SafeAfterMS != 0 {
		t.Errorf("the drain moved %d of %d, the kill %d of %d", drained.MovedSessions, drained.Bound, killed.MovedSessions, killed.Bound)
	}
	if zone := events[3]; !slices.Contains(zone.Instances, "i5") {
		t.Errorf("%s took %v", zone.Event, zone.Instances)
	}
}
