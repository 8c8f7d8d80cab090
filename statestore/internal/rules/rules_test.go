package rules

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"berth/statestore"
)

const noon = statestore.Millis(1_900_000_000_000)

var (
	ownerA = statestore.Owner{Instance: "a", Incarnation: "1"}
	ownerB = statestore.Owner{Instance: "b", Incarnation: "1"}
	ownerC = statestore.Owner{Instance: "c", Incarnation: "1"}
	lives  = statestore.Lifetimes{Affinity: time.Minute, Retention: time.Hour, Tombstone: 2 * time.Hour}
)

func write(by statestore.Owner, op string, f statestore.Floor) Write {
	return Write{
		Kind: statestore.KindAppend, By: by, Op: statestore.DigestOp(op), Turns: 1, Bytes: 1,
		Handle: statestore.Presented{Floor: f}, Lifetimes: lives,
	}
}

// owned is a slot with one turn of a's.
func owned(t *testing.T) *Slot {
	t.Helper()
	s := new(Slot)
	if _, err := s.Apply(write(ownerA, "one", statestore.Floor{}), noon); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestExpiryEndsTheEpochAtTheMomentItWasOver(t *testing.T) {
	t.Parallel()
	s := owned(t)
	over := s.Record.Expires
	s.Expire(over + 12_345)
	if want := (statestore.Tombstone{Epoch: uint64(over), Reason: statestore.Expired}); s.Tombstone != want {
		t.Fatalf("tombstone %+v, want %+v however late it was seen", s.Tombstone, want)
	}
}

func TestFirstAppendWinsOverAnyNumberOfReports(t *testing.T) {
	t.Parallel()
	s := new(Slot)
	var hinted statestore.Floor
	for _, o := range []statestore.Owner{ownerA, ownerB} {
		hinted = statestore.Floor{}
		if s.Record != nil {
			hinted = s.Record.Floor()
		}
		if !s.Bind(statestore.Bind{Owner: o, Handle: statestore.Presented{Floor: hinted}, Lifetimes: lives}, false, noon) {
			t.Fatalf("%s was not bound", o.Instance)
		}
	}
	// b was hinted by the first report's epoch, and the second report, its own,
	// came before its append.
	if _, err := s.Apply(write(ownerB, "one", hinted), noon); err != nil {
		t.Fatalf("first append by the instance that served: %v", err)
	}
}

func TestMoveOfAnOwnerlessSessionLeavesNoTail(t *testing.T) {
	t.Parallel()
	s := owned(t)
	if err := s.Finish(statestore.Finish{By: ownerA, Handle: statestore.Presented{Floor: s.Record.Floor()}}, noon); err != nil {
		t.Fatal(err)
	}
	for _, to := range []statestore.Owner{ownerB, ownerC} {
		m := statestore.Move{From: s.Record.Owner, Epoch: s.Record.Epoch, To: to}
		if err := s.Move(m, Fences{}, noon); err != nil {
			t.Fatal(err)
		}
	}
	if s.Record.Tail == nil || s.Record.Tail.Owner != ownerB {
		t.Fatalf("tail %+v, want b: nobody is no owner", s.Record.Tail)
	}
}

func TestClaimAcceptsTheLossOfItsOwnCopy(t *testing.T) {
	t.Parallel()
	have := &statestore.Floor{Epoch: 7, Version: 5}
	c := statestore.Claim{By: ownerA, Handle: &statestore.Presented{}, Have: have}
	s := new(Slot)
	var behind *statestore.StoreBehindError
	if _, _, err := s.Claim(c, false, noon); !errors.As(err, &behind) || behind.WantVersion != 5 {
		t.Fatalf("claim: %v, want a store behind version 5", err)
	}
	c.AcceptLost = true
	_, lost, err := s.Claim(c, false, noon)
	if want := (&statestore.Loss{WantVersion: 5}); err != nil || !reflect.DeepEqual(lost, want) {
		t.Fatalf("claim that accepts: %+v, %v, want %+v", lost, err, want)
	}
}

func TestCopyOfAnEndedLifeIsNoLoss(t *testing.T) {
	t.Parallel()
	s := owned(t)
	old := s.Record.Floor()
	s.Expire(s.Record.Expires)
	fresh := statestore.Floor{Epoch: s.Tombstone.Epoch}
	if _, err := s.Apply(write(ownerA, "two", fresh), noon.Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	c := statestore.Claim{By: ownerA, Handle: &statestore.Presented{Floor: s.Record.Floor()}, Have: &old}
	if _, _, err := s.Claim(c, false, noon.Add(2*time.Hour)); err != nil {
		t.Fatalf("claim with a copy of the life before: %v", err)
	}
	if base := s.Record.Base(old, 1); base != 0 {
		t.Fatalf("base %d of a copy of the life before, want 0", base)
	}
}

func TestSecondAcceptedLossDoesNotHideWhatTheFirstPromised(t *testing.T) {
	t.Parallel()
	s := owned(t)
	accept := func(want uint64) {
		t.Helper()
		lost := &statestore.Presented{Floor: statestore.Floor{Epoch: s.Record.Epoch, Version: want}}
		if _, _, err := s.Claim(statestore.Claim{By: ownerA, Handle: lost, AcceptLost: true}, false, noon); err != nil {
			t.Fatal(err)
		}
	}
	accept(10)
	between := statestore.Floor{Epoch: s.Record.Epoch, Version: 9}
	accept(7)
	var behind *statestore.StoreBehindError
	if _, err := s.Apply(write(ownerA, "two", between), noon); !errors.As(err, &behind) {
		t.Fatalf("append at version 9, promised between the losses: %v, want a store behind", err)
	}
}

func TestAbsentSessionSaysHowItEnded(t *testing.T) {
	t.Parallel()
	s := owned(t)
	if err := s.Delete(statestore.Delete{}, noon); err != nil {
		t.Fatal(err)
	}
	hinted := statestore.Presented{Floor: statestore.Floor{Epoch: s.Tombstone.Epoch}}
	var ended *statestore.EndedError
	if err := s.Finish(statestore.Finish{By: ownerA, Handle: hinted}, noon); !errors.As(err, &ended) || ended.Reason != statestore.Deleted {
		t.Fatalf("finish after a delete: %v", err)
	}
}
