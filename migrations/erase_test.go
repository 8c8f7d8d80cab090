package migrations

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"berth/statestore"
)

var (
	alice = statestore.AffinityKey{1}
	bob   = statestore.AffinityKey{2}
)

// begins lets the worker begin sessions with an affinity key.
func (k *worker) begins(key statestore.AffinityKey, first, last int) {
	k.w.Helper()
	for i := first; i < last; i++ {
		_, err := k.w.store.Append(k.w.ctx, statestore.Append{
			Key: keyOf(i), By: k.by, Op: fmt.Sprintf("begin-%d", i), At: statestore.AtEnd,
			Handle: statestore.Presented{Floor: k.w.session(i).Floor(), AffinityKey: key}, Recreate: true,
			Turns: []statestore.Turn{{Type: statestore.TurnJSON, Value: []byte(`"a turn"`), Tokens: 100}}, Lifetimes: k.w.lives,
		})
		k.w.ok(err)
	}
}

// ending is how a process ends sessions for erases, and counts its calls.
func ending(store statestore.Store, lives statestore.Lifetimes, calls *atomic.Int64) func(*Options) {
	return func(o *Options) {
		o.Erase = func(ctx context.Context, seen *statestore.View) (bool, error) {
			calls.Add(1)
			ended, err := store.Delete(ctx, statestore.Delete{
				Key: seen.Key, Handle: &statestore.Presented{Floor: seen.Floor()}, Lifetimes: lives,
			})
			return ended.Existed, err
		}
	}
}

// there counts the sessions that are stored.
func (w *world) there(first, last int) (n int) {
	w.Helper()
	for i := first; i < last; i++ {
		if w.session(i).Exists {
			n++
		}
	}
	return n
}

// An erase ends the sessions of one key of one tenant, and no other; begun twice it is
// one job.
func TestEraseEndsTheSessionsOfAKey(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a")
		a.begins(alice, 0, 600)
		a.begins(bob, 600, 610)
		a.creates(610, 620)
		var calls atomic.Int64
		p := w.starts("p", w.store, ending(w.store, w.lives, &calls))
		spec := EraseSpec{Tenant: "t", Key: alice}
		job, existed, err := p.CreateErase(w.ctx, spec)
		w.ok(err)
		again, twice, err := p.CreateErase(w.ctx, spec)
		w.ok(err)
		if existed || !twice || again.ID != job.ID {
			t.Errorf("job %s existed %v, then %s existed %v", job.ID, existed, again.ID, twice)
		}
		got := w.ends(job.ID, statestore.JobSucceeded)
		if got.Total != 600 || got.Erased != 600 || got.Tokens != 60_000 || got.Phase != PhaseErasing || calls.Load() != 600 {
			t.Errorf("progress %+v after %d calls", got, calls.Load())
		}
		if mine, others := w.there(0, 600), w.there(600, 620); mine != 0 || others != 20 {
			t.Errorf("%d sessions of the key are there, %d others", mine, others)
		}
		other, _, err := p.CreateErase(w.ctx, EraseSpec{Tenant: "another", Key: bob})
		w.ok(err)
		if got := w.ends(other.ID, statestore.JobSucceeded); got.Total != 0 || w.there(600, 610) != 10 {
			t.Errorf("another tenant's erase: %+v", got)
		}
		if sums := p.Totals()[KindErase]; sums.Sessions[ResultErased] != 600 || sums.Ended[statestore.JobSucceeded] != 2 {
			t.Errorf("totals %+v", sums)
		}
		for _, wrong := range []EraseSpec{{Tenant: "t"}, {Tenant: "t", Key: bob, Deadline: -1}, {Tenant: "t", Key: bob, SessionsPerS: -1}, {Tenant: "t", Key: bob, Deadline: 8 * 24 * time.Hour}} {
			if _, _, err := p.CreateErase(w.ctx, wrong); !errors.Is(err, statestore.ErrInvalid) {
				t.Errorf("%+v: %v", wrong, err)
			}
		}
	})
}

// The process dies at a delete that took effect, and at one that did not; the next one
// ends the job and counts each session once.
func TestEraseOutlivesItsProcess(t *testing.T) {
	for _, after := range []bool{true, false} {
		t.Run(fmt.Sprint("took effect ", after), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.register("a").begins(alice, 0, 40)
				var calls atomic.Int64
				f := newFaulty(w.store)
				dies := ending(w.store, w.lives, &calls)
				doomed := w.starts("doomed", f, dies, func(o *Options) {
					erase := o.Erase
					o.Erase = func(ctx context.Context, seen *statestore.View) (existed bool, err error) {
						last := calls.Load() == 12
						if !last || after {
							existed, err = erase(ctx, seen)
						}
						if last || f.alive() != nil {
							f.die()
							return false, errDead
						}
						return existed, err
					}
				})
				job, _, err := doomed.CreateErase(w.ctx, EraseSpec{Tenant: "t", Key: alice})
				w.ok(err)
				w.eventually("it is dead", func() bool { return f.alive() != nil })
				doomed.stops()
				w.starts("heir", w.store, ending(w.store, w.lives, &calls))
				got := w.ends(job.ID, statestore.JobSucceeded)
				if got.Total != 40 || got.Erased != 40 || w.there(0, 40) != 0 {
					t.Errorf("progress %+v", got)
				}
			})
		})
	}
}

// A session that changes while it waits for its turn is ended as it is then, and one
// that was begun anew after a paused holder saw it is not ended by that holder.
func TestEraseEndsOnlyWhatItSaw(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a")
		a.begins(alice, 0, 1)
		seen := w.session(0)
		var calls atomic.Int64
		p := w.starts("p", w.store, ending(w.store, w.lives, &calls), func(o *Options) {
			erase := o.Erase
			o.Erase = func(ctx context.Context, v *statestore.View) (bool, error) {
				if calls.Load() == 0 {
					_, err := w.store.Delete(ctx, statestore.Delete{Key: v.Key, Lifetimes: w.lives})
					w.ok(err)
					a.begins(alice, 0, 1)
				}
				return erase(ctx, v)
			}
		})
		job, _, err := p.CreateErase(w.ctx, EraseSpec{Tenant: "t", Key: alice})
		w.ok(err)
		w.eventually("it was refused, and seen again", func() bool { return calls.Load() > 1 })
		got := w.ends(job.ID, statestore.JobSucceeded)
		if got.Erased+got.Skipped[SkippedDeleted] != got.Total || w.there(0, 1) != 0 {
			t.Errorf("progress %+v", got)
		}
		a.begins(alice, 0, 1)
		if _, err := p.o.Erase(w.ctx, &seen); err == nil || w.there(0, 1) != 1 {
			t.Errorf("a session of a later epoch was ended: %v", err)
		}
	})
}

// An erase keeps its pace, pauses, is cancelled, and names at its deadline what it has
// not reached.
func TestEraseIsAJobLikeOthers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.register("a").begins(alice, 0, 100)
		var calls atomic.Int64
		p := w.starts("p", w.store, ending(w.store, w.lives, &calls))
		slow := EraseSpec{Tenant: "t", Pool: poolName, Key: alice, SessionsPerS: 1, Deadline: 30 * time.Second}
		job, _, err := p.CreateErase(w.ctx, slow)
		w.ok(err)
		w.eventually("it erases", func() bool { _, p := w.job(job.ID); return p.Erased > 4 })
		_, err = p.Pause(w.ctx, job.ID)
		w.ok(err)
		w.eventually("it pauses", func() bool { j, _ := w.job(job.ID); return j.State == statestore.JobPaused })
		still := w.there(0, 100)
		w.pass(5 * time.Second)
		if now := w.there(0, 100); now != still {
			t.Errorf("%d sessions went while it was paused", still-now)
		}
		_, err = p.Resume(w.ctx, job.ID)
		w.ok(err)
		got := w.ends(job.ID, statestore.JobPartial)
		left := w.there(0, 100)
		if left < 70 || left > 90 || got.Erased != 100-left || got.Blocked[BlockedDeadline] != left || len(got.Left) != left || got.Left[0].Reason != BlockedDeadline {
			t.Errorf("%d are left, progress %+v", left, got)
		}
		job, _, err = p.CreateErase(w.ctx, slow)
		w.ok(err)
		w.eventually("it erases", func() bool { _, p := w.job(job.ID); return p.Erased > 4 })
		_, err = p.Cancel(w.ctx, job.ID)
		w.ok(err)
		got = w.ends(job.ID, statestore.JobCancelled)
		still = w.there(0, 100)
		w.pass(time.Minute)
		if now := w.there(0, 100); now != still || got.Erased != left-now {
			t.Errorf("%d are there after the cancel, %d later, progress %+v", still, now, got)
		}
	})
}

// What a pool's durability was not reached for is named: the job is no success.
func TestEraseSaysWhatIsNotDurable(t *testing.T) {
	inWorld(t, func(w *world) {
		w.register("a").begins(alice, 0, 3)
		var calls atomic.Int64
		p := w.starts("p", w.store, ending(w.store, w.lives, &calls), func(o *Options) {
			erase := o.Erase
			o.Erase = func(ctx context.Context, v *statestore.View) (bool, error) {
				existed, err := erase(ctx, v)
				if err == nil && v.Key == keyOf(1) {
					err = &statestore.NotDurableError{}
				}
				return existed, err
			}
		})
		job, _, err := p.CreateErase(w.ctx, EraseSpec{Tenant: "t", Key: alice})
		w.ok(err)
		got := w.ends(job.ID, statestore.JobPartial)
		if got.Erased != 3 || len(got.Left) != 1 || got.Left[0].Session != keyOf(1).ID || got.Left[0].Reason != BlockedNotDurable {
			t.Errorf("progress %+v", got)
		}
	})
}
