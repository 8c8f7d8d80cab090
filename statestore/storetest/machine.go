package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth/statestore"
)

// machineLives are the lifetimes of the machine's sessions. Tombstones outlive
// every run: when one may go is the business of a trace.
var machineLives = statestore.Lifetimes{Affinity: 10 * time.Minute, Retention: time.Hour, Tombstone: 10_000 * time.Hour}

// machine drives a store and the model with the same random calls.
type machine struct {
	w       *world
	model   *model
	keys    []statestore.SessionKey
	workers []statestore.Owner
	now     statestore.Millis // the store's clock at the last step

	floors map[string][]statestore.Floor // handed out, by session, oldest first
	sent   map[string][]request          // every request once, by session
	ops    int

	snapshots []snapshot
	issued    uint64            // the highest epoch that was ever seen
	epochs    map[uint64]string // short names for people
}

// snapshot is a copy of the store and what the model was then.
type snapshot struct {
	restore func() statestore.Store
	model   *model
}

// randomSequences is the machine as a test: whatever a store is asked, in
// whatever order, it answers as the model.
func randomSequences(t *testing.T, b Backend) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, b)
		w.lives = machineLives
		m := &machine{
			w: w, model: newModel(), floors: map[string][]statestore.Floor{}, sent: map[string][]request{},
			epochs: map[uint64]string{0: "e0"}, now: w.now(),
		}
		defer func() { _ = m.w.store.Close() }()
		for _, id := range []string{"s1", "s2"} {
			m.keys = append(m.keys, statestore.SessionKey{Tenant: "acme", Pool: "llama", ID: id})
		}
		for _, o := range []string{"a/1", "b/1", "c/1", "a/2"} {
			m.workers = append(m.workers, statestore.Owner{Instance: o[:1], Incarnation: statestore.IncarnationDigest(o)})
		}
		if rapid.Bool().Draw(rt, "begin with a session") {
			m.begin(rt)
		}
		for range 2 { // deeper than the usual number of steps
			rt.Repeat(m.actions())
		}
		for _, key := range m.keys {
			m.look(rt, key)
		}
	})
}

// actions are what the machine does, each as often as its weight says.
func (m *machine) actions() map[string]func(*rapid.T) {
	weighted := []struct {
		name   string
		weight int
		act    func(*rapid.T)
	}{
		{"append", 5, m.append}, {"write late", 3, m.late}, {"replace", 1, m.replace}, {"burst", 1, m.burst},
		{"repeat", 3, m.repeat}, {"reuse an op", 1, m.reuse}, {"adopt", 2, m.adopt},
		{"claim", 4, m.claim}, {"move", 4, m.move}, {"reserve", 2, m.reserve}, {"finish", 1, m.finish},
		{"delete", 1, m.erase}, {"report", 1, m.report}, {"place", 1, m.place},
		{"fence", 1, m.fence}, {"raise a token", 1, m.raise}, {"sweep", 1, m.sweep}, {"read", 2, m.read},
	}
	all := map[string]func(*rapid.T){}
	for _, a := range weighted {
		for i := range a.weight {
			all[fmt.Sprintf("%s %d", a.name, i)] = a.act
		}
	}
	if m.w.backend.Advance != nil {
		all["let time pass"] = m.advance
	}
	if m.w.backend.Snapshot != nil {
		all["take a snapshot"], all["lose what came since"] = m.snapshot, m.lose
	}
	return all
}

// step is one call, played on the store and on the model.
type step[R any] struct {
	key  statestore.SessionKey
	says string // for people
	do   func() (R, error)
	// judge is the model's answer at a moment.
	judge func(statestore.Millis) (R, error)
	// moment finds in the record when the store accepted the call.
	moment func(statestore.View) statestore.Millis
	// plain leaves out of an answer what the model does not know.
	plain func(R) R
}

// play plays a step and fails unless store and model agree on the answer and on
// everything that is there afterwards. It returns the refusal.
func play[R any](m *machine, t *rapid.T, s step[R]) error {
	lo := m.now
	got, err := s.do()
	after := m.load(t, s.key)
	now := lo
	if err == nil && s.moment != nil {
		now = s.moment(after.View)
	}
	if now < lo || now > after.Now {
		now = lo
	}
	want, wantErr := s.judge(now)
	if s.plain != nil {
		got, want = s.plain(got), s.plain(want)
	}
	t.Logf("%s → %s", s.says, m.outcome(got, err))
	if !sameRefusal(err, wantErr) {
		t.Fatalf("%s\nthe store says %s\nthe model says %s", s.says, m.outcome(got, err), m.outcome(want, wantErr))
	}
	if err == nil && !reflect.DeepEqual(got, want) {
		t.Fatalf("%s\nthe store answers %+v\nthe model answers %+v", s.says, got, want)
	}
	m.compare(t, s.key, after)
	return err
}

// outcome prints an answer for people.
func (m *machine) outcome(answer any, err error) string {
	if err != nil {
		return fmt.Sprintf("%T%s", typed(err), pointed(typed(err)))
	}
	return fmt.Sprintf("%+v", answer)
}

// typed finds the refusal of the contract in an error.
func typed(err error) any {
	for _, find := range []func() (any, bool){
		as[*statestore.EndedError](err), as[*statestore.StoreBehindError](err), as[*statestore.OpForgottenError](err),
		as[*statestore.OpReusedError](err), as[*statestore.NotOwnerError](err), as[*statestore.StaleHandleError](err),
		as[*statestore.VersionConflictError](err), as[*statestore.LeaseHeldError](err), as[*statestore.FencedTargetError](err),
	} {
		if e, ok := find(); ok {
			return e
		}
	}
	if errors.Is(err, statestore.ErrNotFound) {
		return statestore.ErrNotFound
	}
	return err
}

func as[E error](err error) func() (any, bool) {
	return func() (any, bool) {
		var e E
		ok := errors.As(err, &e)
		return e, ok
	}
}

func sameRefusal(got, want error) bool {
	if got == nil || want == nil {
		return got == nil && want == nil
	}
	return reflect.DeepEqual(typed(got), typed(want))
}

// reading is everything that a store holds of a session.
type reading struct {
	statestore.Reading
	turns []statestore.Turn
}

func (m *machine) load(t *rapid.T, key statestore.SessionKey) reading {
	r, err := m.w.store.Load(m.w.ctx, key, 0)
	if err != nil {
		t.Fatalf("load %s: %v", key.ID, err)
	}
	got := reading{Reading: r}
	for turn, err := range r.Turns {
		if err != nil {
			t.Fatalf("read turn %d of %s: %v", len(got.turns), key.ID, err)
		}
		got.turns = append(got.turns, turn.Turn)
	}
	return got
}

// look compares a session outside of a step.
func (m *machine) look(t *rapid.T, key statestore.SessionKey) {
	r := m.load(t, key)
	m.model.at(key, r.Now)
	m.compare(t, key, r)
}

// compare holds what is stored against the model, byte for byte, and hands the
// newest handle out.
func (m *machine) compare(t *rapid.T, key statestore.SessionKey, got reading) {
	m.now = got.Now
	p := m.model.at(key, got.Now)
	if got.Exists != (p.life != nil) || got.Tombstone != p.tomb {
		t.Fatalf("%s: exists %v, tombstone %+v; want %v, %+v", key.ID, got.Exists, got.Tombstone, p.life != nil, p.tomb)
	}
	m.handOut(key, got.View.Floor())
	if p.life == nil {
		if len(got.turns) > 0 || len(got.Parked) > 0 || len(got.Placements) > 0 || got.Meta != nil {
			t.Fatalf("%s: an ended session holds %+v", key.ID, got)
		}
		return
	}
	want := p.life.record()
	if diff := differences(current(got.Record, got.Now), current(want, got.Now)); diff != "" {
		t.Fatalf("the record of %s differs\n%s", key.ID, diff)
	}
	turns, _, _ := p.life.context()
	if diff := differentTurns(got.turns, turns); diff != "" {
		t.Fatalf("the turns of %s differ: %s", key.ID, diff)
	}
	if string(got.Meta) != string(p.life.meta) || (got.Meta == nil) != (p.life.meta == nil) {
		t.Fatalf("meta of %s is %q, want %q", key.ID, got.Meta, p.life.meta)
	}
	m.compareBeside(t, key, got, p.life)
}

// compareBeside compares what lies beside the context, and that no op was
// stored twice.
func (m *machine) compareBeside(t *rapid.T, key statestore.SessionKey, got reading, l *life) {
	placed := map[statestore.Owner]string{}
	for _, p := range got.Placements {
		placed[p.By] = string(p.Descriptors)
	}
	if !reflect.DeepEqual(placed, l.placements) {
		t.Fatalf("placements of %s are %v, want %v", key.ID, placed, l.placements)
	}
	if len(got.Parked) != len(l.parked) {
		t.Fatalf("%d parked for %s, want %d", len(got.Parked), key.ID, len(l.parked))
	}
	for i, p := range got.Parked {
		p.Age, p.Turns = 0, nil
		want := l.parked[i]
		want.Turns = nil
		if diff := differentTurns(got.Parked[i].Turns, l.parked[i].Turns); diff != "" || !reflect.DeepEqual(p, want) {
			t.Fatalf("the %d-th parked for %s is %+v, want %+v; turns: %s", i, key.ID, p, want, diff)
		}
	}
	seen := map[string]int{}
	for i, w := range l.writes {
		if before, twice := seen[w.op]; twice {
			t.Fatalf("op %s of %s made version %d and version %d", w.op, key.ID, before, i+1)
		}
		seen[w.op] = i + 1
	}
}

// current leaves out of a record what has ended by itself.
func current(r statestore.Record, now statestore.Millis) statestore.Record {
	if r.Reserved != nil && r.Reserved.Until <= now {
		r.Reserved = nil
	}
	if len(r.Ops) == 0 {
		r.Ops = nil
	}
	return r
}

// differences lists the members that differ.
func differences(got, want statestore.Record) string {
	out := ""
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range g.NumField() {
		if a, b := g.Field(i).Interface(), w.Field(i).Interface(); !reflect.DeepEqual(a, b) {
			out += fmt.Sprintf("  %s is %s, want %s\n", g.Type().Field(i).Name, pointed(a), pointed(b))
		}
	}
	return out
}

func pointed(v any) string {
	if p := reflect.ValueOf(v); p.Kind() == reflect.Pointer && !p.IsNil() {
		v = p.Elem().Interface()
	}
	return fmt.Sprintf("%+v", v)
}

func differentTurns(got, want []statestore.Turn) string {
	same := slices.EqualFunc(got, want, func(a, b statestore.Turn) bool {
		return a.Type == b.Type && string(a.Value) == string(b.Value) && a.Tokens == b.Tokens
	})
	if same {
		return ""
	}
	return fmt.Sprintf("%s, want %s", brief(got), brief(want))
}

// handOut adds a handle to those that workers and gateways hold.
func (m *machine) handOut(key statestore.SessionKey, f statestore.Floor) {
	m.issued = max(m.issued, f.Epoch)
	if _, known := m.epochs[f.Epoch]; !known {
		m.epochs[f.Epoch] = fmt.Sprintf("e%d", len(m.epochs))
	}
	if !slices.Contains(m.floors[key.ID], f) {
		m.floors[key.ID] = append(m.floors[key.ID], f)
	}
}
