package simulate

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth/migrations"
)

// small is a pool of 12 with as many sessions an instance as the full size has
// for an eighth of the time.
func small() Scenario {
	sc := Default()
	sc.Instances, sc.Sessions = 12, 24_000
	sc.Warmup, sc.Duration = 2*time.Minute, 6*time.Minute
	return sc
}

func mustRun(t testing.TB, sc Scenario, others ...string) *Report {
	t.Helper()
	r, err := Run(t.Context(), sc, others, func(string, int, int) {})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func with(t testing.TB, sc Scenario, events ...string) Scenario {
	t.Helper()
	if err := sc.AddEvents(events); err != nil {
		t.Fatal(err)
	}
	return sc
}

// A million sessions on a hundred instances: balanced without a bound, nobody
// jumps for a newcomer, the newcomer gets its share, and a death moves those it
// has to.
func TestBalance(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("not tested with -short or -race: a million sessions")
	}
	t.Parallel()
	sc := Default()
	sc.Sessions = 1_000_000
	sc.Warmup, sc.Duration = 2*time.Minute, 5*time.Minute
	sc.SetBound(0)
	r := mustRun(t, with(t, sc, "30s:add:1", "4m:kill:i3"))
	if r.MaxMean > 1.12 {
		t.Errorf("max/mean load %.3f without a bound, want at most 1.12", r.MaxMean)
	}
	if r.HitRate < 0.98*r.IdealHitRate || r.Refused != 0 {
		t.Errorf("hit rate %.3f of %.3f, %d refused", r.HitRate, r.IdealHitRate, r.Refused)
	}
	wantNobodyMoved(t, r.Events[0])
	last := r.Events[0].Ramp[len(r.Events[0].Ramp)-1]
	if last.Percent != 100 || math.Abs(last.Share/last.Expected-1) > 0.10 {
		t.Errorf("at %d %% of its weight the newcomer gets %.4f of new sessions, want %.4f ± 10 %%", last.Percent, last.Share, last.Expected)
	}
	wantOnlyItsSessions(t, r.Events[1])
}

// Activity of sessions after Zipf, under the default bound.
func TestBoundUnderZipf(t *testing.T) {
	t.Parallel()
	sc := small()
	sc.Sessions, sc.Zipf = 48_000, 1
	r := mustRun(t, sc)
	if r.MaxMean > 1.26 || r.LiveJumps != 0 {
		t.Errorf("max/mean load %.3f with %d live jumps, want at most 1.26 and none", r.MaxMean, r.LiveJumps)
	}
	// Where sessions share keys, the ring alone piles them up and the bound does not.
	sc = small()
	sc.Sessions, sc.Keys, sc.Zipf = 48_000, 10_000, 1
	bounded := mustRun(t, sc)
	sc.SetBound(0)
	piled := mustRun(t, sc)
	if bounded.MaxMean > 1.26 || piled.MaxMean < 1.25*bounded.MaxMean {
		t.Errorf("with shared keys max/mean load is %.3f bounded and %.3f not", bounded.MaxMean, piled.MaxMean)
	}
}

func wantNobodyMoved(t *testing.T, e Effect) {
	t.Helper()
	if e.MovedSessions != 0 || e.LiveJumps != 0 {
		t.Errorf("%s: %d sessions moved, %d live jumps, want none", e.Event, e.MovedSessions, e.LiveJumps)
	}
}

func wantOnlyItsSessions(t *testing.T, e Effect) {
	t.Helper()
	if e.Bound == 0 || e.MovedSessions != e.Bound {
		t.Errorf("%s: %d sessions moved, want exactly the %d it held", e.Event, e.MovedSessions, e.Bound)
	}
	for id := range e.From {
		if !slices.Contains(e.Instances, id) {
			t.Errorf("%s: a session left %s", e.Event, id)
		}
	}
	if e.LiveJumps == 0 || e.LiveJumps > e.Bound {
		t.Errorf("%s: %d live jumps of %d sessions", e.Event, e.LiveJumps, e.Bound)
	}
}

func TestAddMovesNobody(t *testing.T) {
	t.Parallel()
	r := mustRun(t, with(t, small(), "1m:add:4"), PlainRing, Modulo)
	wantNobodyMoved(t, r.Events[0])
	if got := r.Events[0].MovedShare; math.Abs(got-4.0/16) > 0.04 {
		t.Errorf("%.3f of the key space moved, want about a quarter", got)
	}
	ring, modulo := r.Others[0].Events[0], r.Others[1].Events[0]
	if ring.LiveJumps == 0 || modulo.LiveJumps < 2*ring.LiveJumps {
		t.Errorf("live jumps: plain ring %d, modulo %d; a quarter and three quarters of the sessions should", ring.LiveJumps, modulo.LiveJumps)
	}
}

func TestKillMovesItsSessionsOnly(t *testing.T) {
	t.Parallel()
	r := mustRun(t, with(t, small(), "2m:kill:i3", "4m:recover:i3"))
	wantOnlyItsSessions(t, r.Events[0])
	wantNobodyMoved(t, r.Events[1]) // R12: who landed elsewhere stays there
	if r.Events[0].Why["failover"] == 0 {
		t.Errorf("why: %v", r.Events[0].Why)
	}
}

func TestZoneIsLostAtOnce(t *testing.T) {
	t.Parallel()
	sc := small()
	sc.Zones = 4
	r := mustRun(t, with(t, sc, "3m:kill:zone=b"))
	wantOnlyItsSessions(t, r.Events[0])
	if len(r.Events[0].Instances) != 3 || r.Refused != 0 {
		t.Errorf("a zone of %d instances went, %d turns were refused", len(r.Events[0].Instances), r.Refused)
	}
}

func TestDrainMovesAtItsPace(t *testing.T) {
	t.Parallel()
	sc := small()
	sc.Move.SessionsPerS = 20
	r := mustRun(t, with(t, sc, "2m:drain:i3,i4"))
	e := r.Events[0]
	wantOnlyItsSessions(t, e)
	if e.Why["drain"] != e.LiveJumps || e.FailedTries != 0 || e.PrewarmedTokens == 0 {
		t.Errorf("live jumps %d by %v, %d tries failed, %d tokens prewarmed", e.LiveJumps, e.Why, e.FailedTries, e.PrewarmedTokens)
	}
	// Each instance has a job's pace of its own.
	least := time.Duration(e.Bound/2/20) * time.Second
	if safe := time.Duration(e.SafeAfterMS) * time.Millisecond; safe < least*9/10+migrations.DefaultLongestHint || safe > least*2+migrations.DefaultLongestHint {
		t.Errorf("safe to stop after %v, want about %v for %d sessions at 20/s", safe, least, e.Bound)
	}
	if e := mustRun(t, with(t, small(), "2m:drain:i3")).Events[0]; e.SafeAfterMS < migrations.DefaultLongestHint.Milliseconds() {
		t.Errorf("safe to stop after %d ms, while hints of before may still be used", e.SafeAfterMS)
	}
	// What a drain prewarms costs no prefill when the session comes.
	cold := sc
	cold.Move.IdleBelow = 0
	if c := mustRun(t, with(t, cold, "2m:drain:i3,i4")).Events[0]; c.RecomputedTokens <= e.RecomputedTokens {
		t.Errorf("recomputed %d tokens with prewarms and %d without", e.RecomputedTokens, c.RecomputedTokens)
	}
}

// R39: fifty new sessions a second, four instances, one joins.
func TestR39NewcomersGetTheirShare(t *testing.T) {
	t.Parallel()
	sc := Default()
	sc.Instances, sc.Warmup, sc.Duration = 4, 2*time.Minute, 18*time.Minute
	sc.Sessions = 50 * 20 * 60
	sc.Policy.Ramp.Over = 5 * time.Minute
	e := mustRun(t, with(t, sc, "1m:add:1")).Events[0]
	wantNobodyMoved(t, e)
	granted := map[int]float64{} // share of the key space by minute
	before := 0.0
	for _, s := range e.Ramp {
		if s.Theirs == 0 {
			t.Errorf("at %d %% the newcomer gets nothing", s.Percent)
		}
		chance := 3 / math.Sqrt(float64(s.New)*s.Expected)
		if off := math.Abs(s.Share/s.Expected - 1); off > max(0.30, chance) {
			t.Errorf("at %d %% it gets %.4f of %d new sessions, want %.4f ± 30 %%", s.Percent, s.Share, s.New, s.Expected)
		}
		at, err := time.ParseDuration(s.At)
		if err != nil {
			t.Fatal(err)
		}
		granted[int(at/time.Minute)] += s.Expected - before
		before = s.Expected
	}
	for minute, share := range granted {
		if share > 0.10+1e-9 {
			t.Errorf("minute %d moves %.3f of the key space, want at most a tenth", minute, share)
		}
	}
	if last := e.Ramp[len(e.Ramp)-1]; last.Percent != 100 || len(e.Ramp) < 8 {
		t.Errorf("the ramp ends at %d %% after %d steps", last.Percent, len(e.Ramp))
	}
}

// R43: one in a hundred sessions begins to bring half of the load. Whether they
// are anywhere or all on one instance, nobody stays above 1.3 times its share in a
// pool of the size that a simulation gives it by itself.
func TestR43HotSessionsSpread(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"", ":i3"} {
		for affinity, maxAge := range map[time.Duration]time.Duration{2 * time.Minute: 90 * time.Second, 5 * time.Minute: 5 * time.Minute} {
			sc := small()
			sc.Affinity, sc.Policy.MaxAge = affinity, maxAge
			sc.Duration = 4*time.Minute + 2*affinity
			sc.Sessions = int(50 * (sc.Warmup + sc.Duration).Seconds())
			r := mustRun(t, with(t, sc, "2m:hot:1%:50%"+where))
			for _, s := range r.Series {
				if s.AtS > (2*time.Minute+2*affinity).Seconds() && (s.MaxMean > 1.3 || s.Waiting > 0) {
					t.Errorf("hot%s: max/mean load is %.2f at %vs, two affinities after, and %d wait", where, s.MaxMean, s.AtS, s.Waiting)
				}
			}
			if r.MovedEarly != 0 || r.Refused != 0 {
				t.Errorf("hot%s: %d sessions moved twice within min_stick, %d turns were refused", where, r.MovedEarly, r.Refused)
			}
			if where != "" && r.PeakMaxMean < 2 {
				t.Errorf("the hot set made a peak of %.2f only: it shows nothing", r.PeakMaxMean)
			}
		}
	}
}

func TestSlowInstanceTakesLess(t *testing.T) {
	t.Parallel()
	r := mustRun(t, with(t, small(), "1m:slow:i3:2", "3m:slow:i3:1"), PlainRing)
	ring := r.Others[0]
	if r.PeakMaxMean >= ring.PeakMaxMean {
		t.Errorf("a slow instance peaks at %.2f, and on a ring without bound at %.2f", r.PeakMaxMean, ring.PeakMaxMean)
	}
}

func TestWeightsGetTheirShare(t *testing.T) {
	t.Parallel()
	sc := small()
	sc.Weights = []int{100, 100, 100, 200}
	if r := mustRun(t, with(t, sc, "2m:weight:i4:100")); r.MaxMean > 1.2 || r.LiveJumps != 0 {
		t.Errorf("max/mean per weight %.3f, %d live jumps", r.MaxMean, r.LiveJumps)
	}
}

func TestRunsAreEqual(t *testing.T) {
	t.Parallel()
	sc := small()
	sc.Sessions = 5000
	sc = with(t, sc, "1m:add:2", "2m:kill:1", "3m:drain:i5", "4m:hot:2%:30%", "5m:slow:2:3")
	a, b := mustRun(t, sc, Random, BoundedRing), mustRun(t, sc, Random, BoundedRing)
	if !reflect.DeepEqual(a, b) {
		t.Error("two runs of one scenario differ")
	}
	sc.Seed++
	if c := mustRun(t, sc); reflect.DeepEqual(a.Outcome, c.Outcome) {
		t.Error("another seed changes nothing")
	}
}

// The JSON ends with Berth's own figures, under the names scripts rely on.
func TestJSONEndsWithTheFigures(t *testing.T) {
	t.Parallel()
	sc := small()
	sc.Sessions = 2000
	raw, err := json.Marshal(mustRun(t, with(t, sc, "1m:add:1"), Modulo))
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	var names []string
	depth := 0
	for expectName := false; ; {
		token, err := dec.Token()
		if err != nil {
			break
		}
		switch v := token.(type) {
		case json.Delim:
			if v == '{' || v == '[' {
				depth++
			} else {
				depth--
			}
			expectName = depth == 1
		case string:
			if depth == 1 && expectName {
				names = append(names, v)
				expectName = false
				continue
			}
			expectName = depth == 1
		default:
			expectName = depth == 1
		}
	}
	want := []string{"events", "max_mean_load", "stddev_mean_load", "hit_rate", "jump_rate"}
	if len(names) < 5 || !slices.Equal(names[len(names)-5:], want) {
		t.Errorf("the members are %v, want them to end with %v", names, want)
	}
	var event map[string]any
	var doc struct{ Events []json.RawMessage }
	if err := json.Unmarshal(raw, &doc); err != nil || len(doc.Events) != 1 {
		t.Fatalf("%v, %d events", err, len(doc.Events))
	}
	if err := json.Unmarshal(doc.Events[0], &event); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"at", "kind", "moved_sessions", "live_jumps", "moved_share"} {
		if _, there := event[name]; !there {
			t.Errorf("an event has no %s", name)
		}
	}
}

// Whatever happens, everybody is served by somebody or counted as refused, and
// rates stay rates.
func TestAnyScenarioKeepsItsBooks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sc := Default()
		sc.Instances = rapid.IntRange(2, 8).Draw(t, "instances")
		sc.Sessions = rapid.IntRange(1, 400).Draw(t, "sessions")
		sc.Zones = rapid.IntRange(1, 3).Draw(t, "zones")
		sc.Seed = rapid.Uint64().Draw(t, "seed")
		sc.Warmup, sc.Duration = 10*time.Second, 2*time.Minute
		sc.Affinity = rapid.SampledFrom([]time.Duration{10 * time.Second, 30 * time.Minute}).Draw(t, "affinity")
		texts := rapid.SliceOfN(rapid.SampledFrom([]string{
			"10s:add:2", "20s:kill:1", "30s:recover:1", "40s:drain:1", "50s:hot:10%:50%", "55s:slow:1:4", "60s:weight:1:0", "70s:drain:1", "80s:recover:1",
		}), 0, 6).Draw(t, "events")
		if err := sc.AddEvents(texts); err != nil {
			t.Fatal(err)
		}
		r, err := Run(context.Background(), sc, []string{Random, Modulo, PlainRing, BoundedRing}, func(string, int, int) {})
		if err != nil {
			return // nobody fits an event: said, and nothing played
		}
		for _, o := range append([]Outcome{r.Outcome}, r.Others...) {
			for name, rate := range map[string]float64{"hit": o.HitRate, "ideal": o.IdealHitRate, "jump": o.JumpRate} {
				if rate < 0 || rate > 1 {
					t.Fatalf("%s: %s rate %v", o.Policy, name, rate)
				}
			}
			if math.IsNaN(o.MaxMean) || o.HitRate > o.IdealHitRate+1e-9 {
				t.Fatalf("%s: max/mean %v, hit rate %v of %v", o.Policy, o.MaxMean, o.HitRate, o.IdealHitRate)
			}
			live := 0
			for _, e := range o.Events {
				live += e.LiveJumps
				if sum(e.Why) != e.LiveJumps || sum(e.From) != e.LiveJumps || sum(e.To) != e.LiveJumps {
					t.Fatalf("%s %s: %d live jumps, by reason %v", o.Policy, e.Event, e.LiveJumps, e.Why)
				}
			}
			if live > o.LiveJumps || o.LiveJumps > o.Turns {
				t.Fatalf("%s: %d live jumps by events, %d in all, %d turns", o.Policy, live, o.LiveJumps, o.Turns)
			}
		}
	})
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}
