package storetest

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"berth/statestore"
)

func boundAt(v statestore.View) statestore.Millis { return v.BoundAt }

func (m *machine) claim(t *rapid.T) {
	key := m.key(t)
	c := statestore.Claim{Key: key, By: m.worker(t), Lifetimes: machineLives}
	says := fmt.Sprintf("claim %s by %s with", key.ID, m.whom(c.By))
	if !rarely(t, "without a handle") {
		h := m.handle(t, key)
		c.Handle = &h
		says += " " + m.named(h)
	}
	if rarely(t, "with a copy") {
		f := m.floor(t, key)
		c.Have = &f
		says += " having " + m.named(statestore.Presented{Floor: f})
	}
	if rarely(t, "from the gone") {
		c.Gone = m.worker(t)
		says += ", gone " + m.whom(c.Gone)
	}
	if c.AcceptLost = rapid.Bool().Draw(t, "accept a loss"); c.AcceptLost {
		says += ", accepting a loss"
	}
	var view statestore.View
	_ = play(m, t, step[statestore.Claimed]{
		key: key, says: says, moment: boundAt,
		do: func() (statestore.Claimed, error) {
			got, err := m.w.store.Claim(m.w.ctx, c)
			view = got.View
			return got, err
		},
		judge: func(now statestore.Millis) (statestore.Claimed, error) { return m.model.claim(c, now) },
		plain: func(c statestore.Claimed) statestore.Claimed {
			c.View, c.Durability = statestore.View{}, statestore.Durability{}
			return c
		},
	})
	if view.Exists {
		if diff := differences(current(view.Record, view.Now), current(m.model.places[key.ID].life.record(), view.Now)); diff != "" {
			t.Fatalf("the record in the answer to the claim differs\n%s", diff)
		}
	}
}

// job draws a holding of one of two jobs.
func (m *machine) job(t *rapid.T) statestore.JobRef {
	return statestore.JobRef{
		ID:    rapid.SampledFrom([]string{"j1", "j2"}).Draw(t, "job"),
		Token: rapid.Uint64Range(1, 3).Draw(t, "token"),
	}
}

// target draws a worker, or nobody.
func (m *machine) target(t *rapid.T) statestore.Owner {
	if rarely(t, "nobody") {
		return statestore.Owner{}
	}
	return m.worker(t)
}

func (m *machine) move(t *rapid.T) {
	key := m.key(t)
	v := statestore.Move{Key: key, From: m.owner(key), Epoch: m.floor(t, key).Epoch, To: m.target(t), Job: m.job(t), Lifetimes: machineLives}
	if rarely(t, "from another") {
		v.From = m.worker(t)
	}
	if rapid.Bool().Draw(t, "over another") {
		v.Over = m.job(t).ID
	}
	_ = play(m, t, step[statestore.Moved]{
		key: key, moment: boundAt,
		says:  fmt.Sprintf("move %s of %s from %s to %s for %+v over %q", key.ID, m.epochs[v.Epoch], m.whom(v.From), m.whom(v.To), v.Job, v.Over),
		do:    func() (statestore.Moved, error) { return m.w.store.Move(m.w.ctx, v) },
		judge: func(now statestore.Millis) (statestore.Moved, error) { return m.model.move(v, now) },
		plain: func(r statestore.Moved) statestore.Moved {
			r.Durability = statestore.Durability{}
			return r
		},
	})
}

func (m *machine) reserve(t *rapid.T) {
	key := m.key(t)
	v := statestore.Reserve{Key: key, Epoch: m.floor(t, key).Epoch, Target: m.worker(t), Job: m.job(t)}
	if !rarely(t, "drop it") {
		v.For = 5 * time.Minute
	}
	if rarely(t, "over another") {
		v.Over = m.job(t).ID
	}
	_ = play(m, t, step[struct{}]{
		key:  key,
		says: fmt.Sprintf("reserve %s of %s for %s, %+v over %q, %v", key.ID, m.epochs[v.Epoch], m.whom(v.Target), v.Job, v.Over, v.For),
		do:   func() (struct{}, error) { return struct{}{}, m.w.store.Reserve(m.w.ctx, v) },
		moment: func(w statestore.View) statestore.Millis {
			if w.Reserved == nil {
				return 0
			}
			return w.Reserved.Until.Add(-v.For)
		},
		judge: func(now statestore.Millis) (struct{}, error) { return struct{}{}, m.model.reserve(v, now) },
	})
}

func (m *machine) finish(t *rapid.T) {
	key := m.key(t)
	f := statestore.Finish{Key: key, By: m.writer(t, key), Handle: m.handle(t, key), Lifetimes: machineLives}
	_ = play(m, t, step[statestore.Receipt]{
		key: key, moment: boundAt, plain: m.plainReceipt,
		says:  fmt.Sprintf("finish %s by %s with %s", key.ID, m.whom(f.By), m.named(f.Handle)),
		do:    func() (statestore.Receipt, error) { return m.w.store.Finish(m.w.ctx, f) },
		judge: func(now statestore.Millis) (statestore.Receipt, error) { return m.model.finish(f, now) },
	})
}

func (m *machine) erase(t *rapid.T) {
	key := m.key(t)
	d := statestore.Delete{Key: key, Lifetimes: machineLives}
	says := fmt.Sprintf("delete %s by an operator", key.ID)
	if !rarely(t, "an operator") {
		h := m.handle(t, key)
		d.Handle = &h
		says = fmt.Sprintf("delete %s with %s", key.ID, m.named(h))
	}
	_ = play(m, t, step[statestore.Ended]{
		key: key, says: says,
		do: func() (statestore.Ended, error) { return m.w.store.Delete(m.w.ctx, d) },
		// The tombstone's epoch is the clock, unless the last epoch was ahead.
		moment: func(v statestore.View) statestore.Millis { return statestore.Millis(v.Tombstone.Epoch) },
		judge:  func(now statestore.Millis) (statestore.Ended, error) { return m.model.erase(d, now) },
		plain: func(e statestore.Ended) statestore.Ended {
			e.Durability, e.Placements = statestore.Durability{}, nil
			return e
		},
	})
}

func (m *machine) report(t *rapid.T) {
	key := m.key(t)
	b := statestore.Bind{Key: key, Owner: m.worker(t), Handle: m.handle(t, key), Lifetimes: machineLives}
	_ = play(m, t, step[bool]{
		key: key, moment: boundAt,
		says:  fmt.Sprintf("report that %s served %s with %s", m.whom(b.Owner), key.ID, m.named(b.Handle)),
		do:    func() (bool, error) { return m.w.store.Bind(m.w.ctx, b) },
		judge: func(now statestore.Millis) (bool, error) { return m.model.report(b, now), nil },
	})
}

func (m *machine) place(t *rapid.T) {
	key, by := m.key(t), m.worker(t)
	descriptors := rapid.SampledFrom([]string{`[{"tier":"gpu"}]`, `[{"tier":"host"},{}]`, `[]`}).Draw(t, "descriptors")
	_ = play(m, t, step[struct{}]{
		key:  key,
		says: fmt.Sprintf("placements %s of %s for %s", descriptors, m.whom(by), key.ID),
		do: func() (struct{}, error) {
			return struct{}{}, m.w.store.PutPlacements(m.w.ctx, key, by, []byte(descriptors))
		},
		judge: func(now statestore.Millis) (struct{}, error) {
			return struct{}{}, m.model.put(key, by, descriptors, now)
		},
	})
}

func (m *machine) fence(t *rapid.T) {
	o := m.worker(t)
	f := statestore.Fence{Pool: m.keys[0].Pool}
	if m.model.fenced[o] {
		f.Drop = []statestore.Owner{o}
		delete(m.model.fenced, o)
	} else {
		f.Add = []statestore.Owner{o}
		m.model.fenced[o] = true
	}
	t.Logf("fence: %s is fenced: %v", m.whom(o), m.model.fenced[o])
	if err := m.w.store.Fence(m.w.ctx, f); err != nil {
		t.Fatalf("fence: %v", err)
	}
}

func (m *machine) raise(t *rapid.T) {
	ref := m.job(t)
	t.Logf("raise the token of %s to %d", ref.ID, ref.Token)
	if err := m.w.store.Fence(m.w.ctx, statestore.Fence{Pool: m.keys[0].Pool, Job: ref}); err != nil {
		t.Fatalf("raise a token: %v", err)
	}
	m.model.tokens[ref.ID] = max(m.model.tokens[ref.ID], ref.Token)
}

func (m *machine) sweep(t *rapid.T) {
	if _, err := m.w.store.Sweep(m.w.ctx, 100); err != nil {
		t.Fatalf("sweep: %v", err)
	}
	for _, key := range m.keys {
		m.look(t, key)
	}
}

// deadlines are the moments around which an answer depends on the millisecond.
func (m *machine) deadlines() []statestore.Millis {
	var all []statestore.Millis
	for _, p := range m.model.places {
		if l := p.life; l != nil {
			all = append(all, l.affinityUntil, l.expires)
			if l.reserved != nil {
				all = append(all, l.reserved.Until)
			}
		}
	}
	return all
}

// advance lets time pass, to a moment at which no answer depends on how fast this
// test runs.
func (m *machine) advance(t *rapid.T) {
	d := rapid.SampledFrom([]time.Duration{time.Second, 4 * time.Minute, 11 * time.Minute, 25 * time.Minute, 61 * time.Minute}).Draw(t, "time")
	const clear = 30 * time.Second
	near := func(deadline statestore.Millis) bool { return m.now.Add(d).Sub(deadline).Abs() < clear }
	for slices.ContainsFunc(m.deadlines(), near) {
		d += 2 * clear
	}
	t.Logf("%v pass", d)
	m.w.backend.Advance(m.w, m.w.store, d)
	for _, key := range m.keys {
		m.look(t, key)
	}
}

func (m *machine) snapshot(t *rapid.T) {
	if len(m.snapshots) == 3 {
		t.Skip("enough snapshots")
	}
	t.Logf("snapshot %d", len(m.snapshots))
	m.snapshots = append(m.snapshots, snapshot{restore: m.w.backend.Snapshot(m.w, m.w.store), model: m.model.clone()})
}

// lose brings an earlier store back, under a clock that has gone on.
func (m *machine) lose(t *rapid.T) {
	if len(m.snapshots) == 0 {
		t.Skip("no snapshot")
	}
	i := len(m.snapshots) - 1 - rapid.IntRange(0, len(m.snapshots)-1).Draw(t, "snapshots back")
	t.Logf("the store goes back to snapshot %d", i)
	m.w.goBack(m.snapshots[i].restore, m.issued)
	m.model = m.snapshots[i].model.clone()
	m.snapshots = m.snapshots[:i+1]
	for _, key := range m.keys {
		m.look(t, key)
	}
}
