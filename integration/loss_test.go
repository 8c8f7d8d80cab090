package integration_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"

	"berth/client"
	"berth/integration/redistest"
)

// TestRedisThatGoesBackIsRepaired is case T09, second half: a Redis that promises
// memory only comes back with an earlier copy of its data. The loss is noticed by
// whoever was promised more, and the writer's library has all of it back in place
// with its next write.
func TestRedisThatGoesBackIsRepaired(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	redis := redistest.Start(t)
	server := serve(t, append([]string{"--store", redis.URL}, timing...)...)
	c, routes := hire(t, 2, server.url), gateway(t, server.url)
	repaired := begin(t, c, routes, "repaired", 5)
	orphaned := begin(t, c, routes, "orphaned", 5)
	must(t, redis.Client(t).Save(ctx).Err())
	more(t, repaired, 5, 10)
	more(t, orphaned, 5, 10)
	held := orphaned.Handle()

	redis.Kill9(t)
	redis.Restart(t) // with what was saved
	awaitStore(t, server)
	more(t, repaired, 10, 12)
	rec, turns, err := repaired.Load(ctx, 0)
	must(t, err)
	if want := conversation("repaired", 12); !slices.Equal(values(turns), want) {
		t.Errorf("the store has %q, want %q", values(turns), want)
	}
	if rec.Version != 12 {
		t.Errorf("12 writes are version %d", rec.Version)
	}
	acceptLoss(t, c, routes, orphaned.Key(), held)
}

// begin binds a session to an instance with n turns.
func begin(t *testing.T, c crew, routes *client.Gateway, id string, n int) *client.Session {
	t.Helper()
	r, err := routes.Route(t.Context(), client.RouteRequest{Session: client.SessionKey{ID: id}})
	must(t, err)
	s := c.open(t, r.Instance, id)
	s.Offer(r.Hint())
	more(t, s, 0, n)
	return s
}

// more appends the turns from the from-th on, up to the to-th.
func more(t *testing.T, s *client.Session, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		if _, err := s.Append(within(t), said(s.Key().ID, n)); err != nil {
			t.Fatalf("append %d to %s: %v", n, s.Key().ID, err)
		}
	}
}

// awaitStore waits until the server reaches its store again.
func awaitStore(t *testing.T, server *berth) {
	t.Helper()
	eventually(t, "the server reaches its store", func() error {
		return server.api().do(t.Context(), http.MethodGet, "/v1/jobs", nil, nil)
	})
}

// acceptLoss takes over a session whose writer is gone with what it kept: the
// handle that the gateway holds shows the loss, and only who accepts it goes on.
func acceptLoss(t *testing.T, c crew, routes *client.Gateway, key client.SessionKey, held client.Handle) {
	t.Helper()
	ctx := t.Context()
	r, err := routes.Route(ctx, client.RouteRequest{Session: key, Handle: held})
	must(t, err)
	s := c.open(t, r.Instance, key.ID)
	s.Offer(r.Hint())
	_, err = s.Recover(ctx, client.RecoverRequest{Mode: client.Claim})
	var p *client.Problem
	if !errors.Is(err, client.ErrStoreBehind) || !errors.As(err, &p) || p.Have == nil || p.Want == nil {
		t.Fatalf("a session that lost 5 of 10 turns is recovered with %v", err)
	}
	if p.Have.Version != 5 || p.Want.Version != 10 {
		t.Errorf("told to have %d of %d versions, want 5 of 10", p.Have.Version, p.Want.Version)
	}
	got, err := s.Recover(ctx, client.RecoverRequest{Mode: client.Claim, AcceptLost: true})
	must(t, err)
	if got.Lost == nil || got.Lost.Want.Version != 10 || !slices.Equal(values(got.Turns), conversation(key.ID, 5)) {
		t.Errorf("accepting the loss gives %+v with %q", got.Lost, values(got.Turns))
	}
	more(t, s, 10, 11)
}

// TestEmbeddedStoreThatGoesBackSaysSo puts an earlier copy of the embedded store's
// file in place while the server is down, which fsync could not foresee. Nobody is
// told that all is well, and whoever kept the lost writes repairs them by sending
// them again, oldest first, each as it was.
func TestEmbeddedStoreThatGoesBackSaysSo(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := serve(t, timing...)
	c, routes := hire(t, 2, server.url), gateway(t, server.url)
	worker := begin(t, c, routes, "library", 3)
	raw := beginRaw(t, server, c, "raw", 3)
	earlier := copyStore(t, server)
	more(t, worker, 3, 6)
	raw.more(t, server, 3)
	held := worker.Handle()

	server.kill9(t)
	must(t, os.WriteFile(server.storeFile(), earlier, 0o600))
	server.restart(t)

	// The library was told that its writes are on disk, and kept none of them.
	_, err := worker.Append(within(t), said("library", 6))
	if !errors.Is(err, client.ErrStoreBehind) {
		t.Errorf("a write on top of lost ones is answered %v", err)
	}
	r, err := routes.Route(ctx, client.RouteRequest{Session: worker.Key(), Handle: held})
	must(t, err)
	again := c.open(t, r.Instance, "library")
	again.Offer(r.Hint())
	if _, err = again.Recover(ctx, client.RecoverRequest{Mode: client.Claim}); !errors.Is(err, client.ErrStoreBehind) {
		t.Errorf("a recovery by a handle of what was lost is answered %v", err)
	}

	raw.repair(t, server)
}

// copyStore copies the embedded store's file while nobody writes to it.
func copyStore(t *testing.T, server *berth) []byte {
	t.Helper()
	server.kill9(t)
	file, err := os.ReadFile(server.storeFile())
	must(t, err)
	server.restart(t)
	return file
}

// keeper is a worker of its own making that keeps every write as it was sent.
type keeper struct {
	session string
	by      credentials
	sent    []write
	newest  string // handle
}

func beginRaw(t *testing.T, server *berth, c crew, session string, n int) *keeper {
	t.Helper()
	h, err := server.api().route(t.Context(), session)
	must(t, err)
	k := &keeper{session: session, by: c.credentials(h.Instance), newest: h.Handle}
	k.more(t, server, n)
	return k
}

func (k *keeper) more(t *testing.T, server *berth, n int) {
	t.Helper()
	for range n {
		w := newWrite(k.by, k.newest, fmt.Sprintf("op-%d", len(k.sent)))
		got, err := server.api().append(t.Context(), k.session, w)
		must(t, err)
		k.sent, k.newest = append(k.sent, w), got.Handle
	}
}

// repair repeats what was lost.
func (k *keeper) repair(t *testing.T, server *berth) {
	t.Helper()
	ctx := t.Context()
	_, err := server.api().append(ctx, k.session, newWrite(k.by, k.newest, "op-next"))
	var p *refused
	if !errors.As(err, &p) || p.Code != "store_behind" || p.Have.Version != 3 || p.Want.Version != 6 {
		t.Fatalf("a write on top of lost ones is answered %v (%+v), want store_behind with 3 of 6", err, p)
	}
	for _, w := range k.sent[p.Have.Version:] {
		if _, err := server.api().append(ctx, k.session, w); err != nil {
			t.Fatalf("repeat %s: %v", w.Op, err)
		}
	}
	w := newWrite(k.by, k.newest, "op-next")
	if _, err := server.api().append(ctx, k.session, w); err != nil {
		t.Fatalf("the write after the repair: %v", err)
	}
	k.sent = append(k.sent, w)
	k.check(ctx, t, server)
}

func (k *keeper) check(ctx context.Context, t *testing.T, server *berth) {
	t.Helper()
	got, err := server.api().load(ctx, k.session)
	must(t, err)
	var want []string
	for _, w := range k.sent {
		want = append(want, (&record{Turns: w.Turns}).values()...)
	}
	if !slices.Equal(got.values(), want) {
		t.Errorf("%s has %q, want %q", k.session, got.values(), want)
	}
}
