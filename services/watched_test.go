package services

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"berth/statestore"
)

// registryStore is the part of a store that the warden works with. Others may take
// its lease, beat and leave notes.
type registryStore struct {
	statestore.Store
	token uint64
	now   func() statestore.Millis
	view  statestore.FleetView
	notes map[string]map[string]tally
}

func (r *registryStore) AcquireLease(_ context.Context, name, holder string, _ time.Duration) (statestore.Lease, error) {
	return statestore.Lease{Name: name, Holder: holder, Token: r.token}, nil
}

func (r *registryStore) FleetView(context.Context) (statestore.FleetView, error) {
	view := r.view
	view.Now, view.Instances = r.now(), append([]statestore.Instance(nil), r.view.Instances...)
	return view, nil
}

func (r *registryStore) Notes(context.Context) (map[string][]byte, error) {
	out := map[string][]byte{}
	for process, said := range r.notes {
		text, err := json.Marshal(said)
		if err != nil {
			return nil, err
		}
		out[process] = text
	}
	return out, nil
}

func (r *registryStore) SetVerdicts(_ context.Context, _ statestore.Lease, verdicts map[statestore.Owner]statestore.Verdict) error {
	for i := range r.view.Instances {
		if v, judged := verdicts[r.view.Instances[i].Owner()]; judged {
			r.view.Instances[i].Judge(v, r.now())
		}
	}
	r.view.Version++
	r.view.Members++
	return nil
}

// watched is a warden with a fleet to watch, one round a second of virtual time.
type watched struct {
	t      *testing.T
	store  *registryStore
	warden *warden
	silent map[string]bool
}

func watch(t *testing.T, instances int) *watched {
	t.Helper()
	began := time.Now()
	store := &registryStore{
		token: 1, notes: map[string]map[string]tally{"p1": {}, "p2": {}},
		now: func() statestore.Millis {
			return statestore.Millis(5_000_000_000_000 + time.Since(began).Milliseconds())
		},
	}
	s := &Server{
		store: store, log: slog.New(slog.DiscardHandler), gone: newGoneWatch(time.Hour, time.Minute), fleet: newFleet(store),
		options: Options{Process: "p1"}.withDefaults(),
	}
	s.metrics = newMetrics(s)
	w := &watched{t: t, store: store, warden: s.newWarden(), silent: map[string]bool{}}
	for i := range instances {
		w.join(fmt.Sprintf("i%d", i+1))
	}
	return w
}

func (w *watched) join(id string) {
	in := (&statestore.Instance{}).NextBoot(w.store.now())
	in.ID, in.Pool, in.Incarnation, in.Address, in.Weight = id, "p", "x", "10.0.0.1:80", 100
	in.Lifecycle, in.Beats = statestore.Ready, 1
	w.store.view.Instances = append(w.store.view.Instances, in)
}

func (w *watched) instance(id string) *statestore.Instance {
	for i := range w.store.view.Instances {
		if w.store.view.Instances[i].ID == id {
			return &w.store.view.Instances[i]
		}
	}
	w.t.Fatalf("no instance %s", id)
	return nil
}

// rounds lets seconds pass, in which everybody beats who is not silent.
func (w *watched) rounds(n int) {
	w.t.Helper()
	for range n {
		time.Sleep(time.Second) // of the bubble
		for i := range w.store.view.Instances {
			if in := &w.store.view.Instances[i]; !w.silent[in.ID] {
				in.Beats++
			}
		}
		if err := w.warden.round(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
}

// tell lets a process have counted outcomes of an instance.
func (w *watched) tell(process, id, word string, n uint64) {
	boot := id + " " + w.instance(id).Incarnation
	if w.store.notes[process][boot] == nil {
		w.store.notes[process][boot] = tally{}
	}
	w.store.notes[process][boot][word] += n
}

// ramps holds that an instance comes to its whole weight in time, in steps of a tenth.
func (w *watched) ramps(id string, rounds int) {
	w.t.Helper()
	last := w.instance(id).RampPercent
	for range rounds {
		w.rounds(1)
		now := w.instance(id).RampPercent
		if now < last || now > max(last, 0)+10 {
			w.t.Fatalf("from %d %% to %d %% in a second", last, now)
		}
		last = now
	}
	w.want("in the end", last, 100)
}

func (w *watched) want(what string, got, want any) {
	w.t.Helper()
	if got != want {
		w.t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

// counter is the value of a counter without labels.
func (w *watched) counter(name string) float64 {
	families, err := w.warden.server.metrics.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	w.t.Fatalf("no metric %s", name)
	return 0
}

func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}
