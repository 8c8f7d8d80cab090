package handle_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth/statestore"
	"berth/statestore/handle"
)

var (
	now    = time.Unix(1_800_000_000, 0)
	oldKey = statestore.SigningKey{ID: [2]byte{0, 1}, Secret: []byte("an old secret of enough bytes")}
	newKey = statestore.SigningKey{ID: [2]byte{0, 2}, Secret: []byte("a new secret of enough bytes.")}
)

func codec(t testing.TB, keys ...statestore.SigningKey) *handle.Codec {
	t.Helper()
	c, err := handle.NewCodec(keys)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func session(id string) statestore.SessionDigest {
	return statestore.SessionKey{Tenant: "default", Pool: "default", ID: id}.Digest()
}

func sample() *handle.Handle {
	h := &handle.Handle{
		Purpose: handle.Route,
		Session: session("s"),
		Floor:   statestore.Floor{Epoch: 1_800_000_000_123, Version: 7, Op: statestore.DigestOp("op-7")},
		Expires: now.Add(time.Hour),
	}
	h.Name("i1")
	h.Name("i2")
	return h
}

func TestVerifyReturnsWhatWasSigned(t *testing.T) {
	t.Parallel()
	c := codec(t, newKey, oldKey)
	rapid.Check(t, func(t *rapid.T) {
		floor := rapid.Custom(func(t *rapid.T) statestore.Floor {
			return statestore.Floor{
				Epoch:   rapid.Uint64Max(1<<48-1).Draw(t, "epoch"),
				Version: rapid.Uint64Max(1<<40-1).Draw(t, "version"),
				Op:      statestore.DigestOp(rapid.String().Draw(t, "op")),
			}
		})
		h := &handle.Handle{
			Purpose: handle.Purpose(rapid.IntRange(1, 4).Draw(t, "purpose")),
			Session: session(rapid.String().Draw(t, "session")),
			Floor:   floor.Draw(t, "floor"),
			Expires: now.Add(time.Duration(rapid.IntRange(1, 1<<20).Draw(t, "life")) * time.Second),
		}
		if rapid.Bool().Draw(t, "second") {
			second := floor.Draw(t, "second floor")
			h.Second = &second
		}
		if rapid.Bool().Draw(t, "key") {
			h.AffinityKey = statestore.AffinityKey{1, 2, 3}
		}
		names := rapid.SliceOfN(rapid.StringMatching(`[a-z0-9-]{1,63}`), 0, handle.MaxNames).Draw(t, "names")
		for _, n := range names {
			h.Name(n)
		}
		s := c.Sign(h)
		if len(s) > handle.MaxLen {
			t.Fatalf("%d characters", len(s))
		}
		got, err := c.Verify(s, h.Session, now)
		if err != nil {
			t.Fatal(err)
		}
		if got.Second != nil && h.Second != nil && *got.Second == *h.Second {
			got.Second = h.Second
		}
		if got != *h {
			t.Fatalf("got %+v, want %+v", got, *h)
		}
		for _, n := range names {
			if !got.Names(n) {
				t.Fatalf("does not name %q", n)
			}
		}
		if got.Names("nobody at all") {
			t.Fatal("names a stranger")
		}
	})
}

func TestVerifyRefuses(t *testing.T) {
	t.Parallel()
	c := codec(t, newKey, oldKey)
	good := c.Sign(sample())
	cases := []struct {
		name, handle string
		session      string
		at           time.Time
		want         handle.Why
	}{
		{"empty", "", "s", now, handle.Forged},
		{"not base64", strings.Repeat("*", 100), "s", now, handle.Forged},
		{"too long", good + strings.Repeat("A", handle.MaxLen), "s", now, handle.Forged},
		{"cut off", good[:len(good)-4], "s", now, handle.Forged},
		{"one bit flipped", flip(good, 60), "s", now, handle.Forged},
		{"purpose changed", flip(good, 2), "s", now, handle.Forged},
		{"signed by others", codec(t, statestore.SigningKey{ID: newKey.ID, Secret: []byte("somebody else's secret")}).Sign(sample()), "s", now, handle.Forged},
		{"unknown key", codec(t, statestore.SigningKey{ID: [2]byte{9, 9}, Secret: newKey.Secret}).Sign(sample()), "s", now, handle.UnknownKey},
		{"of another session", good, "other", now, handle.OtherSession},
		{"over", good, "s", now.Add(time.Hour), handle.Expired},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := c.Verify(tc.handle, session(tc.session), tc.at)
			var bad *handle.Error
			if !errors.As(err, &bad) || bad.Why != tc.want {
				t.Fatalf("got %v, want %s", err, tc.want)
			}
			if tc.handle != "" && strings.Contains(err.Error(), tc.handle) {
				t.Fatal("the refusal contains the handle")
			}
		})
	}
}

// Case R23: a handle made before a rotation is read after it, and by a process
// that does not sign with the new key yet.
func TestRotationKeepsOldHandlesGood(t *testing.T) {
	t.Parallel()
	before, after := codec(t, oldKey), codec(t, newKey, oldKey)
	if _, err := after.Verify(before.Sign(sample()), session("s"), now); err != nil {
		t.Fatal(err)
	}
}

// Case R23: the form of a handle is pinned, since neighbouring versions of Berth
// run side by side.
func TestFormIsPinned(t *testing.T) {
	t.Parallel()
	const pinned = "AQEAAqsbrsqzwY3N3jmr9QBrSeAQAaMYXFB7AAAAAAdyyq3g2Rjh7wJM2bdnLX9CD84xQXXnM3gxgdstEdnCgPuwUmxX"
	got := codec(t, newKey).Sign(sample())
	if _, err := codec(t, newKey).Verify(pinned, session("s"), now); err != nil {
		t.Fatalf("the pinned handle is refused: %v; signing gives %s", err, got)
	}
	if got != pinned {
		t.Fatalf("signing gives %s, pinned is %s", got, pinned)
	}
}

func TestOnlyARouteHandleThatNamesTheCallerClaims(t *testing.T) {
	t.Parallel()
	for p := handle.Route; p <= handle.Degraded; p++ {
		h := sample()
		h.Purpose = p
		if got := h.Presented("i1").Named; got != (p == handle.Route) {
			t.Errorf("purpose %d: named %v", p, got)
		}
		if h.Presented("i3").Named {
			t.Errorf("purpose %d claims for a stranger", p)
		}
	}
}

func flip(s string, at int) string {
	b := []byte(s)
	if b[at] == 'A' {
		b[at] = 'B'
	} else {
		b[at] = 'A'
	}
	return string(b)
}

func FuzzVerify(f *testing.F) {
	c := codec(f, newKey)
	f.Add(c.Sign(sample()))
	f.Add("")
	f.Add("AQEAAg")
	f.Fuzz(func(t *testing.T, s string) {
		h, err := c.Verify(s, session("s"), now)
		if err == nil && c.Sign(&h) != s {
			t.Fatal("verified a handle that was not signed")
		}
	})
}

func BenchmarkSign(b *testing.B) {
	c, h := codec(b, newKey), sample()
	buf := make([]byte, 0, handle.MaxLen)
	b.ReportAllocs()
	for b.Loop() {
		buf = c.AppendSigned(buf[:0], h)
	}
}

func BenchmarkVerify(b *testing.B) {
	c := codec(b, newKey)
	s, d := c.Sign(sample()), session("s")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Verify(s, d, now); err != nil {
			b.Fatal(err)
		}
	}
}
