package routing

import "time"

// pulse is what a watch knows of one boot. Times are those that count.
type pulse struct {
	beats uint64
	beat  time.Duration // when one moved, or the watch began
	alive time.Duration // the last sign of life of any kind
	heard bool          // a heartbeat moved since the last word that is not the watch's own
	lived bool          // there was a sign of life since then

	fall, rise int
	fails      int           // failed probes in a row
	unanswered int           // those of them since the last sign of life
	refused    bool          // one since it was well failed otherwise than by a timeout
	failed     time.Duration // the first of the row
	passes     int           // good probes in a row
	sick       bool          // it failed Fall in a row, and passed not yet Rise
	complaints int           // of gateways, since the last sign of life

	said, stored Health        // what the watch concluded last, what was published
	flaps        int           // departures in a row
	healthy      time.Duration // since when, while it is
	well         time.Duration // since when nothing speaks against its return
	recovering   bool          // nothing does
}

// live takes note of a sign of life.
func (p *pulse) live(now time.Duration) {
	p.alive, p.lived, p.unanswered, p.complaints = now, true, 0, 0
}

func (p *pulse) probed(end Probe, now time.Duration) {
	switch end {
	case ProbePassed:
		p.passes++
		p.fails = 0
		p.sick = p.sick && p.passes < p.rise
		p.refused = p.refused && p.sick
		p.live(now)
	case ProbeFailed, ProbeTimedOut:
		if p.fails == 0 {
			p.failed = now
		}
		p.fails++
		p.unanswered++
		p.refused = p.refused || end == ProbeFailed
		p.passes = 0
		p.sick = p.sick || p.fails >= p.fall
	}
}

// blamed reports whether somebody else has a complaint about a silent instance.
func (p *pulse) blamed() bool { return p.complaints > 0 || p.fails > 0 && p.refused }

// judge is what speaks against a boot at this moment, whether or not it may
// return; lenient leaves out what only timeouts say. A lease that has not lapsed
// keeps it from being down, however fast failures follow each other.
func (w *Watch) judge(p *pulse, lenient bool) Health {
	verdict := w.judgeSilence(p)
	if p.fall == 0 || lenient && !p.refused && p.complaints == 0 {
		return verdict
	}
	leased := p.beats > 0 && w.time-p.beat < w.policy.SuspectAfter
	proven := p.unanswered >= p.fall || p.unanswered > 0 && p.unanswered+p.complaints >= p.fall
	switch {
	case proven && !leased:
		return HealthDown
	case p.sick:
		return max(verdict, HealthSuspect)
	}
	return verdict
}

// confirming complaints of gateways are as good as the rest of the silence.
const confirming = 3

// judgeSilence is what the silence of a boot that has a lease says.
func (w *Watch) judgeSilence(p *pulse) Health {
	quiet, still := w.time-p.beat, w.time-p.alive
	switch {
	case p.beats == 0 || quiet < w.policy.SuspectAfter:
		return Healthy
	case w.suspects && !p.blamed():
		return p.said
	case still >= w.policy.DownAfter, still >= w.policy.SuspectAfter && p.complaints >= confirming:
		return HealthDown
	}
	return HealthSuspect
}

// conclude joins what speaks against a boot with what was said of it before.
func (w *Watch) conclude(p *pulse, spared bool) Health {
	verdict := w.judge(p, spared)
	if verdict != Healthy && !p.heard && !p.lived {
		verdict = max(verdict, p.said) // silence is no reason to think better of it
	}
	if verdict == Healthy && p.said != Healthy {
		verdict = w.comesBack(p, spared)
	} else {
		p.recovering = false
	}
	if p.said == Healthy && w.time-p.healthy >= w.policy.Forget {
		p.flaps = 0
	}
	switch {
	case p.said == Healthy && verdict != Healthy:
		p.flaps++
	case p.said != Healthy && verdict == Healthy:
		p.healthy = w.time
	}
	p.said = verdict
	return verdict
}

// comesBack is the state of a boot that was sick and against which nothing speaks
// any more: as it was until it is heard of, suspect while it has to prove itself.
func (w *Watch) comesBack(p *pulse, spared bool) Health {
	switch {
	case p.beats > 0 && !p.heard,
		p.fall > 0 && p.passes < p.rise && !spared,
		p.beats == 0 && p.fall == 0 && !p.lived:
		p.recovering = false
		return p.said
	}
	if !p.recovering {
		p.recovering, p.well = true, w.time
	}
	if w.time-p.well < w.returnAfter(p.flaps) {
		return HealthSuspect
	}
	return Healthy
}

// returnAfter is how long a boot has to be well that left so many times in a row.
func (w *Watch) returnAfter(flaps int) time.Duration {
	if flaps < 2 {
		return 0
	}
	d := w.policy.Return
	for n := 2; n < flaps && d < w.policy.MaxReturn; n++ {
		d *= 2
	}
	return min(d, w.policy.MaxReturn)
}
