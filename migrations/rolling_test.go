package migrations

import (
	"fmt"
	"testing"
	"time"

	"berth/statestore"
)

// A rolling update: for each of twenty old instances a new one joins, and then the
// old one is drained, sparing those that will be drained as well. No session moves
// more than twice.
func TestRollingUpdateMovesEverySessionTwiceAtMost(t *testing.T) {
	for name, load := range map[string]float64{"while nothing runs": 0, "under load": 0.4} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				const fleet, each = 20, 12
				labelled := func(rs string) func(*statestore.InstanceSpec) {
					return func(s *statestore.InstanceSpec) { s.Labels = map[string]string{"rs": rs} }
				}
				workers := map[string]*worker{}
				for i := range fleet {
					id := fmt.Sprintf("old-%02d", i)
					workers[id] = w.register(id, labelled("old")).beating()
					workers[id].creates(i*each, (i+1)*each)
				}
				// Requests run where the sessions are.
				serve := func() {
					bound := map[string]int{}
					for i := range fleet * each {
						bound[w.session(i).Owner.Instance]++
					}
					for id, k := range workers {
						k.running.Store(int64(load * float64(bound[id])))
					}
					w.pass(5 * time.Second)
				}
				p := w.starts("one", w.store)
				w.pass(time.Minute)
				for i := range fleet {
					next, last := fmt.Sprintf("new-%02d", i), fmt.Sprintf("old-%02d", i)
					workers[next] = w.register(next, labelled("new")).beating()
					serve()
					job := p.drains(w, DrainSpec{Instances: []string{last}, Avoid: map[string]string{"rs": "old"}})
					w.eventually("its sessions have moved", func() bool { _, p := w.job(job.ID); return p.Moved == p.Total })
					workers[last].running.Store(0)
					w.ends(job.ID, statestore.JobSucceeded)
				}
				moves := map[int]int{}
				for i := range fleet * each {
					moves[len(w.session(i).Changes)-1]++
				}
				if moves[1]+moves[2] != fleet*each {
					t.Errorf("sessions by moves: %v", moves)
				}
			})
		})
	}
}
