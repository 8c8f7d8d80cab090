package migrations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"berth/statestore"
)

// errLost ends a holding: another process holds the job, or it is gone.
var errLost = errors.New("the job is another's")

// callTimeout bounds one call to the store, where nothing shorter does.
const callTimeout = 10 * time.Second

// jobStore is what a keeper needs of the store.
type jobStore interface {
	SaveJob(ctx context.Context, ref statestore.JobRef, state statestore.JobState, progress []byte, ttl time.Duration) (statestore.Job, error)
	Job(ctx context.Context, id string) (statestore.Job, statestore.Millis, error)
}

// keeper keeps one holding of a job: it renews the lease, stores the progress,
// and hears what operators ask. Those who need something stored before they go
// on share one save.
type keeper struct {
	store jobStore
	ref   statestore.JobRef
	kind  string
	lease time.Duration
	told  func(statestore.Job, Progress) // after each save

	totals *totals
	given  func() map[string]float64 // what the job has promised to targets; nil: nothing

	created time.Time // the job, by this process's monotonic clock

	kick chan struct{} // holds one token while a save should not wait for its turn

	mu      sync.Mutex
	state   statestore.JobState
	memo    memo
	speed   speed
	changes uint64        // of state and memo
	stored  uint64        // the last of them that is in the store
	renewed time.Time     // the lease
	counted Progress      // what totals know
	entered time.Time     // the phase
	waiting time.Time     // since when the session has been blocked that has been for longest; zero: none is
	saved   chan struct{} // closed by the next save
	control statestore.Control
	obey    chan struct{} // closed while control asks for something
}

func newKeeper(store jobStore, job *statestore.Job, m memo, o *Options, t *totals) *keeper {
	k := &keeper{
		store: store, ref: job.Ref(), kind: job.Kind, lease: o.Lease, told: o.OnProgress,
		totals: t, counted: m.Progress, entered: time.Now(),
		created: time.Now().Add(-max(0, job.Updated.Sub(job.Created))),
		kick:    make(chan struct{}, 1), state: job.State, memo: m,
		saved: make(chan struct{}), obey: make(chan struct{}), renewed: time.Now(),
		speed: newSpeed(time.Now(), m.done()),
	}
	k.hear(job.Control)
	return k
}

// hearing is how often a keeper hears what operators ask of another process.
const hearing = time.Second

// run saves what has changed and renews the lease until ctx ends, or the job is
// another's: errLost.
func (k *keeper) run(ctx context.Context) error {
	beat := min(k.lease/4, hearing)
	retry := backoff{least: beat / 20, most: beat}
	wait := beat
	for {
		due, err := k.await(ctx, wait)
		switch {
		case err != nil:
			return nil //nolint:nilerr // whoever ended ctx knows why
		case due:
			err = k.save(ctx, k.lease)
		default:
			err = k.listen(ctx)
		}
		switch {
		case errors.Is(err, errLost):
			return err
		case err != nil:
			wait = retry.pause()
		default:
			retry.reset()
			wait = beat
		}
	}
}

// await waits for the time, or for a kick, and reports whether a save is due:
// something has changed, or a third of the lease is over.
func (k *keeper) await(ctx context.Context, wait time.Duration) (due bool, err error) {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-k.kick:
		return true, nil
	case <-t.C:
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changes > k.stored || time.Since(k.renewed) >= k.lease/3, nil
}

// listen hears what operators ask without storing anything.
func (k *keeper) listen(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	job, _, err := k.store.Job(ctx, k.ref.ID)
	if err != nil {
		return fmt.Errorf("read job %s: %w", k.ref.ID, orLost(err))
	}
	if job.Token != k.ref.Token {
		return fmt.Errorf("%w: %s holds job %s", errLost, job.Holder, job.ID)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hear(job.Control)
	return nil
}

// save stores what there is, and hears the answer.
func (k *keeper) save(ctx context.Context, ttl time.Duration) error {
	k.mu.Lock()
	changes, state := k.changes, k.state
	k.speed.measure(time.Now(), k.entered, &k.memo.Progress)
	k.memo.Queued = max(0, k.memo.Total-k.memo.done()-k.memo.Reserved-sum(k.memo.Blocked)-sum(k.memo.Failed))
	if k.given != nil {
		k.memo.Given = k.given()
	}
	progress := k.memo.Progress
	doc, err := json.Marshal(&k.memo)
	k.mu.Unlock()
	if err != nil {
		return fmt.Errorf("encode progress of job %s: %w", k.ref.ID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	job, err := k.store.SaveJob(ctx, k.ref, state, doc, ttl)
	if err != nil {
		return fmt.Errorf("save job %s: %w", k.ref.ID, orLost(err))
	}
	k.answered(changes, job.Control, &progress, state)
	if k.told != nil {
		k.told(job, progress)
	}
	return nil
}

// orLost marks the errors that end a holding.
func orLost(err error) error {
	var held *statestore.LeaseHeldError
	if errors.As(err, &held) || errors.Is(err, statestore.ErrNotFound) {
		return fmt.Errorf("%w: %w", errLost, err)
	}
	return err
}

func (k *keeper) answered(changes uint64, control statestore.Control, p *Progress, state statestore.JobState) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.totals.saved(k.kind, &k.counted, p, state)
	k.counted = *p
	k.stored, k.renewed = max(k.stored, changes), time.Now()
	close(k.saved)
	k.saved = make(chan struct{})
	k.hear(control)
}

// hear takes over what operators ask.
func (k *keeper) hear(c statestore.Control) {
	was := k.control
	k.control = c
	switch {
	case was == statestore.ControlNone && c != statestore.ControlNone:
		close(k.obey)
	case was != statestore.ControlNone && c == statestore.ControlNone:
		k.obey = make(chan struct{})
	}
}

// asked is what operators ask.
func (k *keeper) asked() statestore.Control {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.control
}

// working is a context that ends with ctx, after the given time, and as soon as
// operators ask for anything.
func (k *keeper) working(ctx context.Context, within time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	k.mu.Lock()
	obey := k.obey
	k.mu.Unlock()
	t := time.NewTimer(within)
	go func() {
		defer t.Stop()
		defer cancel()
		select {
		case <-obey:
		case <-t.C:
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// wake lets the next save happen at once.
func (k *keeper) wake() {
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

// pledge lets each save store what the job has promised to targets by then.
func (k *keeper) pledge(given func() map[string]float64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.given = given
}

// note changes what the next save stores, without asking for one.
func (k *keeper) note(change func(*memo)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(&k.memo)
}

// update changes what is stored, within a second.
func (k *keeper) update(change func(*memo)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(&k.memo)
	k.changes++
}

// enter sets the state and the phase.
func (k *keeper) enter(state statestore.JobState, phase Phase) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.memo.Phase != phase {
		k.leave()
	}
	if k.state != state || k.memo.Phase != phase {
		k.state, k.memo.Phase = state, phase
		k.changes++
	}
}

// leave counts the phase that ends.
func (k *keeper) leave() {
	k.totals.phase(k.kind, k.memo.Phase, time.Since(k.entered))
	k.entered = time.Now()
}

// wait notes since when the session has been blocked that has been for longest.
func (k *keeper) wait(since time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waiting = since
}

// conclude sets the state that the job ends in; its phase says how far it came.
func (k *keeper) conclude(state statestore.JobState) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.leave()
	k.state, k.memo.Reserved = state, 0
	k.changes++
}

// sync waits until all changes so far are stored.
func (k *keeper) sync(ctx context.Context) error {
	k.mu.Lock()
	want := k.changes
	k.mu.Unlock()
	for {
		k.mu.Lock()
		stored, next := k.stored >= want, k.saved
		k.mu.Unlock()
		if stored {
			return nil
		}
		k.wake()
		select {
		case <-next:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// next waits for the next save, at most for the given time. The error is ctx's.
func (k *keeper) next(ctx context.Context, within time.Duration) error {
	k.mu.Lock()
	saved := k.saved
	k.mu.Unlock()
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case <-saved:
		return nil
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// age is the time since the job was created.
func (k *keeper) age() time.Duration { return time.Since(k.created) }

// look reads the memo.
func (k *keeper) look(read func(*memo)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	read(&k.memo)
}

// finish stores the last state, as often as it takes. run is over by then.
func (k *keeper) finish(ctx context.Context) error {
	retry := backoff{least: 50 * time.Millisecond, most: time.Second}
	for {
		err := k.save(ctx, k.lease)
		if err == nil || errors.Is(err, errLost) {
			return err
		}
		if err := sleep(ctx, retry.pause()); err != nil {
			return err
		}
	}
}

// speed follows how fast sessions are done.
type speed struct {
	at     time.Time // of the last measurement
	done   int
	last   time.Time // of the last session done
	sum    float64   // of what was measured, sessions a second, by weight
	weight float64   // of all that is in sum: less than 1 while the average is young
}

func newSpeed(now time.Time, done int) speed { return speed{at: now, done: done, last: now} }

// measure brings the rate (an average that forgets within about ten seconds), the
// estimate and the age of the last success up to date. The average begins with the
// work itself, when its phase was entered, and again after a pause. It is divided by
// the weight that was measured, so that it is not drawn to zero at first: the bias
// correction of exponential averages in Kingma and Ba, Adam, section 3.
func (s *speed) measure(now, entered time.Time, p *Progress) {
	if s.weight == 0 && entered.After(s.at) {
		s.at = entered
	}
	dt := now.Sub(s.at).Seconds()
	if dt <= 0 {
		return
	}
	done := p.done()
	if done > s.done {
		s.last = now
	}
	if p.Phase.works() {
		fresh := 1 - math.Exp(-dt/10)
		s.sum += fresh * (float64(done-s.done)/dt - s.sum)
		s.weight += fresh * (1 - s.weight)
	} else {
		s.sum, s.weight = 0, 0
	}
	s.at, s.done = now, done
	rate := s.sum / max(s.weight, math.SmallestNonzeroFloat64)
	p.RatePerS = math.Round(rate*100) / 100
	p.LastProgressMS = now.Sub(s.last).Milliseconds()
	p.EtaMS = 0
	if left := p.Total - done; left > 0 && rate > 0.01 {
		p.EtaMS = int64(float64(left) / rate * 1000)
	}
}

// works reports whether sessions can be done in the phase.
func (p Phase) works() bool { return p == PhaseMoving || p == PhaseErasing || p == PhaseSettling }
