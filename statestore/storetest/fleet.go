package storetest

import (
	"time"

	"berth/statestore"
)

func fleetTraces() []trace {
	return []trace{
		{"a registration is warming until its first ready heartbeat", fleetRegisters},
		{"the present boot updates its registration, another begins a new life", fleetNextBoot},
		{"an instance that registers in another pool is there once", fleetOtherPool},
		{"whoever takes another's address and rank displaces it until it is heard of", fleetDisplaces},
		{"an old boot cannot remove the new one", fleetDeregisters},
		{"a drained instance is not reactivated by heartbeats", fleetDrained},
		{"a lifecycle changes only from where it is", fleetLifecycle},
		{"a lifecycle is fenced by the token of the job", fleetLifecycleFenced},
		{"health is written by the holder of the lease", fleetHealth},
		{"a verdict is stored whole, for the boot it is about", fleetVerdicts},
		{"only what has been down for long and silent since is removed as gone", fleetGone},
		{"an operator's word stands until it is taken back", fleetOverride},
		{"equal versions are equal views", fleetVersions},
	}
}

func spec(id string) statestore.InstanceSpec {
	rank := 3
	return statestore.InstanceSpec{
		ID: id, Pool: "llama", Incarnation: statestore.IncarnationDigest(id), Address: "[fd00::8]:8000", Scheme: "https",
		Weight: 100, Zone: "z1", Rank: &rank, Labels: map[string]string{"rs": "r1"}, Compat: map[string]any{"engine": "vllm"},
		MaxRunning: 64, Probe: true, ReportsCached: true,
	}
}

func (w *world) register(s statestore.InstanceSpec) statestore.Instance {
	w.Helper()
	i, err := w.store.Register(w.ctx, s)
	w.ok("register "+s.ID, err)
	return i
}

func (w *world) beat(i statestore.Instance, b statestore.Heartbeat) statestore.Instance {
	w.Helper()
	i, err := w.store.Heartbeat(w.ctx, i.Owner(), b)
	w.ok("heartbeat of "+i.ID, err)
	return i
}

func (w *world) fleet() statestore.FleetView {
	w.Helper()
	v, err := w.store.FleetView(w.ctx)
	w.ok("read the fleet", err)
	return v
}

// instance is the one instance of that id.
func (w *world) instance(id string) statestore.Instance {
	w.Helper()
	for _, i := range w.fleet().Instances {
		if i.ID == id {
			return i
		}
	}
	w.Fatalf("no instance %s in the fleet", id)
	return statestore.Instance{}
}

func fleetRegisters(w *world) {
	if v := w.fleet(); len(v.Instances) != 0 || v.Now == 0 {
		w.Fatalf("an empty fleet: %+v", v)
	}
	i := w.register(spec("b"))
	equal(w, "what was told", i.InstanceSpec, spec("b"))
	if i.Lifecycle != statestore.Warming || i.Health != statestore.Healthy || i.Beats != 0 || i.BeatAt != 0 || i.Registered == 0 {
		w.Fatalf("a new instance: %+v", i)
	}
	beat := statestore.Heartbeat{Running: 3, Waiting: 1, MaxRunning: 8, KVUsage: 0.5, KVGeneration: 7, PrefixQueries: 1 << 60, PrefixHits: 1<<53 + 1}
	if i = w.beat(i, beat); i.Lifecycle != statestore.Warming || i.Beats != 1 || i.LastBeat != beat || i.BeatAt < i.Registered {
		w.Fatalf("after a heartbeat: %+v", i)
	}
	beat.Ready = true
	if i = w.beat(i, beat); i.Lifecycle != statestore.Ready || i.Beats != 2 {
		w.Fatalf("after a ready heartbeat: %+v", i)
	}
	beat.Ready = false
	if i = w.beat(i, beat); i.Lifecycle != statestore.Ready {
		w.Fatalf("after a heartbeat that is not ready: %+v", i)
	}
	equal(w, "the view", w.instance("b"), i)
	w.register(spec("a"))
	w.register(spec("c"))
	v := w.fleet()
	equal(w, "the order", []string{v.Instances[0].ID, v.Instances[1].ID, v.Instances[2].ID}, []string{"a", "b", "c"})
	w.refusedAs(second(w.store.Heartbeat(w.ctx, statestore.Owner{Instance: "d", Incarnation: "x"}, beat)), statestore.ErrUnknownInstance)
}

func fleetNextBoot(w *world) {
	i := w.register(spec("a"))
	ready := statestore.Heartbeat{Ready: true}
	w.beat(i, ready)
	weight := 30
	_, err := w.store.SetOverride(w.ctx, "a", weighs(weight))
	w.ok("override", err)
	again := spec("a")
	again.Weight, again.Labels = 50, nil
	i = w.register(again)
	if i.Lifecycle != statestore.Ready || i.Beats != 1 || i.Weight != 50 || i.Labels != nil || i.EffectiveWeight() != 30 {
		w.Fatalf("after an update: %+v", i)
	}
	old := i
	next := spec("a")
	next.Incarnation = statestore.IncarnationDigest("next")
	i = w.register(next)
	if i.Lifecycle != statestore.Warming || i.Beats != 0 || i.BeatAt != 0 || i.LastBeat != (statestore.Heartbeat{}) ||
		i.EffectiveWeight() != 30 || i.Incarnation != next.Incarnation || i.Registered < old.Registered {
		w.Fatalf("after another boot: %+v", i)
	}
	w.refusedAs(second(w.store.Heartbeat(w.ctx, old.Owner(), ready)), statestore.ErrStaleIncarnation)
	equal(w, "the view", w.instance("a"), i)
}

// R30: registered again in another pool and with another weight.
func fleetOtherPool(w *world) {
	first := spec("i1")
	first.Pool, first.Weight = "x", 100
	w.register(first)
	first.Pool, first.Weight = "y", 200
	w.register(first)
	v := w.fleet()
	if len(v.Instances) != 1 || v.Instances[0].Pool != "y" || v.Instances[0].Weight != 200 {
		w.Fatalf("after the change of pool: %+v", v.Instances)
	}
	w.beat(v.Instances[0], statestore.Heartbeat{Ready: true})
	w.ok("deregister", w.store.Deregister(w.ctx, v.Instances[0].Owner()))
	equal(w, "instances", len(w.fleet().Instances), 0)
}

// R31: the old pod's delete comes after the new one's registration.
func fleetDeregisters(w *world) {
	old := w.register(spec("a"))
	next := spec("a")
	next.Incarnation = statestore.IncarnationDigest("next")
	i := w.register(next)
	w.refusedAs(w.store.Deregister(w.ctx, old.Owner()), statestore.ErrStaleIncarnation)
	equal(w, "the new one", w.instance("a"), i)
	w.ok("deregister", w.store.Deregister(w.ctx, i.Owner()))
	w.refusedAs(w.store.Deregister(w.ctx, i.Owner()), statestore.ErrUnknownInstance)
	w.refusedAs(second(w.store.Heartbeat(w.ctx, i.Owner(), statestore.Heartbeat{})), statestore.ErrUnknownInstance)
	w.register(spec("a"))
	w.ok("deregister whoever it is", w.store.Deregister(w.ctx, statestore.Owner{Instance: "a"}))
	equal(w, "instances", len(w.fleet().Instances), 0)
}

func (w *world) lifecycle(i statestore.Instance, to statestore.Lifecycle, from ...statestore.Lifecycle) (statestore.Instance, error) {
	return w.store.SetLifecycle(w.ctx, i.Owner(), statestore.LifecycleChange{From: from, To: to})
}

// T32: heartbeats of a drained instance.
func fleetDrained(w *world) {
	i := w.register(spec("a"))
	ready := statestore.Heartbeat{Ready: true}
	w.beat(i, ready)
	for _, state := range []statestore.Lifecycle{statestore.Cordoned, statestore.Draining, statestore.Drained} {
		got, err := w.lifecycle(i, state)
		w.ok("change", err)
		equal(w, "the state", got.Lifecycle, state)
		if got = w.beat(i, ready); got.Lifecycle != state {
			w.Fatalf("a heartbeat made a %s instance %s", state, got.Lifecycle)
		}
		if got = w.register(spec("a")); got.Lifecycle != state {
			w.Fatalf("an update made a %s instance %s", state, got.Lifecycle)
		}
	}
	next := spec("a")
	next.Incarnation = statestore.IncarnationDigest("next")
	equal(w, "the next boot", w.register(next).Lifecycle, statestore.Warming)
}

func fleetLifecycle(w *world) {
	i := w.register(spec("a"))
	_, err := w.lifecycle(i, statestore.Draining, statestore.Ready, statestore.Cordoned)
	refused(w, err, &statestore.InstanceChangedError{State: statestore.Warming})
	equal(w, "the state", w.instance("a").Lifecycle, statestore.Warming)
	w.beat(i, statestore.Heartbeat{Ready: true})
	got, err := w.lifecycle(i, statestore.Draining, statestore.Ready, statestore.Cordoned)
	w.ok("change", err)
	equal(w, "the view", w.instance("a"), got)
	stale := i
	stale.Incarnation = statestore.IncarnationDigest("before")
	w.refusedAs(second(w.lifecycle(stale, statestore.Ready)), statestore.ErrStaleIncarnation)
	stale.ID = "nobody"
	w.refusedAs(second(w.lifecycle(stale, statestore.Ready)), statestore.ErrUnknownInstance)
}

func fleetLifecycleFenced(w *world) {
	w.shorten()
	i := w.register(spec("a"))
	w.beat(i, statestore.Heartbeat{Ready: true})
	old := w.acquired(w.job("drain"), "runner-1")
	drain := func(ref statestore.JobRef, to statestore.Lifecycle) (statestore.Instance, error) {
		return w.store.SetLifecycle(w.ctx, i.Owner(), statestore.LifecycleChange{To: to, Job: ref})
	}
	got, err := drain(old.Ref(), statestore.Draining)
	w.ok("drain", err)
	equal(w, "the job", got.Job, old.ID)
	w.passUntil(old.LeaseEnd)
	taken := w.acquired(old, "runner-2")
	_, err = drain(old.Ref(), statestore.Drained)
	refusedByLease(w, err, taken.Token)
	equal(w, "the state", w.instance("a").Lifecycle, statestore.Draining)
	_, err = drain(taken.Ref(), statestore.Drained)
	w.ok("drained", err)
}

// weighs is an operator's word on the weight alone.
func weighs(weight int) statestore.OverrideChange {
	return statestore.OverrideChange{Override: statestore.Override{Weight: &weight}, SetWeight: true}
}

func fleetOverride(w *world) {
	w.register(spec("a"))
	weight := 7
	o := statestore.Override{Weight: &weight, Labels: map[string]string{"rs": "r2"}}
	both := func(o statestore.Override) statestore.OverrideChange {
		return statestore.OverrideChange{Override: o, SetWeight: true, SetLabels: true}
	}
	i, err := w.store.SetOverride(w.ctx, "a", both(o))
	w.ok("override", err)
	equal(w, "the override", i.Override, o)
	equal(w, "the view", w.instance("a"), i)
	zero := 0
	i, err = w.store.SetOverride(w.ctx, "a", statestore.OverrideChange{Override: statestore.Override{Weight: &zero}, SetWeight: true})
	w.ok("override the weight alone", err)
	equal(w, "the override", i.Override, statestore.Override{Weight: &zero, Labels: o.Labels})
	i, err = w.store.SetOverride(w.ctx, "a", statestore.OverrideChange{SetLabels: true})
	w.ok("take the labels back", err)
	equal(w, "the override", i.Override, statestore.Override{Weight: &zero})
	o = statestore.Override{Weight: &zero, Labels: map[string]string{}}
	_, err = w.store.SetOverride(w.ctx, "a", both(o))
	w.ok("override with nothing", err)
	i = w.instance("a")
	if i.Override.Labels == nil || len(i.Override.Labels) != 0 || i.EffectiveWeight() != 0 {
		w.Fatalf("no labels and no weight, on purpose: %+v", i.Override)
	}
	i, err = w.store.SetOverride(w.ctx, "a", both(statestore.Override{}))
	w.ok("take it back", err)
	equal(w, "the weight", i.EffectiveWeight(), 100)
	equal(w, "the view", w.instance("a").Override, statestore.Override{})
	w.refusedAs(second(w.store.SetOverride(w.ctx, "nobody", both(o))), statestore.ErrUnknownInstance)
}

func fleetVersions(w *world) {
	last := w.fleet()
	step := func(act string, members bool) {
		w.Helper()
		v := w.fleet()
		if v.Version <= last.Version || v.Members < last.Members || (v.Members > last.Members) != members {
			w.Fatalf("%s: version %d after %d, members %d after %d", act, v.Version, last.Version, v.Members, last.Members)
		}
		again := w.fleet()
		again.Now = v.Now
		equal(w, "a view read again", again, v)
		last = v
	}
	i := w.register(spec("a"))
	step("register", true)
	w.beat(i, statestore.Heartbeat{Running: 1})
	step("heartbeat", false)
	w.beat(i, statestore.Heartbeat{Ready: true})
	step("ready", true)
	w.beat(i, statestore.Heartbeat{Ready: true})
	step("heartbeat", false)
	_, err := w.lifecycle(i, statestore.Cordoned)
	w.ok("cordon", err)
	step("cordon", true)
	weight := 7
	_, err = w.store.SetOverride(w.ctx, "a", weighs(weight))
	w.ok("override", err)
	step("override", true)
	l, err := w.store.AcquireLease(w.ctx, "health", "one", time.Hour)
	w.ok("lease", err)
	w.ok("health", w.store.SetVerdicts(w.ctx, l, map[statestore.Owner]statestore.Verdict{i.Owner(): {Health: statestore.Down}}))
	step("health", true)
	next := spec("a")
	next.Incarnation = statestore.IncarnationDigest("next")
	w.register(next)
	step("another boot", true)
	w.ok("put a policy", second(w.store.PutPolicy(w.ctx, "llama", []byte(`{}`))))
	step("a policy", true)
	w.ok("put a policy", second(w.store.PutPolicy(w.ctx, "llama", []byte(`{}`))))
	step("the same policy again", true)
	w.ok("deregister", w.store.Deregister(w.ctx, statestore.Owner{Instance: "a"}))
	step("deregister", true)
}
