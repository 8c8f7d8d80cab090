package services

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"berth/statestore"
)

// watched is an instance as a watcher finds it, round by round.
type watched struct {
	t     *testing.T
	watch *silences
	in    statestore.Instance
	now   time.Time
}

func watch(t *testing.T) *watched {
	t.Helper()
	w := newSilences(6*time.Second, 15*time.Second, time.Second)
	in := statestore.Instance{InstanceSpec: statestore.InstanceSpec{ID: "i1", Incarnation: "x"}, Beats: 1}
	return &watched{t: t, watch: w, in: in, now: time.Unix(1_900_000_000, 0)}
}

// round is one look after d, whose verdict is stored.
func (w *watched) round(d time.Duration) statestore.Health {
	w.t.Helper()
	w.now = w.now.Add(d)
	if verdict, differs := w.watch.judge([]statestore.Instance{w.in}, w.now)[w.in.Owner()]; differs {
		if verdict == w.in.Health {
			w.t.Fatalf("%q is told although it is stored", verdict)
		}
		w.in.Health = verdict
	}
	return w.in.Health
}

// rounds are n looks, a second apart.
func (w *watched) rounds(n int) statestore.Health {
	w.t.Helper()
	for range n {
		w.round(time.Second)
	}
	return w.in.Health
}

func (w *watched) want(what string, got, want statestore.Health) {
	w.t.Helper()
	if got != want {
		w.t.Fatalf("%s: %q, want %q", what, got, want)
	}
}

func TestSilenceMakesSuspectThenDown(t *testing.T) {
	t.Parallel()
	w := watch(t)
	w.want("5 s", w.rounds(6), statestore.Healthy) // the first round begins to count
	w.want("6 s", w.rounds(1), statestore.Suspect)
	w.want("14 s", w.rounds(8), statestore.Suspect)
	w.want("15 s", w.rounds(1), statestore.Down)
	w.want("an hour", w.rounds(3600), statestore.Down)
	w.in.Beats++
	w.want("a heartbeat", w.rounds(1), statestore.Healthy)
	w.want("silence again", w.rounds(6), statestore.Suspect)
}

func TestWhoNeverSentAHeartbeatHasNoLease(t *testing.T) {
	t.Parallel()
	w := watch(t)
	w.in.Beats = 0
	w.want("an hour", w.rounds(3600), statestore.Healthy)
}

// Case T18: a watcher that was stopped, or could not read, counts none of that.
func TestAStalledWatcherKillsNobody(t *testing.T) {
	t.Parallel()
	w := watch(t)
	w.rounds(3)
	w.want("an hour's sleep", w.round(time.Hour), statestore.Healthy)
	w.watch.stall()
	w.want("an hour without the store", w.round(time.Hour), statestore.Healthy)
	w.want("2 s before, and 3 s since", w.rounds(3), statestore.Healthy)
	w.want("6 s in all", w.rounds(1), statestore.Suspect)
}

func TestAnotherBootBeginsAnew(t *testing.T) {
	t.Parallel()
	w := watch(t)
	w.rounds(20)
	w.in.Incarnation, w.in.Health, w.in.Beats = "y", statestore.Healthy, 1
	w.want("another boot", w.rounds(5), statestore.Healthy)
}

// A new holder of the lease has seen nothing yet: it neither kills nor heals
// before it has.
func TestANewWatcherTrustsWhatIsStored(t *testing.T) {
	t.Parallel()
	for _, stored := range []statestore.Health{statestore.Suspect, statestore.Down} {
		w := watch(t)
		w.in.Health = stored
		w.want("at once", w.rounds(3), stored)
		w.in.Beats++
		w.want("after a heartbeat", w.rounds(1), statestore.Healthy)
	}
}

// leased is a store with a health lease that others can take.
type leased struct {
	statestore.Store
	token uint64
	in    statestore.Instance
}

func (l *leased) AcquireLease(_ context.Context, name, holder string, _ time.Duration) (statestore.Lease, error) {
	return statestore.Lease{Name: name, Holder: holder, Token: l.token}, nil
}

func (l *leased) FleetView(context.Context) (statestore.FleetView, error) {
	return statestore.FleetView{Instances: []statestore.Instance{l.in}}, nil
}

func (l *leased) SetVerdicts(_ context.Context, _ statestore.Lease, verdicts map[statestore.Owner]statestore.Verdict) error {
	l.in.Verdict = verdicts[l.in.Owner()]
	return nil
}

// A watcher that lost the lease and has it back is a new one: what it saw before
// must not heal whom another found down.
func TestAWatcherThatComesBackHealsNobody(t *testing.T) {
	t.Parallel()
	w := watch(t)
	store := &leased{token: 1, in: w.in}
	s := &Server{store: store, log: slog.New(slog.DiscardHandler), fleet: newFleet(nil), gone: newGoneWatch(time.Hour, time.Minute)}
	look := func() statestore.Health {
		if err := s.judgeHealth(t.Context(), w.watch); err != nil {
			t.Fatal(err)
		}
		return store.in.Health
	}
	look()
	store.in.Beats++
	w.want("seen alive", look(), statestore.Healthy)
	store.token, store.in.Health = 3, statestore.Down // by the holder of token 2
	w.want("back again", look(), statestore.Down)
	w.want("still", look(), statestore.Down)
	store.in.Beats++
	w.want("after a heartbeat", look(), statestore.Healthy)
}
