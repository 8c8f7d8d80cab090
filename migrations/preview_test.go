package migrations

import (
	"errors"
	"slices"
	"testing"
	"time"

	"berth/statestore"
)

// A preview says what the drain then does, and touches nothing.
func TestPreviewOfADrain(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a").beating()
		a.creates(0, 5)
		p := w.starts("one", w.store)
		var none *NoTargetError
		if _, err := p.PreviewDrain(w.ctx, DrainSpec{Instances: []string{"a"}}); !errors.As(err, &none) {
			t.Errorf("without a target: %v", err)
		}
		w.register("b").beating()
		w.register("c").beating()
		w.pass(time.Hour) // these lapse
		a.creates(5, 25)
		w.pass(15 * time.Minute)
		a.creates(25, 35)
		w.pass(time.Minute)
		before, err := w.store.FleetView(w.ctx)
		w.ok(err)
		spec := DrainSpec{Instances: []string{"a"}, Prewarm: Prewarm{MaxTokens: 750}}
		got, err := p.PreviewDrain(w.ctx, spec)
		w.ok(err)
		if got.Sessions != 30 || got.Unbound != 5 || got.Tokens != 3000 || got.PrewarmSessions != 7 || got.PrewarmTokens != 700 || len(got.Moves) != 35 {
			t.Errorf("preview %+v", got)
		}
		after, err := w.store.FleetView(w.ctx)
		w.ok(err)
		jobs, _, err := w.store.Jobs(w.ctx)
		w.ok(err)
		if after.Members != before.Members || len(jobs) != 0 {
			t.Errorf("it left %v behind", jobs)
		}
		lingering, err := p.PreviewDrain(w.ctx, DrainSpec{Instances: []string{"a"}, Mode: ModeLinger})
		w.ok(err)
		if lingering.Waiting != 30 || lingering.Unbound != 5 || lingering.Sessions != 0 {
			t.Errorf("lingering %+v", lingering)
		}
		done := w.ends(p.drains(w, spec).ID, statestore.JobSucceeded)
		for id, share := range got.Targets {
			if done.Targets[id] != share.Sessions {
				t.Errorf("planned %v, done %v", got.Targets, done.Targets)
			}
		}
		for _, m := range got.Moves {
			var i int
			for i = range 35 {
				if keyOf(i).ID == m.Session {
					break
				}
			}
			if v := w.session(i); v.Owner.Instance != m.To {
				t.Errorf("session %s was to go to %q and is on %q", m.Session, m.To, v.Owner.Instance)
			}
		}
	})
}

// A preview of a rebalance says what the rebalance then does.
func TestPreviewOfARebalance(t *testing.T) {
	inWorld(t, func(w *world) {
		w.hot()
		p := w.starts("one", w.store)
		got, err := p.PreviewRebalance(w.ctx, poolName, "t", RebalanceSpec{})
		w.ok(err)
		if got.Sessions == 0 || got.Tokens != uint64(100*got.Sessions) {
			t.Errorf("preview %+v", got)
		}
		named, err := p.PreviewRebalance(w.ctx, poolName, "t", RebalanceSpec{Sessions: []string{"s001", "s777"}, Target: "b"})
		w.ok(err)
		if named.Sessions != 1 || named.Moves[0].Session != "s001" || named.Moves[0].To != "b" || named.Blocked[SkippedExpired] != 1 {
			t.Errorf("of named sessions: %+v", named)
		}
		if !slices.Equal(got.OverBound, []string{"a"}) || named.OverBound != nil {
			t.Errorf("over their bound: %q; of named sessions %q", got.OverBound, named.OverBound)
		}
		calm, err := p.PreviewRebalance(w.ctx, poolName, "t", RebalanceSpec{Instance: "b"})
		w.ok(err)
		if calm.Sessions != 0 || calm.OverBound == nil || len(calm.OverBound) != 0 {
			t.Errorf("of an instance under its bound: %+v", calm)
		}
		done := w.ends(p.rebalances(w, RebalanceSpec{}).ID, statestore.JobSucceeded)
		if done.Moved != got.Sessions {
			t.Errorf("planned %d, moved %d", got.Sessions, done.Moved)
		}
		w.countsRight(done, "a", 60)
	})
}
