package services_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"berth/statestore"
	"berth/statestore/handle"
)

// signer signs like the servers on a store, whatever it is told to.
func (b *bundle) signer() *handle.Codec {
	b.t.Helper()
	keys, err := b.store.SigningKeys(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	codec, err := handle.NewCodec(keys)
	if err != nil {
		b.t.Fatal(err)
	}
	return codec
}

func digestOf(tenant, pool, id string) statestore.SessionDigest {
	return statestore.SessionKey{Tenant: tenant, Pool: pool, ID: id}.Digest()
}

// floor is what the store knows of a session of the default tenant and pool.
func (b *bundle) floor(id string) statestore.Floor {
	b.t.Helper()
	v, err := b.store.Lookup(b.t.Context(), statestore.SessionKey{Tenant: "default", Pool: "default", ID: id})
	if err != nil {
		b.t.Fatal(err)
	}
	return v.Floor()
}

// routeHandle signs what a route would say of a session at that floor.
func (b *bundle) routeHandle(id string, floor statestore.Floor, names ...string) string {
	b.t.Helper()
	h := handle.Handle{
		Purpose: handle.Route, Session: digestOf("default", "default", id), Floor: floor, Expires: time.Now().Add(24 * time.Hour),
	}
	for _, n := range names {
		h.Name(n)
	}
	return b.signer().Sign(&h)
}

// Every call that takes a handle refuses a bad one, says why, and changes nothing.
func TestBadHandlesAreRefusedEverywhere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker("i1")
	good := w.append("s", "first", b.route("s").want(200).str("handle"), `"hello"`).want(200).str("handle")
	codec, floor := b.signer(), b.floor("s")
	sign := func(session statestore.SessionDigest, purpose handle.Purpose, left time.Duration) string {
		h := handle.Handle{Purpose: purpose, Session: session, Floor: floor, Expires: time.Now().Add(left)}
		h.Name(w.id)
		return codec.Sign(&h)
	}
	strangers, err := handle.NewCodec([]statestore.SigningKey{{ID: [2]byte{0xff, 0xfe}, Secret: make([]byte, 32)}})
	if err != nil {
		t.Fatal(err)
	}
	unknown := handle.Handle{Purpose: handle.Route, Session: digestOf("default", "default", "s"), Expires: time.Now().Add(time.Hour)}
	handles := []struct{ name, handle, why string }{
		{"none", "", "forged"},
		{"not one", "not a handle", "forged"},
		{"far too long", strings.Repeat("A", 5000), "forged"},
		{"of one changed bit", flipped(good), "forged"},
		{"of a key nobody knows", strangers.Sign(&unknown), "unknown_key"},
		{"that is over", sign(digestOf("default", "default", "s"), handle.Route, -time.Minute), "expired"},
		{"of another session", sign(digestOf("default", "default", "other"), handle.Route, time.Hour), "other_session"},
		{"of another tenant", sign(digestOf("acme", "default", "s"), handle.Route, time.Hour), "other_session"},
		{"of another pool", sign(digestOf("default", "llama", "s"), handle.Route, time.Hour), "other_session"},
		{"made to prewarm", sign(digestOf("default", "default", "s"), handle.Prewarm, time.Hour), "purpose"},
	}
	before := b.stored()
	for _, h := range handles {
		t.Run(h.name, func(t *testing.T) {
			w := w.with(t)
			calls := map[string]answer{
				"append":  w.append("s", "op", h.handle, `1`),
				"replace": w.replace("s", "op", h.handle, `1`),
				"finish":  w.finish("s", h.handle),
			}
			if h.handle != "" { // a handle may be left out here
				calls["delete"] = w.call("DELETE", "/v1/sessions/s", "", "X-Berth-Handle: "+h.handle)
			}
			if h.handle != "" && h.why != "purpose" { // anybody may read, and the owner may claim
				calls["claim"] = w.recover("s", h.handle, "claim")
				calls["read"] = w.recover("s", h.handle, "read")
				calls["prewarm"] = w.recover("s", h.handle, "prewarm")
				calls["have"] = w.recover("s", good, "read", fmt.Sprintf(`"have":{"handle":%q,"turns":1}`, h.handle))
			}
			for name, a := range calls {
				if a.refused(403, "bad_handle"); a.str("why") != h.why {
					t.Errorf("%s: why %q, want %q", name, a.str("why"), h.why)
				}
				if h.handle != "" && strings.Contains(string(a.body), h.handle) {
					t.Errorf("%s: the refusal tells the handle", name)
				}
			}
		})
	}
	if after := b.stored(); after != before {
		t.Fatalf("stored\n%s\nbefore, and after\n%s", before, after)
	}
}

// Only a handle of a route that names the claimant takes a session from its owner.
func TestOnlyARouteHandleThatNamesTheClaimantClaims(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w1, w2 := b.worker("i1"), b.worker("i2")
	owner, other := b.open("s", w1, w2)
	codec := b.signer()
	sign := func(purpose handle.Purpose, names ...string) string {
		h := handle.Handle{
			Purpose: purpose, Session: digestOf("default", "default", "s"), Floor: b.floor("s"), Expires: time.Now().Add(time.Hour),
		}
		for _, n := range names {
			h.Name(n)
		}
		return codec.Sign(&h)
	}
	before := b.stored()
	for _, purpose := range []handle.Purpose{handle.Prewarm, handle.Save, handle.Degraded} {
		a := other.recover("s", sign(purpose, other.id), "claim").refused(403, "bad_handle")
		if a.str("why") != "purpose" {
			t.Errorf("purpose %d: %s", purpose, a.body)
		}
	}
	for name, h := range map[string]string{"another's hint": sign(handle.Route, owner.id), "nobody's hint": sign(handle.Route), "none": ""} {
		if a := other.recover("s", h, "claim").refused(409, "stale_handle"); a.str("owner.instance") != owner.id || a.str("owner.address") == "" {
			t.Errorf("%s: the refusal does not name the owner: %s", name, a.body)
		}
	}
	if after := b.stored(); after != before {
		t.Fatalf("stored\n%s\nbefore, and after\n%s", before, after)
	}
	other.recover("s", sign(handle.Route, owner.id, other.id), "claim").want(200)
}

// A handle that a degraded route gave may begin a session and go on with one's own,
// but never takes one that exists.
func TestADegradedHandleBeginsASession(t *testing.T) {
	t.Parallel()
	b, store := setupFaulty(t)
	w1, w2 := b.worker("i1"), b.worker("i2")
	owner, other := b.open("old", w1, w2)
	b.route("old").want(200) // known to this process from here on
	store.fail(away)
	fresh := b.route("new").want(200)
	hint := b.route("old", "&exclude="+owner.id).want(200)
	store.fail(nil)
	for _, a := range []answer{fresh, hint} {
		if a.str("degraded") != "store_unavailable" || a.header.Get("X-Berth-Degraded") != "store_unavailable" {
			t.Fatalf("degraded: %s", a.body)
		}
	}
	if a := other.recover("old", hint.str("handle"), "claim").refused(403, "bad_handle"); a.str("why") != "purpose" {
		t.Fatalf("claim: %s", a.body)
	}
	first := map[string]*worker{w1.id: w1, w2.id: w2}[fresh.str("instance")]
	if a := first.append("new", "op", fresh.str("handle"), `1`).want(200); a.str("version") != "1" {
		t.Fatalf("first append: %s", a.body)
	}
}

func flipped(handle string) string {
	b := []byte(handle)
	if b[40]++; b[40] > 'z' || b[40] == '[' || b[40] == ':' || b[40] == '`' {
		b[40] = 'A'
	}
	return string(b)
}

// To a route a handle that is not good is as none: a hint has to come all the same, and
// brings a new handle. It is counted.
func TestARouteTakesABadHandleAsNone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker("i1")
	good := w.append("s", "op", b.route("s").want(200).str("handle"), `1`).want(200).str("handle")
	plain := b.route("s").want(200)
	for name, h := range map[string]string{
		"not one": "zzz", "far too long": strings.Repeat("A", 5000), "of one changed bit": flipped(good),
		"of another session": b.route("other").want(200).str("handle"),
	} {
		a := b.call("GET", "/route?session=s", "", "X-Berth-Handle: "+h).want(200)
		for _, member := range []string{"instance", "reason", "epoch", "version"} {
			if a.str(member) != plain.str(member) {
				t.Errorf("%s: %s, and without it %s", name, a.body, plain.body)
			}
		}
		w.append("s", strings.ReplaceAll(name, " ", "-"), a.str("handle"), `2`).want(200)
		plain = b.route("s").want(200)
	}
	for series, want := range map[string]float64{"forged": 3, "other_session": 1} {
		if n := b.metric(`berth_handles_refused_total{why="` + series + `"}`); n != want {
			t.Errorf("%v handles are counted as %s, want %v", n, series, want)
		}
	}
}
