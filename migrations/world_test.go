package migrations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"berth/routing"
	"berth/statestore"
	"berth/statestore/boltstore"
)

const poolName = "p"

// world is a store on virtual time, with instances and sessions in it.
type world struct {
	testing.TB
	ctx   context.Context
	store statestore.Store
	lives statestore.Lifetimes
	ops   atomic.Int64
	image atomic.Pointer[routing.Snapshot]
}

func newWorld(ctx context.Context, t testing.TB, store statestore.Store) *world {
	return &world{TB: t, ctx: ctx, store: store, lives: statestore.Lifetimes{
		Affinity: 30 * time.Minute, Retention: 24 * time.Hour, Tombstone: 25 * time.Hour,
	}}
}

// inWorld plays a test on virtual time against the embedded store.
func inWorld(t *testing.T, play func(w *world)) {
	t.Helper()
	t.Parallel()
	path := filepath.Join(t.TempDir(), "berth.db")
	synctest.Test(t, func(t *testing.T) {
		store, err := boltstore.Open(t.Context(), path, boltstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		play(newWorld(ctx, t, store))
		cancel()
		synctest.Wait()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) pass(d time.Duration) {
	w.Helper()
	w.ok(sleep(w.ctx, d))
}

// eventually looks again and again until the condition holds, and says how long
// that took. It gives up after a day of virtual time.
func (w *world) eventually(what string, holds func() bool) time.Duration {
	w.Helper()
	began := time.Now()
	for !holds() {
		if time.Since(began) > 24*time.Hour {
			w.Fatalf("never: %s", what)
		}
		w.pass(max(10*time.Millisecond, time.Since(began)/50))
	}
	return time.Since(began)
}

// worker is one boot of an instance.
type worker struct {
	w       *world
	by      statestore.Owner
	running atomic.Int64
	silent  atomic.Bool // sends no heartbeats
	answer  statestore.TaskResult
	warmed  atomic.Int64 // prewarms done
	told    atomic.Int64 // notices that a session has moved
	// does, when it is given, is how it does what it is asked, in place of taking
	// its time.
	does   func(t statestore.Task) statestore.TaskAnswer
	atOnce int // tasks that it pulls at once, 0: 8
}

// register adds a ready instance that nobody plays.
func (w *world) register(id string, change ...func(*statestore.InstanceSpec)) *worker {
	w.Helper()
	k := &worker{w: w, by: statestore.Owner{Instance: id, Incarnation: "boot-" + id}, answer: statestore.TaskDone}
	spec := statestore.InstanceSpec{ID: id, Pool: poolName, Incarnation: k.by.Incarnation, Address: "10.0.0.1:80", Weight: 100}
	for _, c := range change {
		c(&spec)
		k.by.Incarnation = spec.Incarnation
	}
	_, err := w.store.Register(w.ctx, spec)
	w.ok(err)
	in, err := w.store.SetLifecycle(w.ctx, k.by, statestore.LifecycleChange{To: statestore.Ready})
	w.ok(err)
	if in.Lifecycle != statestore.Ready {
		w.Fatalf("%s is %s", id, in.Lifecycle)
	}
	return k
}

// beating sends heartbeats every two seconds.
func (k *worker) beating() *worker {
	go func() {
		for {
			n := int(k.running.Load())
			if !k.silent.Load() {
				_, err := k.w.store.Heartbeat(k.w.ctx, k.by, statestore.Heartbeat{Running: n})
				if err != nil && k.w.ctx.Err() == nil {
					return // it registered anew
				}
			}
			if sleep(k.w.ctx, 2*time.Second) != nil {
				return
			}
		}
	}()
	return k
}

// polling pulls tasks and answers each after the time it takes.
func (k *worker) polling(takes time.Duration) *worker {
	go func() {
		for k.w.ctx.Err() == nil {
			tasks, _, err := k.w.store.LeaseTasks(k.w.ctx, k.by, cmp.Or(k.atOnce, 8), time.Minute)
			if err != nil {
				return
			}
			for _, t := range tasks {
				k.do(t, takes)
			}
			if len(tasks) == 0 && sleep(k.w.ctx, 30*time.Millisecond) != nil {
				return
			}
		}
	}()
	return k
}

func (k *worker) do(t statestore.Task, takes time.Duration) {
	answer := statestore.TaskAnswer{Result: k.answer, Version: t.Floor.Version}
	switch {
	case !t.Owner.IsZero():
		k.told.Add(1)
	case k.does != nil:
		answer = k.does(t)
	case k.answer == statestore.TaskDone && sleep(k.w.ctx, takes) != nil:
		return
	}
	if t.Kind == statestore.TaskPrewarm && t.Owner.IsZero() && answer.Result == statestore.TaskDone {
		k.warmed.Add(1)
	}
	_, err := k.w.store.FinishTask(k.w.ctx, k.by, t.ID, answer)
	if err != nil && !errors.Is(err, statestore.ErrNotFound) && k.w.ctx.Err() == nil {
		k.w.Errorf("answer task: %v", err)
	}
}

func keyOf(i int) statestore.SessionKey {
	return statestore.SessionKey{Tenant: "t", Pool: poolName, ID: fmt.Sprintf("s%03d", i)}
}

// creates lets the worker begin the sessions from the first to before the last.
func (k *worker) creates(first, last int) {
	k.w.Helper()
	var g errgroup.Group
	for i := first; i < last; i++ {
		g.Go(func() error { return k.appends(i) })
	}
	k.w.ok(g.Wait())
}

// appends writes one turn with the newest handle of the session.
func (k *worker) appends(i int) error {
	v, err := k.w.store.Lookup(k.w.ctx, keyOf(i))
	if err != nil {
		return err
	}
	return k.appendsAt(i, v.Floor())
}

// appendsAt writes one turn with a handle that says floor.
func (k *worker) appendsAt(i int, floor statestore.Floor) error {
	op := fmt.Sprintf("op-%d", k.w.ops.Add(1))
	_, err := k.w.store.Append(k.w.ctx, statestore.Append{
		Key: keyOf(i), By: k.by, Op: op, At: statestore.AtEnd,
		Handle: statestore.Presented{Floor: floor},
		Turns:  []statestore.Turn{{Type: statestore.TurnJSON, Value: []byte(`"a turn"`), Tokens: 100}}, Lifetimes: k.w.lives,
	})
	return err
}

func (w *world) session(i int) statestore.View {
	w.Helper()
	v, err := w.store.Lookup(w.ctx, keyOf(i))
	w.ok(err)
	return v
}

func (w *world) instance(id string) statestore.Instance {
	w.Helper()
	fleet, err := w.store.FleetView(w.ctx)
	w.ok(err)
	for _, in := range fleet.Instances {
		if in.ID == id {
			return in
		}
	}
	w.Fatalf("no instance %s", id)
	return statestore.Instance{}
}

// snapshot is the pool as a process would see it.
func (w *world) snapshot(string) *routing.Snapshot {
	fleet, err := w.store.FleetView(w.ctx)
	if err != nil {
		return nil
	}
	spec := routing.Spec{Version: fleet.Version, Policy: routing.DefaultPolicy()}
	for _, in := range fleet.Instances {
		state, err := routing.ParseState(string(in.Lifecycle))
		if err != nil {
			w.Error(err)
		}
		if state == routing.Ready && in.Health == statestore.Down {
			state = routing.Down
		}
		spec.Instances = append(spec.Instances, routing.Instance{
			ID: in.ID, Incarnation: in.Incarnation, Address: in.Address, Labels: in.Labels, Weight: in.Weight,
			State: state, Load: routing.Load{Running: in.LastBeat.Running, Waiting: in.LastBeat.Waiting},
		})
	}
	s, err := routing.NewSnapshot(spec, w.image.Load())
	if err != nil {
		w.Error(err)
	}
	w.image.Store(s)
	return s
}

// process is one berth process that runs jobs.
type process struct {
	*Runner
	kill context.CancelFunc
	done chan struct{}
}

// starts begins a process on the store, or on what stands before it.
func (w *world) starts(name string, store Store, change ...func(*Options)) *process {
	o := Options{
		Holder: name, Snapshot: w.snapshot,
		Lifetimes: func(string) statestore.Lifetimes { return w.lives },
		Require:   func(string) statestore.Requirement { return statestore.Requirement{} },
	}
	for _, c := range change {
		c(&o)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	p := &process{Runner: New(store, o), kill: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		if err := p.Run(ctx); err != nil {
			w.Errorf("run: %v", err)
		}
	}()
	return p
}

// stops ends a process in order.
func (p *process) stops() {
	p.kill()
	<-p.done
}

func (p *process) drains(w *world, spec DrainSpec) statestore.Job {
	w.Helper()
	job, existed, err := p.CreateDrain(w.ctx, spec)
	w.ok(err)
	if existed {
		w.Fatalf("job %s existed", job.ID)
	}
	return job
}

func (w *world) job(id string) (statestore.Job, Progress) {
	w.Helper()
	job, _, err := w.store.Job(w.ctx, id)
	w.ok(err)
	p, err := ParseProgress(job.Progress)
	w.ok(err)
	return job, p
}

// ends waits for the end of a job and holds it to the state.
func (w *world) ends(id string, want statestore.JobState) Progress {
	w.Helper()
	w.eventually("job ends", func() bool { job, _ := w.job(id); return job.State.Ended() })
	job, p := w.job(id)
	if job.State != want {
		w.Fatalf("job ended %s, want %s: %s", job.State, want, job.Progress)
	}
	return p
}

// truth counts, from the sessions themselves, how many were moved off an instance
// and how many of the first n are still bound to it.
func (w *world) truth(source string, n int) (moved, bound int) {
	w.Helper()
	for i := range n {
		v := w.session(i)
		if v.Owner.Instance == source {
			bound++
		}
		times := 0
		for j, c := range v.Changes {
			if c.Reason == statestore.ChangeMoved && v.Changes[j-1].Instance == source {
				times++
			}
		}
		if times > 1 {
			w.Errorf("session %d was moved off %s %d times", i, source, times)
		}
		moved += times
	}
	return moved, bound
}

func ms(d time.Duration) *int64 { n := d.Milliseconds(); return &n }
