package storetest

import (
	"time"

	"berth/statestore"
)

// ill is a verdict on nothing but health.
func ill(h statestore.Health) statestore.Verdict { return statestore.Verdict{Health: h} }

func fleetHealth(w *world) {
	w.shorten()
	i := w.register(spec("a"))
	first, err := w.store.AcquireLease(w.ctx, "health", "one", w.lives.Affinity)
	w.ok("lease", err)
	ghost := statestore.Owner{Instance: "ghost", Incarnation: "x"}
	before := statestore.Owner{Instance: "a", Incarnation: "before"}
	w.ok("health", w.store.SetVerdicts(w.ctx, first, map[statestore.Owner]statestore.Verdict{i.Owner(): ill(statestore.Suspect), ghost: ill(statestore.Down), before: ill(statestore.Down)}))
	equal(w, "health", w.instance("a").Health, statestore.Suspect)
	equal(w, "instances", len(w.fleet().Instances), 1)
	w.pass(w.lives.Affinity)
	next, err := w.store.AcquireLease(w.ctx, "health", "two", time.Hour)
	w.ok("lease", err)
	w.ok("health", w.store.SetVerdicts(w.ctx, next, map[statestore.Owner]statestore.Verdict{i.Owner(): ill(statestore.Down)}))
	err = w.store.SetVerdicts(w.ctx, first, map[statestore.Owner]statestore.Verdict{i.Owner(): ill(statestore.Healthy)})
	refusedByLease(w, err, next.Token)
	equal(w, "health", w.instance("a").Health, statestore.Down)
	w.ok("health", w.store.SetVerdicts(w.ctx, next, map[statestore.Owner]statestore.Verdict{i.Owner(): ill(statestore.Healthy)}))
	equal(w, "health", w.instance("a").Health, statestore.Healthy)
}

// fleetVerdicts: all of a verdict is stored at once, for the boot it is about.
func fleetVerdicts(w *world) {
	lease, err := w.store.AcquireLease(w.ctx, "health", "one", time.Hour)
	w.ok("lease", err)
	i := w.beat(w.register(spec("a")), statestore.Heartbeat{Ready: true, Running: 3})
	other := w.register(spec("b"))
	judge := func(v statestore.Verdict) statestore.FleetView {
		w.Helper()
		w.ok("judge", w.store.SetVerdicts(w.ctx, lease, map[statestore.Owner]statestore.Verdict{i.Owner(): v}))
		return w.fleet()
	}
	before := w.fleet()
	for _, v := range []statestore.Verdict{
		{Breaker: statestore.BreakerOpen, Openings: 2},
		{Breaker: statestore.BreakerTrial, Trial: 7, TrialTo: "process 1", Openings: 2},
		{Breaker: statestore.BreakerSaturated, Trial: 7},
		{Health: statestore.Down, RampPercent: -1},
		{Health: statestore.Down, RampPercent: 10, Out: true},
		{Health: statestore.Suspect, Flaps: 3},
		{Flaps: 3, RampPercent: 10, Gained: 9_000},
		{RampPercent: 20, Gained: 20_000},
		{RampPercent: 20},
		{},
	} {
		after := judge(v)
		if after.Version <= before.Version || after.Members <= before.Members {
			w.Fatalf("%+v: version %d after %d, members %d after %d", v, after.Version, before.Version, after.Members, before.Members)
		}
		want := i
		want.Verdict, want.DownSince = v, after.Instances[0].DownSince
		equal(w, "the judged one", after.Instances[0], want)
		equal(w, "the other one", after.Instances[1], other)
		equal(w, "the verdict again", judge(v).Version, after.Version)
		before = after
	}

	judge(statestore.Verdict{Breaker: statestore.BreakerOpen, RampPercent: 30})
	got := w.beat(i, statestore.Heartbeat{Ready: true})
	equal(w, "after a heartbeat", got.Verdict, statestore.Verdict{Breaker: statestore.BreakerOpen, RampPercent: 30})
	equal(w, "after an update", w.register(spec("a")).Verdict, got.Verdict)
	old := lease
	old.Token--
	err = w.store.SetVerdicts(w.ctx, old, map[statestore.Owner]statestore.Verdict{i.Owner(): {}})
	refusedByLease(w, err, lease.Token)
	equal(w, "after a word of an old holder", w.instance("a").Verdict, got.Verdict)
	next := spec("a")
	next.Incarnation = statestore.IncarnationDigest("next")
	waiting := statestore.Verdict{RampPercent: statestore.RampQueued}
	equal(w, "another boot", w.register(next).Verdict, waiting)
	judge(statestore.Verdict{Breaker: statestore.BreakerOpen})
	equal(w, "after a word on the boot before", w.instance("a").Verdict, waiting)
}

func fleetDisplaces(w *world) {
	at := func(id string, rank int) statestore.InstanceSpec {
		s := spec(id)
		s.Rank = &rank
		return s
	}
	a, b, rankless := w.register(at("a", 0)), at("b", 0), spec("c")
	rankless.Rank = nil
	w.register(at("d", 1))
	w.register(rankless)
	all := func() []statestore.Owner {
		var owners []statestore.Owner
		for _, i := range w.fleet().Instances {
			owners = append(owners, i.Owner())
		}
		return append(owners, statestore.Owner{Instance: "ghost", Incarnation: "x"})
	}
	displaced := func(act string, want ...string) {
		w.Helper()
		got := []string{}
		for _, i := range w.fleet().Instances {
			if (i.Standing() == statestore.Suspect) != i.Displaced || i.Health != statestore.Healthy {
				w.Fatalf("%s: displaced %v, health %q, standing %q", act, i.Displaced, i.Health, i.Standing())
			}
			if i.Displaced {
				got = append(got, i.ID)
			}
		}
		equal(w, act, got, append([]string{}, want...))
	}
	take := func(s statestore.InstanceSpec) {
		w.Helper()
		i, err := w.store.Register(w.ctx, s, all()...)
		w.ok("register "+s.ID, err)
		if i.Displaced {
			w.Fatalf("%s is displaced by itself", s.ID)
		}
	}
	before := w.fleet()
	take(b)
	displaced("b comes", "a")
	if v := w.fleet(); v.Members <= before.Members {
		w.Fatal("members did not change")
	}
	_, err := w.store.SetOverride(w.ctx, "a", statestore.OverrideChange{})
	w.ok("override", err)
	displaced("an operator's word of a", "a")
	w.beat(a, statestore.Heartbeat{})
	displaced("a is heard of")
	take(b)
	displaced("b registers again", "a")
	take(at("a", 0))
	displaced("a registers again", "b")

	rebooted := at("b", 0)
	rebooted.Incarnation = statestore.IncarnationDigest("another boot")
	gone := w.instance("b")
	stale := gone.Owner()
	take(rebooted)
	displaced("b boots", "a")
	moved := at("a", 0)
	moved.Address = "10.0.0.1:8000"
	take(moved)
	displaced("a is elsewhere")
	_, err = w.store.Register(w.ctx, at("e", 0), stale, a.Owner())
	w.ok("register e", err)
	displaced("e comes, and others are not as they were said to be")
	take(rebooted)
	displaced("b registers again", "e")
	fleetHeard(w, "e")
	displaced("e is heard of otherwise")
}

// fleetHeard: the holder of the health lease, and nobody who was it, ends a
// displacement.
func fleetHeard(w *world, id string) {
	w.Helper()
	lease, err := w.store.AcquireLease(w.ctx, "health", "one", time.Hour)
	w.ok("lease", err)
	i, before := w.instance(id), w.fleet()
	judge := func(l statestore.Lease, heard bool) error {
		v := i.Verdict
		v.Heard = heard
		return w.store.SetVerdicts(w.ctx, l, map[statestore.Owner]statestore.Verdict{i.Owner(): v})
	}
	old := lease
	old.Token--
	w.ok("judge", judge(lease, false))
	refusedByLease(w, judge(old, true), lease.Token)
	equal(w, "what is known of "+id, w.instance(id), i)
	equal(w, "the version", w.fleet().Version, before.Version)
	w.ok("judge", judge(lease, true))
	after := w.fleet()
	if after.Members <= before.Members {
		w.Fatal("members did not change")
	}
	i.Displaced = false
	equal(w, "what is known of "+id, w.instance(id), i)
	w.ok("judge again", judge(lease, true))
	equal(w, "the version", w.fleet().Version, after.Version)
}

func fleetGone(w *world) {
	w.shorten()
	long := w.lives.Affinity
	lease, err := w.store.AcquireLease(w.ctx, "health", "one", time.Hour)
	w.ok("lease", err)
	var boots []statestore.Owner
	verdicts := map[statestore.Owner]statestore.Verdict{}
	for _, id := range []string{"down", "heard", "reborn", "returned", "suspect", "well"} {
		i := w.register(spec(id))
		w.beat(i, statestore.Heartbeat{Ready: true})
		boots = append(boots, i.Owner())
		verdicts[i.Owner()] = ill(map[string]statestore.Health{"suspect": statestore.Suspect}[id])
		if id != "suspect" && id != "well" {
			verdicts[i.Owner()] = ill(statestore.Down)
		}
	}
	remove := func(l statestore.Lease, boots ...statestore.Owner) []statestore.Owner {
		w.Helper()
		removed, err := w.store.RemoveGone(w.ctx, l, boots, long)
		w.ok("remove", err)
		return removed
	}
	w.ok("health", w.store.SetVerdicts(w.ctx, lease, verdicts))
	down := w.instance("down")
	if down.DownSince == 0 || w.instance("well").DownSince != 0 || w.instance("suspect").DownSince != 0 {
		w.Fatalf("down since %d", down.DownSince)
	}
	judge := func(boot statestore.Owner, h statestore.Health) {
		w.Helper()
		w.ok("health", w.store.SetVerdicts(w.ctx, lease, map[statestore.Owner]statestore.Verdict{boot: ill(h)}))
	}
	judge(boots[3], statestore.Healthy)
	if got := remove(lease, boots...); w.now() < down.DownSince.Add(long) && len(got) > 0 {
		w.Fatalf("removed %v at once", got)
	}
	w.passUntil(down.DownSince.Add(long))
	w.beat(w.instance("heard"), statestore.Heartbeat{})
	judge(boots[3], statestore.Down)
	judge(boots[0], statestore.Down) // as it is already
	reborn := spec("reborn")
	reborn.Incarnation = statestore.IncarnationDigest("another boot")
	w.register(reborn)

	next, err := w.store.AcquireLease(w.ctx, "health", "one", time.Hour)
	w.ok("renew", err)
	old := next
	old.Token--
	refusedByLease(w, second(w.store.RemoveGone(w.ctx, old, boots, long)), next.Token)
	before := w.fleet()
	ghost := statestore.Owner{Instance: "ghost", Incarnation: "x"}
	equal(w, "removed", remove(next, append(boots, ghost)...), boots[:1])
	after := w.fleet()
	if len(after.Instances) != 5 || after.Members <= before.Members {
		w.Fatalf("left are %d instances, members %d after %d", len(after.Instances), after.Members, before.Members)
	}
	w.refusedAs(second(w.store.Heartbeat(w.ctx, boots[0], statestore.Heartbeat{})), statestore.ErrUnknownInstance)
	equal(w, "removed again", remove(next, boots...), nil)
}
