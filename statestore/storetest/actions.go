package storetest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"pgregory.net/rapid"

	"berth/statestore"
)

// named prints a handle for people.
func (m *machine) named(h statestore.Presented) string {
	s := fmt.Sprintf("(%s v%d %x", m.epochs[h.Epoch], h.Version, h.Op[:2])
	if h.Second != nil {
		s += fmt.Sprintf(", second %s v%d %x", m.epochs[h.Second.Epoch], h.Second.Version, h.Second.Op[:2])
	}
	if h.Named {
		s += ", named"
	}
	return s + ")"
}

// whom prints an owner for people.
func (m *machine) whom(o statestore.Owner) string {
	if o.IsZero() {
		return "nobody"
	}
	return o.Instance + "/" + o.Incarnation[:2]
}

func (m *machine) key(t *rapid.T) statestore.SessionKey {
	return m.keys[rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "session")]
}

func (m *machine) worker(t *rapid.T) statestore.Owner {
	return rapid.SampledFrom(m.workers).Draw(t, "worker")
}

// floor draws one that was handed out: the newest one, mostly.
func (m *machine) floor(t *rapid.T, key statestore.SessionKey) statestore.Floor {
	all := m.floors[key.ID]
	if len(all) == 0 {
		return statestore.Floor{}
	}
	back := rapid.OneOf(rapid.Just(0), rapid.Just(0), rapid.Just(0), rapid.IntRange(0, min(3, len(all)-1)), rapid.IntRange(0, len(all)-1)).Draw(t, "handles back")
	return all[len(all)-1-back]
}

func (m *machine) handle(t *rapid.T, key statestore.SessionKey) statestore.Presented {
	h := statestore.Presented{Floor: m.floor(t, key), AffinityKey: statestore.AffinityKey{7}}
	h.Named = !rarely(t, "names nobody")
	if rarely(t, "second floor") {
		f := m.floor(t, key)
		h.Second = &f
	}
	return h
}

// owner is who owns the session in the model, or nobody.
func (m *machine) owner(key statestore.SessionKey) statestore.Owner {
	if p := m.model.places[key.ID]; p != nil && p.life != nil {
		return p.life.owner
	}
	return statestore.Owner{}
}

// writer draws the owner mostly.
func (m *machine) writer(t *rapid.T, key statestore.SessionKey) statestore.Owner {
	o := m.owner(key)
	if o.IsZero() || rarely(t, "another writer") {
		return m.worker(t)
	}
	return o
}

func rarely(t *rapid.T, what string) bool { return rapid.IntRange(0, 4).Draw(t, what) == 4 }

// content makes turns that no other write has.
func (m *machine) content(t *rapid.T, op string) []statestore.Turn {
	var turns []statestore.Turn
	for i := range rapid.IntRange(1, 3).Draw(t, "turns") {
		value := fmt.Sprintf("%q", fmt.Sprintf("%s turn %d", op, i))
		if rapid.IntRange(0, 9).Draw(t, "large") == 9 {
			value += strings.Repeat(" ", 17_000)
		}
		turns = append(turns, statestore.Turn{Type: statestore.TurnJSON, Value: []byte(value), Tokens: uint64(i) + 3})
	}
	return turns
}

// request draws a new write.
func (m *machine) request(t *rapid.T, kind statestore.WriteKind) request {
	key := m.key(t)
	m.ops++
	op := fmt.Sprintf("op-%d", m.ops)
	q := request{kind: kind, Append: statestore.Append{
		Key: key, By: m.writer(t, key), Handle: m.handle(t, key), Op: op, Turns: m.content(t, op), Lifetimes: machineLives,
	}}
	q.Recreate = rapid.Bool().Draw(t, "recreate")
	if rarely(t, "with meta") {
		q.Meta = fmt.Appendf(nil, `{"by":%q}`, op)
	}
	if kind == statestore.KindAppend {
		if rapid.Bool().Draw(t, "at the end") {
			q.At = statestore.AtEnd
		}
		if rarely(t, "with a base") {
			base := uint64(rapid.IntRange(0, 6).Draw(t, "base"))
			q.Base = &base
		}
	}
	return q
}

// write plays an append or a replace.
func (m *machine) write(t *rapid.T, act string, q request) error {
	where := "at its version"
	if q.At == statestore.AtEnd {
		where = "at the end"
	}
	if q.Base != nil {
		where += fmt.Sprintf(" on base %d", *q.Base)
	}
	if q.kind == statestore.KindReplace {
		where = "instead of all"
	}
	var answer statestore.Floor
	err := play(m, t, step[statestore.Receipt]{
		key:  q.Key,
		says: fmt.Sprintf("%s %s of %s by %s with %s %s, %d turns", act, q.Op, q.Key.ID, m.whom(q.By), m.named(q.Handle), where, len(q.Turns)),
		do: func() (r statestore.Receipt, err error) {
			if q.kind == statestore.KindAppend {
				r, err = m.w.store.Append(m.w.ctx, q.Append)
			} else {
				r, err = m.w.store.Replace(m.w.ctx, statestore.Replace{
					Key: q.Key, By: q.By, Handle: q.Handle, Op: q.Op, Recreate: q.Recreate, Turns: q.Turns, Meta: q.Meta, Lifetimes: q.Lifetimes,
				})
			}
			answer = r.Floor
			return r, err
		},
		judge:  func(now statestore.Millis) (statestore.Receipt, error) { return m.model.write(q, now) },
		moment: func(v statestore.View) statestore.Millis { return v.LastTurn },
		plain:  m.plainReceipt,
	})
	if err == nil {
		m.handOut(q.Key, answer)
	}
	return err
}

// plainReceipt leaves out what depends on the backend and on the moment.
func (m *machine) plainReceipt(r statestore.Receipt) statestore.Receipt {
	r.Durability = statestore.Durability{}
	r.Affinity = r.Affinity.Round(5 * time.Minute)
	return r
}

func (m *machine) append(t *rapid.T) { m.send(t, m.request(t, statestore.KindAppend)) }

// begin stores the first turn of the first session.
func (m *machine) begin(t *rapid.T) {
	m.ops++
	q := request{kind: statestore.KindAppend, Append: statestore.Append{
		Key: m.keys[0], By: m.workers[0], Op: "op-1", Turns: says("op-1"), Lifetimes: machineLives,
	}}
	m.send(t, q)
}

// late writes for the tail, with a handle of its own epoch.
func (m *machine) late(t *rapid.T) {
	kind := statestore.KindAppend
	if rarely(t, "all at once") {
		kind = statestore.KindReplace
	}
	q := m.request(t, kind)
	p := m.model.places[q.Key.ID]
	if p == nil || p.life == nil || p.life.tail == nil {
		t.Skip("no tail")
	}
	q.By = p.life.tail.Owner
	q.Handle = statestore.Presented{}
	for _, f := range m.floors[q.Key.ID] {
		if f.Epoch == p.life.tail.Epoch {
			q.Handle.Floor = f
		}
	}
	m.send(t, q)
}

func (m *machine) replace(t *rapid.T) { m.send(t, m.request(t, statestore.KindReplace)) }

// send sends a new write. A client that was refused for its version, or because
// another owns the session, may read at once and send the same op with the newest
// handle, through the owner.
func (m *machine) send(t *rapid.T, q request) {
	m.sent[q.Key.ID] = append(m.sent[q.Key.ID], q)
	err := m.write(t, "send", q)
	var conflict *statestore.VersionConflictError
	var other *statestore.NotOwnerError
	if !errors.As(err, &conflict) && !errors.As(err, &other) || m.owner(q.Key).IsZero() || !rapid.Bool().Draw(t, "try again") {
		return
	}
	q.By, q.Handle = m.owner(q.Key), statestore.Presented{Floor: m.model.places[q.Key.ID].life.newest()}
	m.sent[q.Key.ID] = append(m.sent[q.Key.ID], q)
	_ = m.write(t, "then send", q) // judged by play
}

// old draws a request that was sent before.
func (m *machine) old(t *rapid.T) request {
	key := m.key(t)
	if len(m.sent[key.ID]) == 0 {
		t.Skip("nothing was sent")
	}
	all := m.sent[key.ID]
	back := rapid.OneOf(rapid.Just(0), rapid.IntRange(0, len(all)-1)).Draw(t, "requests back")
	return all[len(all)-1-back]
}

// repeat sends a request again, as it was: its answer was lost, or the network
// kept a copy.
func (m *machine) repeat(t *rapid.T) { _ = m.write(t, "repeat", m.old(t)) }

// reuse sends other content under an op that was accepted before.
func (m *machine) reuse(t *rapid.T) {
	q := m.old(t)
	p := m.model.places[q.Key.ID]
	if p == nil || p.life == nil {
		t.Skip("no session")
	}
	if _, w := p.life.find(q.Op); w == nil {
		t.Skip("an op that is not remembered")
	}
	q.Handle = m.handle(t, q.Key)
	q.Turns = m.content(t, "another "+q.Op)
	_ = m.write(t, "reuse", q)
}

// adopt lets the owner write a parked append under its own op.
func (m *machine) adopt(t *rapid.T) {
	key := m.key(t)
	p := m.model.places[key.ID]
	if p == nil || p.life == nil || len(p.life.parked) == 0 {
		t.Skip("nothing is parked")
	}
	parked := rapid.SampledFrom(p.life.parked).Draw(t, "parked")
	q := request{kind: statestore.KindAppend, Append: statestore.Append{
		Key: key, By: m.writer(t, key), Handle: statestore.Presented{Floor: p.life.newest()}, Op: parked.Op,
		Base: parked.Base, Turns: parked.Turns, Meta: parked.Meta, Lifetimes: machineLives,
	}}
	_ = m.write(t, "adopt", q)
}

// burst writes about as much as a store remembers. Only what the first write and
// the last one left is compared: the others are of the same kind.
func (m *machine) burst(t *rapid.T) {
	key := m.key(t)
	if m.owner(key).IsZero() {
		t.Skip("nobody to write")
	}
	writes := rapid.IntRange(statestore.OpsRemembered-2, statestore.OpsRemembered+2).Draw(t, "writes")
	for i := range writes {
		if m.owner(key).IsZero() {
			return // it had expired, and whoever wrote first was fenced
		}
		m.ops++
		op := fmt.Sprintf("op-%d", m.ops)
		q := request{kind: statestore.KindAppend, Append: statestore.Append{
			Key: key, By: m.owner(key), Handle: statestore.Presented{Floor: m.model.places[key.ID].life.newest()}, Op: op,
			Turns: says(op), Lifetimes: machineLives,
		}}
		if i == 0 || i == writes-1 {
			_ = m.write(t, fmt.Sprintf("after %d others", i), q) // judged by play
			continue
		}
		_, err := m.w.store.Append(m.w.ctx, q.Append)
		_, want := m.model.write(q, m.now)
		if err != nil || want != nil {
			t.Fatalf("%s by the owner: the store says %v, the model says %v", op, err, want)
		}
	}
}

// read lets a reader present a handle and the floor of its copy, and asks how many
// turns of the copy still hold. A copy may end with turns that were never stored.
func (m *machine) read(t *rapid.T) {
	key := m.key(t)
	h, have := m.handle(t, key), m.floor(t, key)
	got := m.load(t, key)
	m.compare(t, key, got)
	p := m.model.at(key, got.Now)
	err, want := got.View.Check(&h, &have), p.ended(&h, &have)
	if want == nil && p.life != nil {
		want = p.life.lineage(told(&h, &have))
	}
	t.Logf("read %s with %s having %s → %s", key.ID, m.named(h), m.named(statestore.Presented{Floor: have}), m.outcome("", err))
	if !sameRefusal(err, want) {
		t.Fatalf("a reader is told %s, want %s", m.outcome("", err), m.outcome("", want))
	}
	if p.life == nil {
		return
	}
	turns, holding := p.life.copyAt(have)
	unsaved := uint64(rapid.IntRange(0, 2).Draw(t, "unsaved turns"))
	if base := got.Base(have, turns+unsaved); base > holding || base < holding && p.life.version()-have.Version < statestore.OpsRemembered {
		t.Fatalf("base %d of a copy of %d turns at v%d, and %d turns of it still hold", base, turns, have.Version, holding)
	}
}
