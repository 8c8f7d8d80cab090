package routing

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawWard plays a random fleet; stalls says whether the watch misses rounds too.
func drawWard(t *rapid.T, policy HealthPolicy, each func(watch *Watch, fleet []Sighting, found Findings)) {
	watch, now := NewWatch(policy), time.Duration(0)
	var fleet []Sighting
	for i := range rapid.IntRange(1, 7).Draw(t, "instances") {
		s := Sighting{Boot: Boot{fmt.Sprintf("i%d", i), "boot"}, Pool: rapid.SampledFrom([]string{"p", "q"}).Draw(t, "pool")}
		if rapid.Bool().Draw(t, "lease") {
			s.Beats = 1
		}
		if rapid.Bool().Draw(t, "probed") {
			s.Fall, s.Rise = 3, 2
		}
		fleet = append(fleet, s)
	}
	for range rapid.IntRange(10, 60).Draw(t, "rounds") {
		for i := range fleet {
			who := fleet[i].Boot
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0, 1:
				if fleet[i].Beats > 0 {
					fleet[i].Beats++
				}
			case 2:
				watch.Wrote(who)
			case 3, 4, 5:
				watch.Probed(who, rapid.SampledFrom([]Probe{ProbePassed, ProbeFailed, ProbeTimedOut, ProbeTimedOut}).Draw(t, "probe"))
			case 6:
				watch.Observe(who, rapid.SampledFrom([]Outcome{OutcomeOK, OutcomeConnect, OutcomeServer}).Draw(t, "outcome"))
			}
		}
		now += policy.Every
		if rapid.IntRange(0, 9).Draw(t, "gap") == 0 {
			now += time.Hour
		}
		found := watch.Round(now, now, fleet)
		for i := range fleet {
			if v, ok := found.Verdicts[fleet[i].Boot]; ok {
				fleet[i].Stored = v
			}
		}
		each(watch, fleet, found)
	}
}

// Nobody is down without cause, timeouts alone take out half of a pool at most,
// and a verdict told differs from what is stored.
func TestHealthProperties(t *testing.T) {
	t.Parallel()
	policy := DefaultHealthPolicy()
	rapid.Check(t, func(t *rapid.T) {
		drawWard(t, policy, func(w *Watch, fleet []Sighting, found Findings) {
			size, out := map[string]int{}, map[string]int{}
			for _, s := range fleet {
				p := w.pulses[s.Boot]
				size[s.Pool]++
				silent := s.Beats > 0 && w.time-p.beat >= policy.SuspectAfter
				switch verdict, told := found.Verdicts[s.Boot]; {
				case !told || verdict == Healthy:
				case !silent && p.fails == 0 && !p.sick && !p.recovering:
					t.Fatalf("%s is %v though it is neither silent nor failing: %+v", s.ID, verdict, p)
				case verdict == HealthDown && s.Beats > 0 && !silent:
					t.Fatalf("%s is down though its lease holds", s.ID)
				case verdict == HealthDown && p.unanswered == 0 && (s.Beats == 0 || w.time-p.alive < policy.SuspectAfter):
					t.Fatalf("%s is down %v after a sign of life: %+v", s.ID, w.time-p.alive, p)
				}
				if s.Beats == 0 && s.Fall == 0 && s.Stored != Healthy {
					t.Fatalf("%s is %v, and nobody watches it", s.ID, s.Stored)
				}
				unheard := s.Beats > 0 && !p.heard // stays out until it is heard of, whatever it was put out for
				if s.Stored != Healthy && s.Fall > 0 && p.sick && !unheard && !p.recovering && !p.refused && p.complaints == 0 && w.judgeSilence(p) == Healthy {
					out[s.Pool]++
				}
			}
			for pool, n := range out {
				if n > size[pool]/2 {
					t.Fatalf("timeouts took out %d of %d", n, size[pool])
				}
			}
		})
	})
}

// Time in which the watch was away changes no verdict: an instance that is watched
// with gaps is judged as one watched without.
func TestGapsChangeNoVerdict(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		plain, gappy := newWard(nil, 1), newWard(nil, 1)
		for range rapid.IntRange(1, 80).Draw(t, "rounds") {
			switch rapid.IntRange(0, 9).Draw(t, "gap") {
			case 0:
				gappy.watch.Miss(gappy.now)
				gappy.round(time.Duration(rapid.IntRange(1, 100).Draw(t, "s")) * time.Second)
			case 1:
				gappy.round(time.Duration(rapid.IntRange(3, 100).Draw(t, "s")) * time.Second)
			}
			if rapid.IntRange(0, 7).Draw(t, "beat") == 0 {
				plain.fleet[0].Beats++
				gappy.fleet[0].Beats++
			}
			plain.round(time.Second)
			gappy.round(time.Second)
			if a, b := plain.fleet[0].Stored, gappy.fleet[0].Stored; a != b {
				t.Fatalf("%v without gaps, %v with them", a, b)
			}
		}
	})
}
