package storetest

import (
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"

	"berth/statestore"
)

func heartbeatTraces() []trace {
	return []trace{
		{"heartbeats sent together are counted in their order, and answered one by one", beatsTogether},
		{"an instance that was removed and registers again has no heartbeats", beatsRemoved},
		{"heartbeats follow their instance into another pool", beatsOtherPool},
		{"a draining instance is not reactivated by heartbeats sent together", beatsDraining},
		{"a view stays as it was read", beatsView},
		{"heartbeats and other changes of an instance lose nothing of each other", beatsRace},
		{"readers of one version see one table", beatsVersions},
	}
}

// beats sends heartbeats together.
func (w *world) beats(beats ...statestore.Beat) []statestore.BeatAnswer {
	w.Helper()
	answers, err := w.store.Heartbeats(w.ctx, beats)
	w.ok("heartbeats", err)
	if len(answers) != len(beats) {
		w.Fatalf("%d answers to %d heartbeats", len(answers), len(beats))
	}
	return answers
}

func running(by statestore.Owner, n int) statestore.Beat {
	return statestore.Beat{By: by, Heartbeat: statestore.Heartbeat{Running: n}}
}

func beatsTogether(w *world) {
	old := w.register(spec("b"))
	a := w.register(spec("a"))
	next := spec("b")
	next.Incarnation = statestore.IncarnationDigest("next")
	b := w.register(next)
	before := w.fleet()
	full := statestore.Heartbeat{Ready: true, Running: 3, Waiting: 1, MaxRunning: 8, KVUsage: 0.5, KVGeneration: 7, PrefixQueries: 1 << 60, PrefixHits: 1<<53 + 1}
	got := w.beats(
		running(a.Owner(), 1), running(statestore.Owner{Instance: "ghost", Incarnation: "x"}, 9), running(old.Owner(), 9),
		statestore.Beat{By: b.Owner(), Heartbeat: full}, running(a.Owner(), 2),
	)
	w.refusedAs(got[1].Err, statestore.ErrUnknownInstance)
	w.refusedAs(got[2].Err, statestore.ErrStaleIncarnation)
	if in := got[0].Instance; in.Beats != 1 || in.LastBeat.Running != 1 || in.Lifecycle != statestore.Warming || in.Pool != "llama" {
		w.Fatalf("the first of two: %+v", in)
	}
	if in := got[3].Instance; in.Beats != 1 || in.LastBeat != full || in.Lifecycle != statestore.Ready || in.BeatAt < in.Registered {
		w.Fatalf("a ready one: %+v", in)
	}
	equal(w, "a", w.instance("a"), got[4].Instance)
	equal(w, "b", w.instance("b"), got[3].Instance)
	v := w.fleet()
	if got[4].Instance.Beats != 2 || v.Members <= before.Members {
		w.Fatalf("%d heartbeats of a, members %d after %d", got[4].Instance.Beats, v.Members, before.Members)
	}
	// From here on nobody's record changes.
	got = w.beats(running(a.Owner(), 5), running(b.Owner(), 6))
	after := w.fleet()
	if after.Version <= v.Version || after.Members != v.Members {
		w.Fatalf("version %d after %d, members %d after %d", after.Version, v.Version, after.Members, v.Members)
	}
	equal(w, "the instances", after.Instances, []statestore.Instance{got[0].Instance, got[1].Instance})
	// Heartbeats that do not count change nothing.
	w.beats(running(old.Owner(), 9), running(statestore.Owner{Instance: "ghost", Incarnation: "x"}, 9))
	w.beats()
	equal(w, "the version", w.fleet().Version, after.Version)
}

func beatsRemoved(w *world) {
	i := w.register(spec("a"))
	w.beat(i, statestore.Heartbeat{Ready: true, Running: 5})
	w.ok("deregister", w.store.Deregister(w.ctx, i.Owner()))
	w.refusedAs(w.beats(running(i.Owner(), 5))[0].Err, statestore.ErrUnknownInstance)
	i = w.register(spec("a"))
	if i.Beats != 0 || i.LastBeat != (statestore.Heartbeat{}) || i.BeatAt != 0 || i.Lifecycle != statestore.Warming {
		w.Fatalf("registered again: %+v", i)
	}
	equal(w, "the view", w.instance("a"), i)
	equal(w, "its heartbeats", w.beat(i, statestore.Heartbeat{}).Beats, 1)
}

func beatsOtherPool(w *world) {
	s := spec("a")
	w.register(s)
	i := w.beat(w.instance("a"), statestore.Heartbeat{Ready: true, Running: 5})
	s.Pool = "other"
	moved := w.register(s)
	if moved.Pool != "other" || moved.Beats != 1 || moved.LastBeat != i.LastBeat || moved.BeatAt != i.BeatAt {
		w.Fatalf("in another pool: %+v", moved)
	}
	got := w.beats(running(moved.Owner(), 7))[0].Instance
	if got.Pool != "other" || got.Beats != 2 {
		w.Fatalf("a heartbeat from there: %+v", got)
	}
	equal(w, "the view", w.fleet().Instances, []statestore.Instance{got})
}

func beatsDraining(w *world) {
	ready := statestore.Heartbeat{Ready: true}
	var all []statestore.Beat
	for n, state := range []statestore.Lifecycle{statestore.Cordoned, statestore.Draining, statestore.Drained} {
		i := w.register(spec(fmt.Sprintf("i%d", n)))
		w.beat(i, ready)
		_, err := w.lifecycle(i, state)
		w.ok("change", err)
		all = append(all, statestore.Beat{By: i.Owner(), Heartbeat: ready})
	}
	before := w.fleet()
	for i, a := range w.beats(all...) {
		if a.Err != nil || a.Instance.Lifecycle != before.Instances[i].Lifecycle {
			w.Fatalf("a heartbeat made a %s instance %s: %v", before.Instances[i].Lifecycle, a.Instance.Lifecycle, a.Err)
		}
	}
	equal(w, "members", w.fleet().Members, before.Members)
}

func beatsView(w *world) {
	i := w.register(spec("a"))
	w.register(spec("b"))
	w.beat(i, statestore.Heartbeat{Ready: true, Running: 1})
	seen := w.fleet()
	first, second := seen.Instances[0], seen.Instances[1]
	w.beat(i, statestore.Heartbeat{Running: 2})
	equal(w, "the other view", w.fleet().Instances[0].LastBeat.Running, 2)
	_, err := w.lifecycle(i, statestore.Draining)
	w.ok("change", err)
	w.fleet()
	equal(w, "what was read", seen.Instances, []statestore.Instance{first, second})
	if first.LastBeat.Running != 1 || first.Lifecycle != statestore.Ready {
		w.Fatalf("what was read changed: %+v", first)
	}
}

// beatsRace: one instance beats from two processes while operators act on it.
func beatsRace(w *world) {
	i := w.register(spec("a"))
	const each = 20
	w.together(6, func(n int, s statestore.Store) {
		for k := range each {
			var err error
			switch {
			case n < 4:
				var got []statestore.BeatAnswer
				if got, err = s.Heartbeats(w.ctx, []statestore.Beat{running(i.Owner(), k), running(i.Owner(), k)}); err == nil {
					err = got[1].Err
				}
			case n == 4:
				weight := k
				_, err = s.SetOverride(w.ctx, "a", weighs(weight))
			default:
				_, err = s.Register(w.ctx, spec("a"))
			}
			if err != nil {
				w.Errorf("%d, %d: %v", n, k, err)
			}
		}
	})
	got := w.instance("a")
	if got.Beats != 4*2*each || got.LastBeat.Running != each-1 || got.EffectiveWeight() != each-1 {
		w.Fatalf("after %d heartbeats: %+v", 4*2*each, got)
	}
}

// beatsVersions: a replica decides by the version of what it read, so whoever has
// the same version must have read the same.
func beatsVersions(w *world) {
	const writers = 4
	var owners []statestore.Owner
	for n := range writers {
		i := w.register(spec(fmt.Sprintf("i%d", n)))
		owners = append(owners, i.Owner())
	}
	var mu sync.Mutex
	seen := map[uint64]statestore.FleetView{}
	look := func(s statestore.Store) {
		v, err := s.FleetView(w.ctx)
		if err != nil {
			w.Errorf("read the fleet: %v", err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		first, again := seen[v.Version]
		v.Now = first.Now
		if again && !reflect.DeepEqual(v, first) {
			w.Errorf("version %d is\n%+v\nand\n%+v", v.Version, first, v)
		}
		seen[v.Version] = v
	}
	var done atomic.Int32
	w.together(2*writers, func(n int, s statestore.Store) {
		for n >= writers && done.Load() < writers {
			look(s)
		}
		for k := 0; n < writers && k < 20; k++ {
			switch {
			case n == 3 && k%10 == 9:
				if _, err := s.SetLifecycle(w.ctx, owners[3], statestore.LifecycleChange{To: statestore.Cordoned}); err != nil {
					w.Errorf("change: %v", err)
				}
			default:
				if _, err := s.Heartbeats(w.ctx, []statestore.Beat{running(owners[n], k), running(owners[(n+1)%writers], k)}); err != nil {
					w.Errorf("heartbeats: %v", err)
				}
			}
			if k%5 == 4 {
				look(s) // however rarely the readers have their turn
			}
		}
		done.Add(1)
	})
	look(w.store)
	if len(seen) < 3 {
		w.Errorf("only %d versions were seen", len(seen))
	}
}
