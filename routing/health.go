package routing

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Health is what is concluded of a boot of an instance. The zero value is
// healthy: nobody has a complaint.
type Health uint8

// States of health.
const (
	Healthy       Health = iota
	HealthSuspect        // silent or failing, not proven dead: keeps its sessions, takes no new ones
	HealthDown           // proven dead
)

var healthNames = [...]string{"healthy", "suspect", "down"}

// String is the state's name.
func (h Health) String() string { return nameOf(healthNames[:], uint8(h)) }

// Boot is one boot of an instance.
type Boot struct{ ID, Incarnation string }

// HealthPolicy is how a fleet is watched.
type HealthPolicy struct {
	SuspectAfter, DownAfter time.Duration // of silence
	Every                   time.Duration // between rounds; one that comes later than twice this counts no silence

	Return    time.Duration // how long one that flaps has to be well before it returns, the first time
	MaxReturn time.Duration // this doubles up to
	Forget    time.Duration // one that was healthy for so long does not flap
}

// DefaultHealthPolicy is the policy of a server that nobody configured.
func DefaultHealthPolicy() HealthPolicy {
	return HealthPolicy{
		SuspectAfter: 6 * time.Second, DownAfter: 15 * time.Second, Every: time.Second,
		Return: 10 * time.Second, MaxReturn: 5 * time.Minute, Forget: 5 * time.Minute,
	}
}

// Validate reports the first member of the policy that makes no sense.
func (p HealthPolicy) Validate() error {
	switch {
	case !someTime(p.SuspectAfter, p.DownAfter, p.Every, p.Return, p.MaxReturn, p.Forget):
		return fmt.Errorf("health: suspect after %v, down after %v, every %v, return %v to %v, forget %v: want some time, up to %v",
			p.SuspectAfter, p.DownAfter, p.Every, p.Return, p.MaxReturn, p.Forget, longestTime)
	case p.DownAfter < p.SuspectAfter:
		return fmt.Errorf("health: down after %v: want at least the %v of a suspect", p.DownAfter, p.SuspectAfter)
	case p.SuspectAfter < p.Every:
		return fmt.Errorf("health: suspect after %v: want at least the %v of a round", p.SuspectAfter, p.Every)
	case p.MaxReturn < p.Return:
		return fmt.Errorf("health: return after at most %v: want at least %v, as long as at first", p.MaxReturn, p.Return)
	}
	return nil
}

// Sighting is a boot as a round finds it registered.
type Sighting struct {
	Boot
	Pool       string
	Beats      uint64 // its heartbeats so far; without any it has no lease
	Stored     Health // what is published of it
	Flaps      int    // its departures in a row, as published, for a new holder of the lease
	Fall, Rise int    // of its probes; 0 when it is not probed
}

// Watch concludes the health of a fleet, for the holder of the health lease. The
// holder feeds it probes, outcomes and writes as they come and asks it once a
// round. What it does with them:
//
//   - An instance whose heartbeat number stands still for SuspectAfter is suspect,
//     for DownAfter down. One that never sent a heartbeat has no lease.
//   - Fall probes failed in a row make it sick, Rise good ones well again.
//   - It is down only if it gave no sign of life since that began: no heartbeat, no
//     accepted write, no request served, no good probe. Otherwise it is suspect.
//     Gateways that cannot reach it confirm silence and failed probes early, and
//     conclude nothing alone: for that there is the breaker.
//   - Probes that time out may be the prober's fault: they take out at most half of
//     a pool, and not the last.
//   - If more than two thirds of all leases lapse together and no gateway complains,
//     the watch suspects itself and leaves everybody as they are: until they are
//     heard of, or gateways complain, or others' heartbeats came in for a minute.
//   - Silence does not count while the store was away, the process was stalled or
//     the store's clock jumped. A new holder of the lease has seen nothing yet: it
//     leaves what is stored until it has.
//   - Who leaves again and again returns after twice the time, up to a limit. Until
//     then it is suspect. A new holder of the lease goes on from the published count,
//     and counts the time that forgives from its own beginning.
type Watch struct {
	policy HealthPolicy
	token  uint64
	pulses map[Boot]*pulse

	time     time.Duration // that counts: the sum of all rounds that were not missed
	now      time.Duration // of the last round, missed or not
	store    time.Duration // of the store's clock at the last round
	started  bool          // there was a round, missed or not
	missed   bool          // and it was missed
	suspects bool          // itself
	intake   time.Duration // for how long heartbeats of others came in meanwhile
	stalled  time.Duration // when it last said so, in time that counts
	told     bool          // it has said so once
}

// NewWatch begins to watch.
func NewWatch(policy HealthPolicy) *Watch {
	return &Watch{policy: policy, pulses: map[Boot]*pulse{}}
}

// Holds forgets everything seen under another holding of the lease: it says
// nothing about what another holder found in between.
func (w *Watch) Holds(token uint64) {
	if token != w.token {
		w.token, w.pulses, w.missed, w.suspects = token, map[Boot]*pulse{}, true, false
	}
}

// Miss tells of a round that could not be: the store was away, or another process
// holds the lease. The time before it does not count as silence.
func (w *Watch) Miss(now time.Duration) { w.now, w.started, w.missed = now, true, true }

// Probed counts a probe.
func (w *Watch) Probed(who Boot, end Probe) {
	if p := w.pulses[who]; p != nil {
		p.probed(end, w.time)
	}
}

// Observe counts what a gateway reports of a request.
func (w *Watch) Observe(who Boot, o Outcome) {
	p := w.pulses[who]
	switch {
	case p == nil:
	case o == OutcomeOK:
		p.live(w.time)
	case o.Unreached():
		p.complaints++
	}
}

// Wrote counts an accepted write of an instance.
func (w *Watch) Wrote(who Boot) {
	if p := w.pulses[who]; p != nil {
		p.live(w.time)
	}
}

// Flaps is how often a boot departed in a row.
func (w *Watch) Flaps(who Boot) int {
	if p := w.pulses[who]; p != nil {
		return p.flaps
	}
	return 0
}

// Findings are what a round concludes.
type Findings struct {
	Verdicts  map[Boot]Health // those that differ from what is stored
	SelfStall bool            // in this round it found that itself was stalled, or that it must suspect itself
}

// Round judges the fleet at a moment of the caller's monotonic clock and of the
// store's.
func (w *Watch) Round(now, store time.Duration, fleet []Sighting) Findings {
	before := w.time
	found := Findings{Verdicts: map[Boot]Health{}, SelfStall: w.advance(now, store)}
	present := make(map[Boot]*pulse, len(fleet))
	for i := range fleet {
		present[fleet[i].Boot] = w.see(&fleet[i])
	}
	w.pulses = present
	if doubts := w.doubts(w.time - before); doubts != w.suspects {
		w.suspects, w.intake = doubts, 0
		// Leases can lapse in the wake of a stall, which was told already.
		found.SelfStall = found.SelfStall || doubts && (!w.told || w.time-w.stalled >= w.policy.DownAfter)
	}
	if found.SelfStall {
		w.told, w.stalled = true, w.time
	}
	spared := w.spared(fleet)
	for i := range fleet {
		s := &fleet[i]
		p := w.pulses[s.Boot]
		if verdict := w.conclude(p, spared[s.Boot]); verdict != s.Stored {
			found.Verdicts[s.Boot] = verdict
		}
	}
	return found
}

// advance lets time pass, and reports a stall.
func (w *Watch) advance(now, store time.Duration) (stalled bool) {
	passed := now - w.now
	jump := store - w.store - passed
	late := w.started && passed > 2*w.policy.Every
	stalled = late && passed >= w.policy.SuspectAfter
	if w.started && !w.missed && !late && passed > 0 && jump.Abs() <= 2*w.policy.Every {
		w.time += passed
	}
	w.now, w.store, w.started, w.missed = now, store, true, false
	return stalled
}

// see takes note of what is registered.
func (w *Watch) see(s *Sighting) *pulse {
	p := w.pulses[s.Boot]
	if p == nil {
		return &pulse{
			beats: s.Beats, beat: w.time, alive: w.time, fall: s.Fall, rise: s.Rise, said: s.Stored, stored: s.Stored,
			healthy: w.time, flaps: max(0, s.Flaps),
		}
	}
	if s.Stored != p.stored && s.Stored != p.said {
		// Somebody else's word, such as of a registration at its address, stands
		// until it is heard of again.
		p.said, p.heard, p.lived = s.Stored, false, false
	}
	p.stored, p.fall, p.rise = s.Stored, s.Fall, s.Rise
	if s.Beats != p.beats {
		p.beats, p.beat, p.heard = s.Beats, w.time, true
		p.live(w.time)
	}
	return p
}

// patience, in times of DownAfter, is how long the watch suspects itself while
// heartbeats of others come in: where they do, the silent are silent themselves.
const patience = 4

// doubts reports whether so many leases lapse together, unexplained, that the
// fault is rather here. From the moment that the first has lapsed those count that
// are half way there, for their heartbeats came at different times.
func (w *Watch) doubts(passed time.Duration) bool {
	leases, unexplained, beating, lapsed := 0, 0, 0, false
	for _, p := range w.pulses {
		if p.beats == 0 || p.said == HealthDown {
			continue
		}
		leases++
		quiet := w.time - p.beat
		switch {
		case quiet < w.policy.SuspectAfter/2:
			beating++
		case !p.blamed():
			unexplained++
			lapsed = lapsed || quiet >= w.policy.SuspectAfter
		}
	}
	if w.suspects && beating > 0 {
		w.intake += passed
	}
	return lapsed && leases > 1 && 3*unexplained > 2*leases && w.intake < patience*w.policy.DownAfter
}

// spared are the boots that timeouts alone condemn and that stay all the same: of
// each pool so many that half of it is left, and one in any case.
func (w *Watch) spared(fleet []Sighting) map[Boot]bool {
	type pool struct{ size, well int }
	pools, condemned := map[string]pool{}, map[string][]Boot{}
	for i := range fleet {
		s := &fleet[i]
		p, n := w.pulses[s.Boot], pools[s.Pool]
		n.size++
		switch with, without := w.judge(p, false), w.judge(p, true); {
		case with != without:
			condemned[s.Pool] = append(condemned[s.Pool], s.Boot)
		case with == Healthy:
			n.well++
		}
		pools[s.Pool] = n
	}
	spared := map[Boot]bool{}
	for name, boots := range condemned {
		may := pools[name].size / 2
		if pools[name].well == 0 {
			may = min(may, len(boots)-1)
		}
		slices.SortFunc(boots, func(a, b Boot) int { // who is out already, then who failed first
			x, y := w.pulses[a], w.pulses[b]
			return cmp.Or(
				cmp.Compare(min(y.said, 1), min(x.said, 1)), cmp.Compare(x.failed, y.failed), cmp.Compare(a.ID, b.ID),
			)
		})
		for _, who := range boots[min(may, len(boots)):] {
			spared[who] = true
		}
	}
	return spared
}
