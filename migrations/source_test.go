package migrations

import (
	"encoding/json"
	"testing"
	"time"

	"berth/statestore"
)

// The order of drained, stage by stage: each row is one look at the source.
func TestSourceFollowsTheStrictOrder(t *testing.T) {
	t.Parallel()
	type look struct {
		at       int // seconds
		bound    int
		unproven int
		beats    uint64
		running  int
		waiting  int
		health   statestore.Health
		state    statestore.Lifecycle
		gone     bool

		drained bool
		because string
		wait    int
	}
	for _, c := range []struct {
		name  string
		looks []look
	}{
		{"sessions, then hints, then two heartbeats", []look{
			{at: 0, bound: 1, beats: 10, because: BecauseSessions},
			{at: 1, beats: 10, because: BecauseHints, wait: 12},
			{at: 5, beats: 12, because: BecauseHints, wait: 8},
			{at: 13, beats: 16, because: BecauseUnknown},
			{at: 14, beats: 17, because: BecauseUnknown},
			{at: 16, beats: 18, drained: true},
		}},
		{"a request that runs", []look{
			{at: 0, beats: 1, because: BecauseHints, wait: 12},
			{at: 12, beats: 7, because: BecauseUnknown},
			{at: 16, beats: 9, running: 1, because: BecauseInFlight},
			{at: 60, beats: 31, waiting: 1, because: BecauseInFlight},
			{at: 62, beats: 32, drained: true},
		}},
		{"a session that comes back starts over", []look{
			{at: 0, beats: 1, because: BecauseHints, wait: 12},
			{at: 11, beats: 1, bound: 1, because: BecauseSessions},
			{at: 13, beats: 2, because: BecauseHints, wait: 12},
			{at: 25, beats: 8, because: BecauseUnknown},
			{at: 29, beats: 10, drained: true},
		}},
		{"a move that is not durable", []look{
			{at: 0, beats: 1, unproven: 1, because: BlockedNotDurable},
			{at: 50, beats: 26, unproven: 1, because: BlockedNotDurable},
			{at: 51, beats: 26, because: BecauseHints, wait: 12},
		}},
		{"never a heartbeat", []look{
			{at: 0, because: BecauseHints, wait: 12},
			{at: 12, because: BecauseUnknown, wait: 30},
			{at: 30, because: BecauseUnknown, wait: 12},
			{at: 42, drained: true},
		}},
		{"heartbeats that stop", []look{
			{at: 0, beats: 5, because: BecauseHints, wait: 12},
			{at: 12, beats: 5, because: BecauseUnknown},
			{at: 600, beats: 5, because: BecauseUnknown},
			{at: 601, beats: 5, health: statestore.Down, drained: true},
		}},
		{"down a while ago", []look{
			{at: 0, beats: 5, health: statestore.Down, because: BecauseHints, wait: 12},
			{at: 12, beats: 5, health: statestore.Down, because: BecauseUnknown, wait: 30},
			{at: 42, beats: 5, health: statestore.Down, drained: true},
		}},
		{"gone", []look{
			{at: 0, bound: 1, gone: true, because: BecauseSessions},
			{at: 1, gone: true, drained: true},
		}},
		{"drained before", []look{{at: 0, beats: 5, state: statestore.Drained, drained: true}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			s := &source{}
			for _, l := range c.looks {
				f := sighting{
					now: began.Add(time.Duration(l.at) * time.Second), bound: l.bound, unproven: l.unproven,
					hints: 12 * time.Second, grace: 30 * time.Second,
				}
				if !l.gone {
					f.instance = &statestore.Instance{
						Lifecycle: l.state, Verdict: statestore.Verdict{Health: l.health}, Beats: l.beats,
						LastBeat: statestore.Heartbeat{Running: l.running, Waiting: l.waiting},
					}
				}
				want := standing{drained: l.drained, because: l.because, wait: time.Duration(l.wait) * time.Second}
				if got := s.step(f); got != want {
					t.Fatalf("after %d s: %+v, want %+v", l.at, got, want)
				}
			}
		})
	}
}

// What became of a commit is read off the session: it happened if it was sent, and
// if the first change of owner since is a job's, to where it was to go.
func TestFateIsReadOffTheSession(t *testing.T) {
	t.Parallel()
	nobody := statestore.Owner{}
	from, to := statestore.Owner{Instance: "a", Incarnation: "1"}, statestore.Owner{Instance: "b", Incarnation: "1"}
	change := func(epoch uint64, why statestore.ChangeReason, to statestore.Owner) statestore.OwnerChange {
		return statestore.OwnerChange{Epoch: epoch, Reason: why, Instance: to.Instance}
	}
	exists := func(owner statestore.Owner, epoch uint64, changes ...statestore.OwnerChange) statestore.View {
		changes = append([]statestore.OwnerChange{change(5, statestore.ChangeCreated, from)}, changes...)
		return statestore.View{Exists: true, Record: statestore.Record{Owner: owner, Epoch: epoch, Changes: changes}}
	}
	ended := func(why statestore.EndReason) statestore.View {
		return statestore.View{Tombstone: statestore.Tombstone{Epoch: 9, Reason: why}}
	}
	for name, c := range map[string]struct {
		view   statestore.View
		to     statestore.Owner
		sent   fate
		unsent fate
	}{
		"not yet":             {exists(from, 5), to, fateBound, fateBound},
		"moved":               {exists(to, 6, change(6, statestore.ChangeMoved, to)), to, fateMoved, fateLeft},
		"moved elsewhere":     {exists(to, 6, change(6, statestore.ChangeMoved, to)), statestore.Owner{Instance: "c"}, fateLeft, fateLeft},
		"detached":            {exists(nobody, 6, change(6, statestore.ChangeDetached, nobody)), nobody, fateMoved, fateLeft},
		"detached by another": {exists(nobody, 6, change(6, statestore.ChangeDetached, nobody)), to, fateLeft, fateLeft},
		"moved and claimed": {
			exists(from, 7, change(6, statestore.ChangeMoved, to), change(7, statestore.ChangeClaimed, from)), to, fateMoved, fateStale,
		},
		"claimed": {exists(to, 6, change(6, statestore.ChangeClaimed, to)), to, fateLeft, fateLeft},
		"claimed and moved": {
			exists(to, 7, change(6, statestore.ChangeClaimed, to), change(7, statestore.ChangeMoved, to)), to, fateLeft, fateLeft,
		},
		"released":              {exists(nobody, 6, change(6, statestore.ChangeFinished, nobody)), nobody, fateLeft, fateLeft},
		"a loss was accepted":   {exists(from, 6, change(6, statestore.ChangeLost, from)), to, fateStale, fateStale},
		"expired":               {ended(statestore.Expired), to, fateExpired, fateExpired},
		"deleted":               {ended(statestore.Deleted), to, fateDeleted, fateDeleted},
		"longer gone than said": {statestore.View{}, to, fateExpired, fateExpired},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := intent{From: from, To: c.to, Epoch: 5}
			if sent, unsent := fateOf(&c.view, in, true), fateOf(&c.view, in, false); sent != c.sent || unsent != c.unsent {
				t.Errorf("sent %d, want %d; not sent %d, want %d", sent, c.sent, unsent, c.unsent)
			}
		})
	}
}

// Commits on record are stored in few bytes and come back as they were, also from
// the form in which every name was stored.
func TestIntentsComeBack(t *testing.T) {
	t.Parallel()
	var m memo
	want := []intent{}
	for i := range 300 {
		in := intent{
			Key: keyOf(i), From: statestore.Owner{Instance: "a", Incarnation: "boot-a"}, Epoch: uint64(1_800_000_000_000 + i), //nolint:gosec // small
			To: statestore.Owner{Instance: "b", Incarnation: "boot-b"}, Bytes: 4096, Tokens: 1000, Warm: i%2 == 0, Lapsed: i%3 == 0, Named: i,
		}
		if i%5 == 0 {
			in.To = statestore.Owner{}
		}
		want = append(want, in)
		m.take(in)
	}
	doc, err := json.Marshal(&m)
	if err != nil {
		t.Fatal(err)
	}
	if len(doc) > 300*110 {
		t.Errorf("%d bytes for 300 commits", len(doc))
	}
	plain, err := json.Marshal(map[string]any{"in_hand": want})
	if err != nil {
		t.Fatal(err)
	}
	for _, stored := range [][]byte{doc, plain} {
		got, err := parseMemo(stored)
		if err != nil {
			t.Fatal(err)
		}
		for _, in := range want {
			if got.InHand[in.Key] != in {
				t.Fatalf("%+v came back as %+v", in, got.InHand[in.Key])
			}
		}
	}
	if _, err := parseMemo([]byte(`{"in_hand":{"list":[{"i":"s","f":7,"e":1}]}}`)); err == nil {
		t.Error("a commit without its owner is read")
	}
}
