package storetest

import (
	"errors"
	"time"

	"berth/statestore"
)

func jobTraces() []trace {
	return []trace{
		{"a lease has one holder, who renews it with one token", leaseHeld},
		{"a lease that is over or released gets a higher token", leaseTakenOver},
		{"a release by who no longer holds it changes nothing", leaseReleased},
		{"the same drain returns the same job until it has ended", jobSame},
		{"a job is taken over with a higher token when its lease is over", jobTakenOver},
		{"a runner that was succeeded cannot save", jobFenced},
		{"an operator's wish reaches the runner with its next save", jobControl},
		{"a job that has ended stays as it ended", jobEnded},
		{"jobs are listed newest first and forgotten in the end", jobPurged},
		{"a task is handed out once a lease", tasksLeased},
		{"a look at the tasks that wait leaves them", tasksWait},
		{"a task is of one boot, and ends at its deadline", tasksOfBoot},
		{"the first answer to a task stands", tasksAnswered},
		{"the tasks of a job are read and dropped together", tasksDropped},
		{"a notice is handed out once and needs no answer", noticesLeased},
		{"tasks are read by their ids", tasksRead},
	}
}

// refusedByLease fails unless err says that another holding, of that token, stands.
func refusedByLease(w *world, err error, token uint64) {
	w.Helper()
	var held *statestore.LeaseHeldError
	if !errors.As(err, &held) || held.Token != token {
		w.Fatalf("got %v, want a lease held with token %d", err, token)
	}
}

func (w *world) lease(holder string, ttl time.Duration) statestore.Lease {
	w.Helper()
	l, err := w.store.AcquireLease(w.ctx, "leader", holder, ttl)
	w.ok("acquire the lease for "+holder, err)
	return l
}

func leaseHeld(w *world) {
	w.shorten()
	ttl := w.lives.Affinity
	first := w.lease("one", ttl)
	if first.Token == 0 || first.Name != "leader" || first.Holder != "one" {
		w.Fatalf("lease %+v", first)
	}
	_, err := w.store.AcquireLease(w.ctx, "leader", "two", ttl)
	refused(w, err, &statestore.LeaseHeldError{Name: "leader", Holder: "one", Token: first.Token})
	other, err := w.store.AcquireLease(w.ctx, "another", "two", ttl)
	w.ok("another lease", err)
	equal(w, "its holder", other.Holder, "two")
	w.pass(ttl / 2)
	equal(w, "the renewed lease", w.lease("one", 4*ttl), first)
	w.pass(ttl)
	_, err = w.store.AcquireLease(w.ctx, "leader", "two", ttl)
	refusedByLease(w, err, first.Token)
}

func leaseTakenOver(w *world) {
	w.shorten()
	ttl := w.lives.Affinity
	first := w.lease("one", ttl)
	w.pass(ttl)
	second := w.lease("two", time.Hour)
	if second.Token <= first.Token {
		w.Fatalf("token %d after %d", second.Token, first.Token)
	}
	_, err := w.store.AcquireLease(w.ctx, "leader", "one", ttl)
	refusedByLease(w, err, second.Token)
	w.ok("release", w.store.ReleaseLease(w.ctx, second))
	third := w.lease("one", ttl)
	if third.Token <= second.Token {
		w.Fatalf("token %d after %d was released", third.Token, second.Token)
	}
	w.pass(ttl)
	if fourth := w.lease("one", ttl); fourth.Token <= third.Token {
		w.Fatalf("a new holding of the same holder has token %d, its last one %d", fourth.Token, third.Token)
	}
}

func leaseReleased(w *world) {
	w.shorten()
	first := w.lease("one", w.lives.Affinity)
	w.pass(w.lives.Affinity)
	second := w.lease("two", time.Hour)
	w.ok("release what is another's", w.store.ReleaseLease(w.ctx, first))
	_, err := w.store.AcquireLease(w.ctx, "leader", "one", time.Hour)
	refusedByLease(w, err, second.Token)
}

// job stores a job of that kind.
func (w *world) job(kind string) statestore.Job {
	w.Helper()
	j := statestore.Job{
		ID: "job-" + kind, Kind: kind, Pool: "llama", Sources: []statestore.Owner{{Instance: "a", Incarnation: "1"}},
		State: statestore.JobPending, Spec: []byte(`{"mode": "migrate"}`),
	}
	j, existed, err := w.store.CreateJob(w.ctx, j, time.Hour)
	w.ok("create "+kind, err)
	if existed {
		w.Fatalf("a new job existed: %+v", j)
	}
	return j
}

func (w *world) acquired(j statestore.Job, holder string) statestore.Job {
	w.Helper()
	ttl := 30 * time.Second
	if w.lives != longLives {
		ttl = w.lives.Affinity
	}
	j, err := w.store.AcquireJob(w.ctx, j.ID, holder, ttl)
	w.ok("acquire "+j.ID, err)
	return j
}

func (w *world) stored(id string) statestore.Job {
	w.Helper()
	j, now, err := w.store.Job(w.ctx, id)
	w.ok("read "+id, err)
	if now == 0 {
		w.Fatal("a job came without the store's clock")
	}
	return j
}

func jobSame(w *world) {
	first := w.job("drain")
	if first.State != statestore.JobPending || first.Attempts != 0 || first.Created == 0 || first.Deadline.Sub(first.Created) != time.Hour {
		w.Fatalf("a new job: %+v", first)
	}
	equal(w, "the stored job", w.stored(first.ID), first)
	again := first
	again.ID, again.Spec = "job-2", []byte(`{"mode": "linger"}`)
	got, existed, err := w.store.CreateJob(w.ctx, again, 2*time.Hour)
	w.ok("create it again", err)
	if !existed || got.ID != first.ID || string(got.Spec) != string(first.Spec) {
		w.Fatalf("the same drain: %+v, existed %v", got, existed)
	}
	w.refusedAs(third(w.store.Job(w.ctx, "job-2")), statestore.ErrNotFound)
	w.job("rebalance") // another kind
	next := again
	next.Sources = []statestore.Owner{{Instance: "a", Incarnation: "2"}}
	if _, existed, err = w.store.CreateJob(w.ctx, next, time.Hour); err != nil || existed {
		w.Fatalf("a drain of the next boot: existed %v, %v", existed, err)
	}
	held := w.acquired(first, "one")
	w.ok("end it", second(w.store.SaveJob(w.ctx, held.Ref(), statestore.JobSucceeded, nil, time.Minute)))
	again.ID = "job-3"
	if got, existed, err = w.store.CreateJob(w.ctx, again, time.Hour); err != nil || existed || got.ID != "job-3" {
		w.Fatalf("a drain after the first ended: %+v, existed %v, %v", got, existed, err)
	}
}

func third[A, B any](_ A, _ B, err error) error { return err }

func jobTakenOver(w *world) {
	w.shorten()
	j := w.job("drain")
	first := w.acquired(j, "one")
	if first.Token == 0 || first.Holder != "one" || first.Attempts != 1 {
		w.Fatalf("after the first take-over: %+v", first)
	}
	_, err := w.store.AcquireJob(w.ctx, j.ID, "two", time.Hour)
	refused(w, err, &statestore.LeaseHeldError{Name: j.ID, Holder: "one", Token: first.Token})
	saved, err := w.store.SaveJob(w.ctx, first.Ref(), statestore.JobRunning, []byte(`{"moved": 40}`), 4*w.lives.Affinity)
	w.ok("save", err)
	w.passUntil(first.LeaseEnd)
	_, err = w.store.AcquireJob(w.ctx, j.ID, "two", time.Hour)
	refusedByLease(w, err, first.Token)
	w.passUntil(saved.LeaseEnd)
	second := w.acquired(j, "two")
	equal(w, "the stored job", w.stored(j.ID), second)
	if second.Token <= first.Token || second.Attempts != 2 || second.State != statestore.JobRunning || string(second.Progress) != `{"moved": 40}` {
		w.Fatalf("after the second take-over: %+v", second)
	}
	_, err = w.store.AcquireJob(w.ctx, "nobody", "one", time.Hour)
	w.refusedAs(err, statestore.ErrNotFound)
}

// T15: the first runner wakes up, its lease long over.
func jobFenced(w *world) {
	w.shorten()
	j := w.job("drain")
	first := w.acquired(j, "one")
	w.passUntil(first.LeaseEnd)
	token := w.acquired(j, "two").Token
	before := w.stored(j.ID)
	_, err := w.store.SaveJob(w.ctx, first.Ref(), statestore.JobSucceeded, []byte(`{"moved": 99}`), time.Hour)
	refused(w, err, &statestore.LeaseHeldError{Name: j.ID, Holder: "two", Token: token})
	equal(w, "the job", w.stored(j.ID), before)
	w.refusedAs(second(w.store.SaveJob(w.ctx, statestore.JobRef{ID: "nobody", Token: 1}, statestore.JobRunning, nil, time.Hour)), statestore.ErrNotFound)
}

func jobControl(w *world) {
	j := w.job("drain")
	held := w.acquired(j, "one")
	for _, c := range []statestore.Control{statestore.ControlPause, statestore.ControlNone, statestore.ControlCancel} {
		got, err := w.store.ControlJob(w.ctx, j.ID, c)
		w.ok("control", err)
		equal(w, "the answer", got.Control, c)
		got, err = w.store.SaveJob(w.ctx, held.Ref(), statestore.JobRunning, []byte(`{}`), time.Hour)
		w.ok("save", err)
		equal(w, "what the runner learns", got.Control, c)
	}
	w.refusedAs(second(w.store.ControlJob(w.ctx, "nobody", statestore.ControlPause)), statestore.ErrNotFound)
}

func jobEnded(w *world) {
	j := w.job("drain")
	held := w.acquired(j, "one")
	ended, err := w.store.SaveJob(w.ctx, held.Ref(), statestore.JobPartial, []byte(`{"left":1}`), time.Hour)
	w.ok("end", err)
	if ended.State != statestore.JobPartial || ended.Ended == 0 {
		w.Fatalf("after the end: %+v", ended)
	}
	got, err := w.store.ControlJob(w.ctx, j.ID, statestore.ControlCancel)
	w.ok("control", err)
	equal(w, "the job after a wish", got, ended)
	equal(w, "the stored job", w.stored(j.ID), ended)
}

func jobPurged(w *world) {
	w.shorten()
	kinds := []string{"drain", "rebalance", "erase"}
	for _, kind := range kinds {
		w.job(kind)
		w.pass(2 * time.Millisecond)
	}
	for _, kind := range kinds[:2] {
		held := w.acquired(w.stored("job-"+kind), "one")
		w.ok("end", second(w.store.SaveJob(w.ctx, held.Ref(), statestore.JobSucceeded, nil, time.Hour)))
		w.pass(w.lives.Affinity)
	}
	list := func(want ...string) {
		w.Helper()
		jobs, now, err := w.store.Jobs(w.ctx)
		w.ok("list", err)
		var got []string
		for _, j := range jobs {
			got = append(got, j.Kind)
		}
		equal(w, "jobs", got, want)
		if now == 0 {
			w.Fatal("jobs came without the store's clock")
		}
	}
	list("erase", "rebalance", "drain")
	n, err := w.store.PurgeJobs(w.ctx, 20*w.lives.Affinity)
	w.ok("purge", err)
	equal(w, "purged", n, 0)
	first := w.stored("job-drain").Ended
	n, err = w.store.PurgeJobs(w.ctx, w.now().Sub(first)-w.lives.Affinity/2)
	w.ok("purge", err)
	equal(w, "purged", n, 1)
	list("erase", "rebalance")
	w.refusedAs(third(w.store.Job(w.ctx, "job-drain")), statestore.ErrNotFound)
}
