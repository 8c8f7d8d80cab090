package simulate

// rampWatch follows who begins on newcomers while their ramp goes up, and after.
type rampWatch struct {
	members map[int32]bool
	began   int // new sessions in the present step
	theirs  int // of them on a newcomer
	seconds int // of the step, and what was expected in them: others come and go meanwhile
	hoped   float64
}

// Step is one step of a ramp.
type Step struct {
	At       string  `json:"at"`
	Percent  int     `json:"percent"` // of their weight
	New      int     `json:"new_sessions"`
	Theirs   int     `json:"on_newcomers"`
	Share    float64 `json:"share"`
	Expected float64 `json:"expected"` // their weight in force over everybody's, on average
}

// count books the first turn of a session.
func (r *rampWatch) count(in *instance) {
	if r == nil {
		return
	}
	r.began++
	if r.members[in.index] {
		r.theirs++
	}
}

// forget ends the watch of an instance that leaves.
func (r *rampWatch) forget(in *instance) {
	if r != nil {
		delete(r.members, in.index)
	}
}

// look begins a step when the ramp went up, and keeps the present one up to date.
func (r *rampWatch) look(e *engine, a *account) {
	if r == nil {
		return
	}
	theirs, all, whole := 0.0, 0.0, 0.0
	for _, in := range e.fleet {
		if !in.alive || !in.state.MayTakeNew() {
			continue
		}
		all += in.effective()
		if r.members[in.index] {
			theirs += in.effective()
			whole += float64(in.weight)
		}
	}
	if theirs == 0 {
		return // queued, or gone again
	}
	percent := int(100*theirs/whole + 0.5)
	if len(a.steps) == 0 || a.steps[len(a.steps)-1].Percent != percent {
		a.steps = append(a.steps, Step{At: e.now.String(), Percent: percent})
		r.began, r.theirs, r.seconds, r.hoped = 0, 0, 0, 0
	}
	r.seconds++
	r.hoped += theirs / all
	step := &a.steps[len(a.steps)-1]
	step.New, step.Theirs, step.Expected = r.began, r.theirs, r.hoped/float64(r.seconds)
	if r.began > 0 {
		step.Share = float64(r.theirs) / float64(r.began)
	}
}
