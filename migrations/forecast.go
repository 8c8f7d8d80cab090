package migrations

import (
	"slices"
	"time"

	"berth/statestore"
)

// Forecast is what a drain that moves sessions expects when it begins: the sessions,
// the loads and the targets of that moment, played at its own pace as if no turn ran,
// nobody came back, and workers did at once what they are asked. It is stored before
// the first move and never changed, so that it can be held against what was done.
type Forecast struct {
	Sessions int    `json:"sessions"` // that would move
	Bytes    uint64 `json:"bytes"`    // of Sessions
	Tokens   uint64 `json:"tokens"`   // of Sessions, counted as in Progress

	Prewarmed       int    `json:"prewarmed"` // of Sessions
	PrewarmedTokens uint64 `json:"prewarmed_tokens"`

	Lapsed int   `json:"lapsed"`            // only unbound: lapsed, or would until their turn
	Left   int   `json:"left"`              // nobody may take them, or their turn would not come in time
	TookMS int64 `json:"took_ms,omitempty"` // from the first move to the last, by the pace; 0: nothing bounds it

	Targets map[string]int `json:"targets,omitempty"` // who would get how many of Sessions
}

// outlook is what a forecast depends on besides the question for the plan.
type outlook struct {
	pace     Pace
	prewarm  Prewarm
	endgame  time.Duration // until the last part of the job's time
	deadline time.Duration // until its end
	commits  bool          // in the last part sessions go cold
	// asks reports whether an instance would be asked to prewarm, as far as is known.
	asks func(statestore.Owner) bool
}

// forecast plays the whole job in the order of makePlan.
func forecast(q question, o outlook) *Forecast {
	f := &Forecast{Targets: map[string]int{}}
	sessions := slices.Clone(q.sessions)
	slices.SortFunc(sessions, before)
	pl := newPlacer(&q)
	var spent spending
	var first, last time.Duration
	for _, s := range sessions {
		at := spent.next(&o)
		s.idle, s.left, s.resting = s.idle+at, s.left-at, true
		if at > o.deadline {
			f.Left++
			continue
		}
		if s.lapsed() {
			spent.sessions++
			f.Lapsed++
			continue
		}
		target, ok := pl.place(&s)
		if !ok {
			f.Left++
			continue
		}
		q.cold = o.commits && at >= o.endgame
		next := q.step(&s, target)
		next.prewarm = next.prewarm && o.asks(next.target)
		if at = spent.move(&next, &o); f.Sessions == 0 {
			first = at
		}
		last = at
		f.count(&next)
	}
	f.TookMS = (last - first).Milliseconds()
	return f
}

func (f *Forecast) count(s *step) {
	f.Sessions++
	f.Bytes += s.bytes
	f.Tokens += s.prefill()
	f.Targets[s.target.Instance]++
	if s.prewarm {
		f.Prewarmed++
		f.PrewarmedTokens += s.prefill()
	}
}

// spending is what a forecast has used of the paces.
type spending struct{ sessions, bytes, tokens, prewarm float64 }

// next is when the next session may begin to leave.
func (p *spending) next(o *outlook) time.Duration {
	return max(after(p.sessions, o.pace.SessionsPerS), after(p.bytes, o.pace.BytesPerS),
		after(p.tokens, o.pace.TokensPerS), after(p.prewarm, o.prewarm.TokensPerS))
}

// move spends what a session costs, and returns when it leaves: it waits for all of
// its own bytes and tokens.
func (p *spending) move(s *step, o *outlook) time.Duration {
	p.bytes += float64(s.bytes)
	p.tokens += float64(s.prefill())
	if s.prewarm {
		p.prewarm += float64(s.prefill())
	}
	at := p.next(o)
	p.sessions++
	return at
}

// after is how long a pace takes for so many units.
func after(units, perSecond float64) time.Duration {
	if perSecond <= 0 {
		return 0
	}
	// Longer than any job, and still a duration.
	return time.Duration(min(units/perSecond, 2*maxDeadline.Seconds()) * float64(time.Second))
}

// foretell stores what the drain expects, before it moves anything.
func (d *drain) foretell(q question) {
	known := q.snapshot != nil || len(q.sessions) == 0
	begun := false
	d.keeper.look(func(m *memo) { begun = m.Forecast != nil || m.done() > 0 || len(m.InHand) > 0 })
	if begun || !known || d.spec.Mode != ModeMigrate {
		return
	}
	f := forecast(q, outlook{
		pace: d.pace, prewarm: d.prewarm, asks: d.mover.board.asks,
		endgame: time.Until(d.endgame), deadline: time.Until(d.deadline), commits: d.spec.AtDeadline == DeadlineCommit,
	})
	d.keeper.update(func(m *memo) { m.Forecast = f })
}
