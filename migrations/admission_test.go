package migrations

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"berth/integration/redistest"
	"berth/statestore"
	"berth/statestore/line"
	"berth/statestore/redisstore"
)

// created is the answer to the request for a drain.
type created struct {
	job statestore.Job
	err error
}

// drainsAtOnce asks for all of the drains at the same time, of the processes in turn.
func (w *world) drainsAtOnce(processes []*process, specs ...DrainSpec) []created {
	answers := make([]created, len(specs))
	var asked sync.WaitGroup
	for i, spec := range specs {
		asked.Go(func() {
			answers[i].job, _, answers[i].err = processes[i%len(processes)].CreateDrain(w.ctx, spec)
		})
	}
	asked.Wait()
	return answers
}

// refusals sorts the answers, which have to be a job or that there is no target.
func (w *world) refusals(answers []created) (jobs []statestore.Job, refused int) {
	w.Helper()
	for _, a := range answers {
		var none *NoTargetError
		switch {
		case a.err == nil:
			jobs = append(jobs, a.job)
		case errors.As(a.err, &none) && none.Sessions >= 5: // others may have moved there by then
			refused++
		default:
			w.Errorf("answer %v", a.err)
		}
	}
	return jobs, refused
}

// Case T24, with a request for each instance: one of them has to stay, whichever
// process is asked, and whoever is drained has its sessions moved there.
func TestDrainsOfAWholePoolAtOnce(t *testing.T) {
	for name, runners := range map[string][]string{"one process": {"one"}, "two processes": {"one", "two"}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) { w.drainWholePool(runners) })
		})
	}
}

// The same in real time.
func TestDrainsOfAWholePoolAtOnceOnRedis(t *testing.T) {
	t.Parallel()
	store, err := redisstore.Open(t.Context(), redistest.Standalone(t).URL, redisstore.Options{Partitions: 16})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w := newWorld(ctx, t, store)
	processes := w.drainWholePool([]string{"one", "two"})
	for _, p := range processes {
		p.stops()
	}
	cancel()
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}

func (w *world) drainWholePool(runners []string) (processes []*process) {
	w.Helper()
	ids := []string{"a", "b", "c"}
	specs := make([]DrainSpec, len(ids))
	for i, id := range ids {
		w.register(id).creates(5*i, 5*i+5)
		specs[i] = DrainSpec{Instances: []string{id}, InFlightGraceMS: ms(0)}
	}
	for _, name := range runners {
		processes = append(processes, w.starts(name, w.store, func(o *Options) { o.LongestHint = 100 * time.Millisecond }))
	}
	jobs, refused := w.refusals(w.drainsAtOnce(processes, specs...))
	if refused != 1 {
		w.Fatalf("%d of three drains were refused", refused)
	}
	for _, j := range jobs {
		w.ends(j.ID, statestore.JobSucceeded)
	}
	ready := map[string]int{}
	for _, id := range ids {
		ready[string(w.instance(id).Lifecycle)]++
	}
	if ready["ready"] != 1 || ready["drained"] != 2 {
		w.Errorf("instances by state: %v", ready)
	}
	for i := range 15 {
		if owner := w.session(i).Owner.Instance; w.instance(owner).Lifecycle != statestore.Ready {
			w.Errorf("session %d is on %s", i, owner)
		}
	}
	return processes
}

// What a drain closes is no target for another, also while it is only stored; a drain
// that moves nothing asks for none. The preview says the same.
func TestWhatAnotherJobDrainsIsNoTarget(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.register("a"), w.register("b")
		a.creates(0, 5)
		p := New(w.store, Options{Holder: "begins nothing", Snapshot: w.snapshot})
		stores := func(mode Mode, by statestore.Owner) statestore.Job {
			t.Helper()
			job, existed, err := p.createDrain(w.ctx, &DrainSpec{Instances: []string{by.Instance}, Mode: mode, DeadlineMS: 1000})
			if err != nil || existed {
				t.Fatalf("drain of %s: existed %v, %v", by.Instance, existed, err)
			}
			return job
		}
		detach := stores(ModeDetach, b.by)
		var none *NoTargetError
		if _, _, err := p.CreateDrain(w.ctx, DrainSpec{Instances: []string{"a"}}); !errors.As(err, &none) || none.Sessions != 5 || len(none.Candidates) != 1 {
			t.Errorf("drain: %v", err)
		}
		if _, err := p.PreviewDrain(w.ctx, DrainSpec{Instances: []string{"a"}}); !errors.As(err, &none) || none.Sessions != 5 {
			t.Errorf("preview: %v", err)
		}
		w.ends(w.cancels(p, detach.ID), statestore.JobCancelled)
		stores(ModeMigrate, a.by)
		stores(ModeDetach, b.by)
	})
}

// A detach is for when nobody may be left, and takes also the last target of a drain
// that was accepted: no session is lost or goes back, and the drain says what it missed.
func TestADetachOfTheLastTarget(t *testing.T) {
	inWorld(t, func(w *world) {
		w.register("a").creates(0, 5)
		w.register("b").creates(5, 10)
		idle := New(w.store, Options{Holder: "begins nothing", Snapshot: w.snapshot})
		create := func(mode Mode, instance string) statestore.Job {
			t.Helper()
			job, _, err := idle.CreateDrain(w.ctx, DrainSpec{Instances: []string{instance}, Mode: mode, DeadlineMS: 60_000, InFlightGraceMS: ms(0)})
			w.ok(err)
			return job
		}
		moves, detaches := create(ModeMigrate, "a"), create(ModeDetach, "b")
		w.starts("one", w.store)
		w.ends(detaches.ID, statestore.JobSucceeded)
		if p := w.ends(moves.ID, statestore.JobPartial); p.Moved != 0 || p.Blocked[BlockedNoTarget] != 5 {
			t.Errorf("the drain ends with %+v", p)
		}
		for i := range 10 {
			if v := w.session(i); (v.Owner.Instance == "a") != (i < 5) || v.Owner.Instance == "b" {
				t.Errorf("session %d is on %q", i, v.Owner.Instance)
			}
		}
	})
}

// cancels ends a job that nobody holds, with a process that begins for that.
func (w *world) cancels(p *Runner, job string) string {
	w.Helper()
	_, err := p.Cancel(w.ctx, job)
	w.ok(err)
	other := w.starts("cancels", w.store)
	w.eventually("the job is cancelled", func() bool { j, _ := w.job(job); return j.State.Ended() })
	other.stops()
	return job
}

// Whoever died while it created a drain keeps others waiting for the time of its
// lease, and one that hangs for no longer than the request does.
func TestAnAdmissionThatIsNotGivenBack(t *testing.T) {
	inWorld(t, func(w *world) {
		w.register("a").beating()
		w.register("b")
		_, err := w.store.AcquireLease(w.ctx, "drains/"+poolName, "dead", line.Lease)
		w.ok(err)
		p := w.starts("one", w.store)
		began := time.Now()
		job := p.drains(w, DrainSpec{Instances: []string{"a"}})
		if took := time.Since(began); took < line.Lease-time.Second || took > line.Wait {
			t.Errorf("it waited for %v", took)
		}
		w.ends(job.ID, statestore.JobSucceeded)
		_, err = w.store.AcquireLease(w.ctx, "drains/"+poolName, "hangs", time.Hour)
		w.ok(err)
		if _, _, err := p.CreateDrain(w.ctx, DrainSpec{Instances: []string{"a"}}); !errors.Is(err, statestore.ErrUnavailable) {
			t.Errorf("while another hangs: %v", err)
		}
	})
}
