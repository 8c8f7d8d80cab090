package storetest

import (
	"fmt"
	"slices"

	"berth/statestore"
)

func indexTraces() []trace {
	return []trace{
		{"the sessions of an instance are those that any boot of it owns", sessionsOf},
		{"counts are by pool and instance, lapsed ones included", countSessions},
		{"a list pages through all sessions once", listPages},
		{"a list selects by tenant, pool, instance and affinity key", listSelects},
		{"a sweep ends what is over, at most so many at a time", sweeps},
		{"a session that was renewed outlives the sweep", sweepSparesRenewed},
	}
}

// named are the ids of all sessions that the index yields for an instance.
func (w *world) named(pool, instance string) []string {
	w.Helper()
	ids := []string{}
	for v, err := range w.store.SessionsOf(w.ctx, pool, instance) {
		w.ok("read the index", err)
		if !v.Exists || v.Owner.Instance != instance || v.Key.Pool != pool {
			w.Fatalf("the sessions of %s in %s yielded %+v", instance, pool, v)
		}
		ids = append(ids, v.Key.ID)
	}
	slices.Sort(ids)
	return ids
}

// session begins a session of the worker's.
func (a *worker) session(id string) {
	a.w.Helper()
	a.w.key.ID = id
	a.routed().says("op-1", "one")
}

func sessionsOf(w *world) {
	a, b := w.worker("a"), w.worker("b")
	all := []string{}
	for i := range 130 { // more than one page of any index
		id := fmt.Sprintf("s-%03d", i)
		a.session(id)
		all = append(all, id)
	}
	equal(w, "a's", w.named(w.key.Pool, "a"), all)
	equal(w, "b's", w.named(w.key.Pool, "b"), []string{})

	w.key.ID = "s-000"
	b.routed().claims()
	w.key.ID = "s-001"
	w.move(b, nil)
	w.key.ID = "s-002"
	_, err := a.routed().finish()
	w.ok("finish", err)
	w.key.ID = "s-003"
	w.ok("delete", second(w.store.Delete(w.ctx, statestore.Delete{Key: w.key, Lifetimes: w.lives})))
	w.key.ID = "s-004"
	a.reboot().routed().claims()
	w.key.ID = "s-bound"
	w.bound(b.routed(), true)
	w.key.Pool = "other"
	a.session("s-other")
	equal(w, "a's", w.named("llama", "a"), all[4:])
	equal(w, "b's", w.named("llama", "b"), []string{"s-000", "s-001", "s-bound"})
	equal(w, "a's in the other pool", w.named("other", "a"), []string{"s-other"})
	equal(w, "nobody's", w.named("llama", "nobody"), []string{})
}

func countSessions(w *world) {
	count := func(want map[statestore.InstanceName]int) {
		w.Helper()
		got, err := w.store.CountSessions(w.ctx)
		w.ok("count", err)
		for name, n := range got {
			if n == 0 {
				delete(got, name)
			}
		}
		equal(w, "counts", got, want)
	}
	count(map[statestore.InstanceName]int{})
	w.shorten()
	a, b := w.worker("a"), w.worker("b")
	for _, id := range []string{"1", "2", "3"} {
		a.session(id)
	}
	b.routed().claims() // session 3
	a.reboot().session("4")
	w.key.Pool = "other"
	a.session("1")
	name := func(pool, instance string) statestore.InstanceName {
		return statestore.InstanceName{Pool: pool, Instance: instance}
	}
	want := map[statestore.InstanceName]int{name("llama", "a"): 3, name("llama", "b"): 1, name("other", "a"): 1}
	count(want)
	w.passUntil(w.view().AffinityUntil)
	count(want)
	_, err := a.finish() // session 1 of the other pool
	w.ok("finish", err)
	delete(want, name("other", "a"))
	count(want)
	w.passUntil(w.view().Expires)
	w.sweep()
	count(map[statestore.InstanceName]int{})
}

// listed pages through a list.
func (w *world) listed(q statestore.SessionQuery) []string {
	w.Helper()
	got := []string{}
	for range 10_000 {
		views, next, err := w.store.List(w.ctx, q)
		w.ok("list", err)
		if len(views) > q.Limit {
			w.Fatalf("a page of %d sessions, at most %d were asked for", len(views), q.Limit)
		}
		for _, v := range views {
			got = append(got, v.Key.Tenant+"/"+v.Key.Pool+"/"+v.Key.ID)
		}
		if next == "" {
			slices.Sort(got)
			return got
		}
		q.Cursor = next
	}
	w.Fatal("the list finds no end")
	return nil
}

func listPages(w *world) {
	equal(w, "an empty store", w.listed(statestore.SessionQuery{Limit: 10}), []string{})
	a := w.worker("a")
	want := []string{}
	for i := range 25 {
		id := fmt.Sprintf("s-%02d", i)
		a.session(id)
		want = append(want, "acme/llama/"+id)
	}
	w.ok("delete", second(w.store.Delete(w.ctx, statestore.Delete{Key: w.key, Lifetimes: w.lives})))
	want = want[:24]
	for _, limit := range []int{1, 7, 24, 100} {
		equal(w, fmt.Sprintf("pages of %d", limit), w.listed(statestore.SessionQuery{Limit: limit}), want)
	}
}

func listSelects(w *world) {
	a, b := w.worker("a"), w.worker("b")
	key := statestore.AffinityKey{1}
	a.session("1")
	b.session("2")
	w.key.Pool = "other"
	a.session("3")
	w.key.Tenant, w.key.ID = "zeta", "4"
	a.routed().handle.AffinityKey = key
	a.says("op-1", "one")
	for _, c := range []struct {
		q    statestore.SessionQuery
		want []string
	}{
		{statestore.SessionQuery{}, []string{"acme/llama/1", "acme/llama/2", "acme/other/3", "zeta/other/4"}},
		{statestore.SessionQuery{Tenant: "acme"}, []string{"acme/llama/1", "acme/llama/2", "acme/other/3"}},
		{statestore.SessionQuery{Pool: "other"}, []string{"acme/other/3", "zeta/other/4"}},
		{statestore.SessionQuery{Instance: "a"}, []string{"acme/llama/1", "acme/other/3", "zeta/other/4"}},
		{statestore.SessionQuery{Pool: "llama", Instance: "a"}, []string{"acme/llama/1"}},
		{statestore.SessionQuery{AffinityKey: key}, []string{"zeta/other/4"}},
		{statestore.SessionQuery{AffinityKey: key, Tenant: "acme"}, []string{}},
		{statestore.SessionQuery{Tenant: "nobody"}, []string{}},
	} {
		for _, c.q.Limit = range []int{1, 10} {
			equal(w, fmt.Sprintf("%+v", c.q), w.listed(c.q), c.want)
		}
	}
}

func sweeps(w *world) {
	w.shorten()
	a := w.worker("a")
	for i := range 5 {
		a.session(fmt.Sprintf("s-%d", i))
	}
	if n := w.sweep(); n != 0 {
		w.Fatalf("a sweep ended %d sessions before their time", n)
	}
	w.passUntil(w.view().Expires)
	total := 0
	for range 5 {
		n, err := w.store.Sweep(w.ctx, 2)
		w.ok("sweep", err)
		if n > 2 {
			w.Fatalf("a sweep of at most 2 ended %d sessions", n)
		}
		total += n
	}
	equal(w, "ended sessions", total, 5)
	equal(w, "a's", w.named(w.key.Pool, "a"), []string{})
	equal(w, "the list", w.listed(statestore.SessionQuery{Limit: 10}), []string{})
	if v := w.view(); v.Exists || v.Tombstone.Reason != statestore.Expired {
		w.Fatalf("a swept session: %+v", v)
	}
}

func sweepSparesRenewed(w *world) {
	w.shorten()
	a := w.worker("a")
	a.session("old")
	a.session("renewed")
	first := w.view().Expires
	w.pass(w.lives.Retention / 2)
	a.says("op-2", "two")
	w.passUntil(first)
	w.sweep()
	w.holds("one", "two")
	equal(w, "a's", w.named(w.key.Pool, "a"), []string{"renewed"})
	if got := w.view(); got.Expires <= first {
		w.Fatalf("expires %d, was %d", got.Expires, first)
	}
}
