package redisstore

import (
	"context"
	"testing"
	"time"

	"berth/integration/redistest"
	"berth/statestore"
)

// next waits for an event.
func next(t *testing.T, events <-chan statestore.Event) statestore.Event {
	t.Helper()
	limit := time.NewTimer(2 * time.Minute)
	defer limit.Stop()
	select {
	case e, open := <-events:
		if !open {
			t.Fatal("the feed has ended")
		}
		return e
	case <-limit.C:
		t.Fatal("the feed is silent")
	}
	return statestore.Event{}
}

// nextSession waits for an event of a session. A gap before it loses nothing: a
// subscription may be made twice where its connection is slow.
func nextSession(t *testing.T, events <-chan statestore.Event) statestore.SessionDigest {
	t.Helper()
	for {
		switch e := next(t, events); e.Kind {
		case statestore.EventSession:
			return e.Session
		case statestore.EventGap:
		default:
			t.Fatalf("event %+v", e)
		}
	}
}

// What was published while the subscription was broken is lost, and the watcher
// is told so when it stands again.
func TestBrokenFeedTellsOfAGap(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, proxy, beside := behind(t, server.Addr)
	events, err := s.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w := newWriter(beside, "told")
	w.append(t, []byte("one"))
	if got := nextSession(t, events); got != w.key.Digest() {
		t.Fatalf("event of session %v", got)
	}
	proxy.Down()
	newWriter(beside, "missed").append(t, []byte("one"))
	proxy.Up()
	if e := next(t, events); e.Kind != statestore.EventGap {
		t.Fatalf("event %+v, want a gap", e)
	}
	again := newWriter(beside, "told again")
	again.append(t, []byte("one"))
	if got := nextSession(t, events); got != again.key.Digest() {
		t.Fatalf("event of session %v after the gap", got)
	}
}

func TestSlowWatcherGetsAGap(t *testing.T) {
	t.Parallel()
	out := make(chan statestore.Event, 2)
	w := &watcher{out: out}
	for epoch := range uint64(5) {
		w.send(statestore.Event{Kind: statestore.EventSession, Epoch: epoch + 1})
	}
	for want := range uint64(2) {
		if e := <-out; e.Epoch != want+1 {
			t.Fatalf("event %+v, want epoch %d", e, want+1)
		}
	}
	w.send(statestore.Event{Kind: statestore.EventSession, Epoch: 6})
	if e := <-out; e.Kind != statestore.EventGap {
		t.Fatalf("event %+v, want a gap", e)
	}
	if e := <-out; e.Epoch != 6 {
		t.Fatalf("event %+v, want epoch 6", e)
	}
}

func TestFeedEndsWithTheStore(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Standalone(t).URL)
	events, err := s.Watch(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range events { //nolint:revive // it must end
	}
}

func TestEventsComeBack(t *testing.T) {
	t.Parallel()
	for _, e := range []statestore.Event{
		{Kind: statestore.EventFleet, Instance: "i1"}, {Kind: statestore.EventFleet},
		{Kind: statestore.EventTasks, Instance: "i2"}, {Kind: statestore.EventJob, Job: "j1"},
	} {
		if got, ok := decodeEvent(encodeEvent(e)); !ok || got != e {
			t.Errorf("%+v came back as %+v", e, got)
		}
	}
	for _, payload := range []string{"", "\x00", "\x01short", "\x09x"} {
		if e, ok := decodeEvent(payload); ok {
			t.Errorf("%q was read as %+v", payload, e)
		}
	}
}
