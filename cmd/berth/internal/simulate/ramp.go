package simulate

// rampWatch follows who begins on newcomers while their ramp goes up, and after.
type rampWatch struct {
	members map[int32]bool
	began   int // new sessions in the present step
	theirs  int // of them on a newcomer
}

// Step is one step of a ramp.
type Step struct {
	At       string  `json:"at"`
	Percent  int     `json:"percent"` // of their weight
	New      int     `json:"new_sessions"`
	Theirs   int     `json:"on_newcomers"`
	Share    float64 `json:"share"`
	Expected float64 `json:"expected"` // their weight in force over everybody's
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

// look begins a step when the ramp went up, and keeps the present one up to date.
func (r *rampWatch) look(e *engine, w *window) {
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
	if len(w.steps) == 0 || w.steps[len(w.steps)-1].Percent != percent {
		w.steps = append(w.steps, Step{At: e.now.String(), Percent: percent, Expected: theirs / all})
		r.began, r.theirs = 0, 0
	}
	step := &w.steps[len(w.steps)-1]
	step.New, step.Theirs = r.began, r.theirs
	if r.began > 0 {
		step.Share = float64(r.theirs) / float64(r.began)
	}
}
