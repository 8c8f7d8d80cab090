package storetest

import (
	"time"

	"berth/statestore"
)

func fleetHealth(w *world) {
	w.shorten()
	i := w.register(spec("a"))
	first, err := w.store.AcquireLease(w.ctx, "health", "one", w.lives.Affinity)
	w.ok("lease", err)
	ghost := statestore.Owner{Instance: "ghost", Incarnation: "x"}
	before := statestore.Owner{Instance: "a", Incarnation: "before"}
	w.ok("health", w.store.SetHealth(w.ctx, first, map[statestore.Owner]statestore.Health{i.Owner(): statestore.Suspect, ghost: statestore.Down, before: statestore.Down}))
	equal(w, "health", w.instance("a").Health, statestore.Suspect)
	equal(w, "instances", len(w.fleet().Instances), 1)
	w.pass(w.lives.Affinity)
	next, err := w.store.AcquireLease(w.ctx, "health", "two", time.Hour)
	w.ok("lease", err)
	w.ok("health", w.store.SetHealth(w.ctx, next, map[statestore.Owner]statestore.Health{i.Owner(): statestore.Down}))
	err = w.store.SetHealth(w.ctx, first, map[statestore.Owner]statestore.Health{i.Owner(): statestore.Healthy})
	refusedByLease(w, err, next.Token)
	equal(w, "health", w.instance("a").Health, statestore.Down)
	w.ok("health", w.store.SetHealth(w.ctx, next, map[statestore.Owner]statestore.Health{i.Owner(): statestore.Healthy}))
	equal(w, "health", w.instance("a").Health, statestore.Healthy)
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
	_, err := w.store.SetOverride(w.ctx, "a", statestore.Override{})
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
}

func fleetGone(w *world) {
	w.shorten()
	long := w.lives.Affinity
	lease, err := w.store.AcquireLease(w.ctx, "health", "one", time.Hour)
	w.ok("lease", err)
	var boots []statestore.Owner
	verdicts := map[statestore.Owner]statestore.Health{}
	for _, id := range []string{"down", "heard", "reborn", "returned", "suspect", "well"} {
		i := w.register(spec(id))
		w.beat(i, statestore.Heartbeat{Ready: true})
		boots = append(boots, i.Owner())
		verdicts[i.Owner()] = map[string]statestore.Health{"suspect": statestore.Suspect, "well": statestore.Healthy}[id]
		if id != "suspect" && id != "well" {
			verdicts[i.Owner()] = statestore.Down
		}
	}
	remove := func(l statestore.Lease, boots ...statestore.Owner) []statestore.Owner {
		w.Helper()
		removed, err := w.store.RemoveGone(w.ctx, l, boots, long)
		w.ok("remove", err)
		return removed
	}
	w.ok("health", w.store.SetHealth(w.ctx, lease, verdicts))
	down := w.instance("down")
	if down.DownSince == 0 || w.instance("well").DownSince != 0 || w.instance("suspect").DownSince != 0 {
		w.Fatalf("down since %d", down.DownSince)
	}
	judge := func(boot statestore.Owner, h statestore.Health) {
		w.Helper()
		w.ok("health", w.store.SetHealth(w.ctx, lease, map[statestore.Owner]statestore.Health{boot: h}))
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
