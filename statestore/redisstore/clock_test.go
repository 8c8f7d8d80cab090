package redisstore

import (
	"errors"
	"testing"
	"time"

	"berth/integration/redistest"
	"berth/statestore"
)

// TestLeasesEndAlthoughTheClockWentBack is case T16: Redis's clock is set back by ten
// minutes. A holder that lives keeps its lease, and one that died holds it for one
// more lease, not for ten minutes.
func TestLeasesEndAlthoughTheClockWentBack(t *testing.T) {
	t.Parallel()
	const ttl, back = time.Minute, -10 * time.Minute
	type take func(s *Store, holder string) (token uint64, err error)
	leader := func(s *Store, holder string) (uint64, error) {
		l, err := s.AcquireLease(t.Context(), "leader", holder, ttl)
		return l.Token, err
	}
	for name, c := range map[string]struct{ acquire, renew take }{
		"a lease by name": {acquire: leader, renew: leader},
		"a job": {
			acquire: func(s *Store, holder string) (uint64, error) {
				j, err := s.AcquireJob(t.Context(), "drain-1", holder, ttl)
				return j.Token, err
			},
			renew: func(s *Store, _ string) (uint64, error) {
				j, err := s.SaveJob(t.Context(), statestore.JobRef{ID: "drain-1", Token: 1}, statestore.JobRunning, nil, ttl)
				return j.Token, err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, redistest.Standalone(t).URL)
			work := statestore.Job{ID: "drain-1", Kind: "drain", Pool: "p", Spec: []byte("{}")}
			if _, _, err := s.CreateJob(t.Context(), work, time.Hour); err != nil {
				t.Fatal(err)
			}
			pass := func(d time.Duration) { s.skew.Add(d.Milliseconds()) }
			held := func(when string) {
				t.Helper()
				var by *statestore.LeaseHeldError
				if _, err := c.acquire(s, "two"); !errors.As(err, &by) || by.Holder != "one" {
					t.Fatalf("%s: another is answered %v", when, err)
				}
			}
			token, err := c.acquire(s, "one")
			if err != nil {
				t.Fatal(err)
			}

			pass(back)
			held("at once")
			pass(ttl / 2)
			held("after half a lease")
			if renewed, err := c.renew(s, "one"); err != nil || renewed != token {
				t.Fatalf("the holder renewed token %d as %d, %v", token, renewed, err)
			}
			pass(ttl / 2)
			held("after the renewal")

			pass(back)
			held("set back again")
			pass(ttl)
			if got, err := c.acquire(s, "two"); err != nil || got <= token {
				t.Errorf("one lease after the clock went back: token %d, %v", got, err)
			}
		})
	}
}
