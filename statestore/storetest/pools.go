package storetest

import (
	"fmt"
	"time"

	"berth/statestore"
)

func poolTraces() []trace {
	return []trace{
		{"a pool is there from its first instance until it is deleted", poolOfInstances},
		{"a pool is deleted with its policy, and begins anew", poolOfPolicy},
		{"a pool with a job under way is not deleted", poolOfJob},
		{"a pool that is deleted beside registrations is there if they are", racingDeletePool},
	}
}

// pools fails unless these pools are there, with these versions of their policies.
func (w *world) pools(want map[string]uint64) {
	w.Helper()
	got := map[string]uint64{}
	for name, p := range w.fleet().Policies {
		got[name] = p.Version
	}
	equal(w, "pools", got, want)
}

func poolOfInstances(w *world) {
	i := w.register(spec("a"))
	other := spec("b")
	other.Pool = "other"
	w.register(other)
	w.pools(map[string]uint64{"llama": 0, "other": 0})
	refused(w, w.store.DeletePool(w.ctx, "llama"), &statestore.PoolInUseError{Instances: 1})
	w.ok("deregister", w.store.Deregister(w.ctx, i.Owner()))
	w.pools(map[string]uint64{"llama": 0, "other": 0})
	before := w.fleet()
	w.ok("delete", w.store.DeletePool(w.ctx, "llama"))
	w.pools(map[string]uint64{"other": 0})
	after := w.fleet()
	if after.Members <= before.Members || after.Version <= before.Version {
		w.Fatalf("version %d after %d, members %d after %d", after.Version, before.Version, after.Members, before.Members)
	}
	w.ok("delete it again", w.store.DeletePool(w.ctx, "llama"))
	equal(w, "the version", w.fleet().Version, after.Version)
	w.refusedAs(w.store.DeletePool(w.ctx, "no name"), statestore.ErrInvalid)
	moved := spec("b")
	w.register(moved)
	w.pools(map[string]uint64{"llama": 0, "other": 0})
	w.ok("delete what it left", w.store.DeletePool(w.ctx, "other"))
	w.pools(map[string]uint64{"llama": 0})
}

func poolOfPolicy(w *world) {
	for range 2 {
		w.ok("put a policy", second(w.store.PutPolicy(w.ctx, "llama", []byte(`{"max_age_ms":1}`))))
		i := w.register(spec("a"))
		w.pools(map[string]uint64{"llama": 1})
		equal(w, "the policy", string(w.fleet().Policies["llama"].Doc), `{"max_age_ms":1}`)
		w.ok("deregister", w.store.Deregister(w.ctx, i.Owner()))
		w.ok("delete", w.store.DeletePool(w.ctx, "llama"))
		w.pools(map[string]uint64{})
	}
}

func poolOfJob(w *world) {
	w.ok("put a policy", second(w.store.PutPolicy(w.ctx, "llama", []byte(`{}`))))
	w.ok("put a policy", second(w.store.PutPolicy(w.ctx, "other", []byte(`{}`))))
	j := w.acquired(w.job("drain"), "runner-1")
	refused(w, w.store.DeletePool(w.ctx, "llama"), &statestore.PoolInUseError{Jobs: 1})
	w.ok("delete another", w.store.DeletePool(w.ctx, "other"))
	w.ok("end the job", second(w.store.SaveJob(w.ctx, j.Ref(), statestore.JobSucceeded, nil, time.Minute)))
	w.ok("delete", w.store.DeletePool(w.ctx, "llama"))
	w.pools(map[string]uint64{})
}

func racingDeletePool(w *world) {
	for round := range 5 * rounds {
		one := spec(fmt.Sprintf("i%d", round))
		one.Pool = fmt.Sprintf("pool-%d", round)
		w.ok("put a policy", second(w.store.PutPolicy(w.ctx, one.Pool, []byte(`{}`))))
		var errs [2]error
		w.together(len(errs), func(i int, s statestore.Store) {
			if (i+round)%len(errs) == 0 {
				errs[0] = s.DeletePool(w.ctx, one.Pool)
				return
			}
			_, errs[1] = s.Register(w.ctx, one)
		})
		w.ok("register", errs[1])
		p, there := w.fleet().Policies[one.Pool]
		switch {
		case !there:
			w.Fatal("an instance is registered in a pool that is not there")
		case errs[0] == nil && p.Version != 0:
			w.Fatal("a deleted pool kept its policy")
		case errs[0] != nil:
			refused(w, errs[0], &statestore.PoolInUseError{Instances: 1})
			equal(w, "the policy of the pool that stays", p.Version, 1)
		}
	}
}
