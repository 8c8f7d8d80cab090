package migrations

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	"berth/statestore"
)

// pledges is the load that one holding of a job has promised to targets, or has just
// given them, and that their heartbeats do not tell yet. It is stored with the job's
// progress, so that other jobs of the pool count it when they plan.
type pledges struct {
	mu      sync.Mutex
	unseen  unseen
	planned map[string]float64 // by the pass that is under way
}

// plan takes over what a pass promises.
func (p *pledges) plan(steps []step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.planned = map[string]float64{}
	for i := range steps {
		if s := &steps[i]; !s.target.IsZero() && s.load > 0 {
			p.planned[s.target.Instance] += s.load
		}
	}
}

// clear drops what is left of a pass that is over.
func (p *pledges) clear() { p.plan(nil) }

// moved turns a promise into what the target has.
func (p *pledges) moved(now time.Time, s *step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id := s.target.Instance; p.planned[id] > 0 {
		p.planned[id] = max(0, p.planned[id]-s.load)
	}
	p.unseen.add(now, s.target.Instance, s.load)
	p.unseen.add(now, s.owner.Instance, -s.load)
}

// all is what is promised or not seen yet, by instance.
func (p *pledges) all(now time.Time) map[string]float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unseen.fade(now)
	sum := maps.Clone(p.unseen.load)
	for id, load := range p.planned {
		sum[id] += load
	}
	maps.DeleteFunc(sum, func(_ string, load float64) bool { return math.Abs(load) < 0.01 })
	return sum
}

// othersGave is what other jobs of the pool say that they have promised or just given.
// What a job says fades once it has ended, or nobody holds it any more.
func (w *work) othersGave(ctx context.Context) (map[string]float64, error) {
	jobs, now, err := w.store.Jobs(ctx)
	if err != nil {
		return nil, fmt.Errorf("read what other jobs plan: %w", err)
	}
	sum := map[string]float64{}
	for i := range jobs {
		j := &jobs[i]
		if j.Pool != w.job.Pool || j.ID == w.job.ID {
			continue
		}
		for id, load := range givenBy(j, now, w.o.Lease) {
			sum[id] += load
		}
	}
	return sum, nil
}

// forgotten is the age at which nothing is left of what a job gave.
const forgotten = 8 * unseenHalf

// givenBy is what is left of what a job said.
func givenBy(j *statestore.Job, now statestore.Millis, lease time.Duration) map[string]float64 {
	age := now.Sub(j.Updated)
	if !j.State.Ended() {
		age = max(0, age-lease) // while its holder lives it says so within a lease
	}
	if age >= forgotten || len(j.Progress) == 0 {
		return nil
	}
	var said struct {
		Given map[string]float64 `json:"given"`
	}
	if json.Unmarshal(j.Progress, &said) != nil {
		return nil // its own holder finds that it cannot be understood
	}
	rest := math.Exp2(-float64(max(0, age)) / float64(unseenHalf))
	for id := range said.Given {
		said.Given[id] *= rest
	}
	return said.Given
}

// mostYields is how often in a row a pass gives way to another job's.
const mostYields = 3

// pledge lets other jobs know what the pass promises, before it acts, and reports
// whether another job has promised to the same targets since this plan was made. Two
// that plan in the same moment both find that, and plan again at different times.
func (w *work) pledge(ctx context.Context, steps []step) (crossed bool, err error) {
	w.pledged.plan(steps)
	w.keeper.update(func(*memo) {})
	if err := w.keeper.sync(ctx); err != nil {
		return false, err
	}
	others, err := w.othersGave(ctx)
	if err != nil {
		return false, err
	}
	for i := range steps {
		id := steps[i].target.Instance
		if steps[i].load > 0 && others[id]-w.counted[id] >= 1 && w.yields < mostYields {
			w.yields++
			w.pledged.clear()
			return true, nil
		}
	}
	w.yields = 0
	return false, nil
}
