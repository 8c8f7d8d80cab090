package integration_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"berth/client"
)

// values are the bytes of JSON turns.
func values(turns []client.Turn) []string {
	all := make([]string, len(turns))
	for i := range turns {
		all[i] = string(turns[i].Value)
	}
	return all
}

// said is the n-th turn of a conversation, and its op.
func said(session string, n int) client.Write {
	value := fmt.Sprintf(`{"session":%q,"turn":%d,"text":"caf\u00e9 \ud83d\ude80, 9007199254740993 and 1.10"}`, session, n)
	return client.Write{Op: "op-" + strconv.Itoa(n), Turns: []client.Turn{client.JSON([]byte(value))}}
}

// conversation is the values of the first n turns.
func conversation(session string, n int) (all []string) {
	for i := range n {
		all = append(all, values(said(session, i).Turns)...)
	}
	return all
}

// TestLifeOfASession plays one conversation through package client as a gateway
// and workers would: it moves when its instance dies, and stays where it went
// (case R12) when that one is back.
func TestLifeOfASession(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := serve(t, timing...)
	c, routes := hire(t, 3, server.url), gateway(t, server.url)
	key := client.SessionKey{ID: "a life/with spaces & ünïcode"}
	ask := func(exclude ...client.Exclusion) *client.Route {
		t.Helper()
		r, err := routes.Route(ctx, client.RouteRequest{Session: key, Exclude: exclude})
		must(t, err)
		return r
	}
	turn := func(on *client.Session, r *client.Route, n int) client.Receipt {
		t.Helper()
		on.Offer(r.Hint())
		if !on.Current(r.Hint()) {
			t.Fatalf("turn %d: the copy on %s is behind the hint", n, r.Instance)
		}
		got, err := on.Append(ctx, said(key.ID, n))
		must(t, err)
		return got
	}

	home := ask()
	first := c.open(t, home.Instance, key.ID)
	for n := range 3 {
		if r := ask(); r.Instance != home.Instance || n > 0 && r.Reason != "bound" {
			t.Fatalf("turn %d of a session of %s goes to %s (%s)", n, home.Instance, r.Instance, r.Reason)
		}
		turn(first, ask(), n)
	}
	old := ask() // a hint that the first instance keeps in hand
	c.stop[home.Instance]()

	away := ask(client.Exclusion{Instance: home.Instance, Result: client.ResultConnect})
	if away.Instance == home.Instance || !away.Jump || away.Previous != home.Instance {
		t.Fatalf("the gateway excluded %s and got %+v", home.Instance, away)
	}
	second := c.open(t, away.Instance, key.ID)
	second.Offer(away.Hint())
	got, err := second.Recover(ctx, client.RecoverRequest{Mode: client.Claim})
	must(t, err)
	if want := conversation(key.ID, 3); !slices.Equal(values(got.Turns), want) || got.Base != 0 {
		t.Fatalf("recovered %q from turn %d, want %q", values(got.Turns), got.Base, want)
	}

	// The first one was not dead but slow: its turn is parked, and adopted.
	first.Offer(old.Hint())
	late := said(key.ID, 3)
	_, err = first.Append(ctx, late)
	owner, known := client.OwnerOf(err)
	if !errors.Is(err, client.ErrNotOwner) || !known || owner.Instance != away.Instance {
		t.Fatalf("a late turn is answered %v, want not_owner and %s", err, away.Instance)
	}
	parked, err := second.Recover(ctx, client.RecoverRequest{Mode: client.Read, Have: second.Have()})
	must(t, err)
	if len(parked.Parked) != 1 || parked.Parked[0].By != home.Instance || parked.Base != 3 || len(parked.Turns) != 0 {
		t.Fatalf("the owner reads %+v, want one parked write of %s and nothing new", parked, home.Instance)
	}
	if adopted, err := second.Append(ctx, parked.Parked[0].Write()); err != nil || adopted.Op != late.Op || adopted.Turns != 4 {
		t.Fatalf("adopting gives %+v, %v", adopted, err)
	}

	// The first instance boots again; twenty further turns stay where they are.
	c.start(t, home.Instance, server.url)
	eventually(t, "the first instance is ready again", func() error {
		states, err := server.api().states(ctx)
		if err == nil && states[home.Instance] != "ready" {
			err = fmt.Errorf("it is %s", states[home.Instance])
		}
		return err
	})
	for n := 4; n < 24; n++ {
		r := ask()
		if r.Instance != away.Instance || r.Jump {
			t.Fatalf("turn %d jumped: %+v", n, r)
		}
		turn(second, r, n)
	}
	rec, turns, err := c.open(t, home.Instance, key.ID).Load(ctx, 0)
	must(t, err)
	if want := conversation(key.ID, 24); !slices.Equal(values(turns), want) || rec.Owner.Instance != away.Instance {
		t.Errorf("the store has %q of %s, want %q", values(turns), rec.Owner.Instance, want)
	}
}
