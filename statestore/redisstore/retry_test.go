package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"berth/integration/redistest"
	"berth/statestore"
)

// behind opens a store whose connections pass a proxy, and the same key space
// beside it.
func behind(t *testing.T, addr string) (*Store, *redistest.Proxy, *Store) {
	t.Helper()
	proxy := redistest.NewProxy(t, addr)
	s := open(t, "redis://"+proxy.Addr+"?read_timeout=300ms", func(o *Options) { o.Patience = time.Minute })
	return s, proxy, reopen(t, "redis://"+addr, s)
}

func allTexts(t *testing.T, s *Store, key statestore.SessionKey) (texts []string) {
	t.Helper()
	r, err := s.Load(t.Context(), key, 0)
	if err != nil {
		t.Fatal(err)
	}
	for turn, err := range r.Turns {
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(turn.Value))
	}
	return texts
}

func equalTexts(t *testing.T, got []string, want ...string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("turns %q, want %q", got, want)
	}
}

// Case T01: a client that repeats by itself what timed out stores a turn twice.
func TestLostReply(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, proxy, _ := behind(t, server.Addr)
	w := newWriter(s, "lost")
	w.append(t, []byte("one"))
	struck := proxy.LoseReply("op-2")
	r := w.append(t, []byte("two"))
	<-struck
	if r.Version != 2 || !r.Duplicate {
		t.Fatalf("receipt %+v, want version 2, found on the repetition", r)
	}
	equalTexts(t, allTexts(t, s, w.key), "one", "two")
}

// Case T01, second half: the reply comes after the caller has stopped waiting.
func TestLateReply(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, proxy, _ := behind(t, server.Addr)
	w := newWriter(s, "late")
	w.append(t, []byte("one"))
	struck := proxy.DelayReply("op-2", time.Second)
	r := w.append(t, []byte("two"))
	<-struck
	if r.Version != 2 {
		t.Fatalf("receipt %+v, want version 2", r)
	}
	w.append(t, []byte("three"))
	equalTexts(t, allTexts(t, s, w.key), "one", "two", "three")
}

// A large write whose last call was lost is linked once, and its second copy of
// chunks is removed.
func TestLostReplyOfStagedWrite(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, proxy, beside := behind(t, server.Addr)
	w := newWriter(s, "staged")
	big := string(noise(300_000))
	w.append(t, []byte("one"))
	for n, fn := range []string{appendFn, stageFn, "HSET"} {
		struck := proxy.LoseReply(fn)
		if fn == "HSET" {
			struck = proxy.LoseReply("hset")
		}
		w.append(t, []byte(big))
		<-struck
		if got := allTexts(t, beside, w.key); len(got) != n+2 || got[n+1] != big {
			t.Fatalf("after a lost reply of %s: %d turns", fn, len(got))
		}
	}
	chunks := s.client.HLen(t.Context(), s.keys.session(w.key.Digest())[keyLog]).Val()
	if want := int64(3 * len(chunkSizes(len(big)))); chunks > want {
		t.Fatalf("%d chunks are stored, at most %d are linked", chunks, want)
	}
}

// A change that was made and not answered is made once, and the repetition is
// told what the first was not.
func TestEveryChangeIsMadeOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, proxy, beside := behind(t, server.Addr)
	ctx := t.Context()
	w := newWriter(s, "once")
	w.append(t, []byte("one"))
	if err := s.PutPlacements(ctx, w.key, w.by, []byte(`[{"tier":"gpu"}]`)); err != nil {
		t.Fatal(err)
	}
	other := statestore.Owner{Instance: "i2", Incarnation: "fedcba9876543210"}
	job := statestore.JobRef{ID: "j1", Token: 1}
	look := func() statestore.View {
		v, err := beside.Lookup(ctx, w.key)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	present := func() *statestore.Presented { return &statestore.Presented{Floor: look().Floor(), Named: true} }
	lose := func(fn string) { proxy.LoseReply(fn) }
	steps := []struct {
		fn  string
		act func() error
		ok  func(before, after statestore.View) bool
	}{
		{claimFn, func() error {
			c, err := s.Claim(ctx, statestore.Claim{Key: w.key, By: other, Handle: present(), Lifetimes: lives})
			if err == nil && !c.Changed {
				err = errors.New("the claim says that it changed nothing")
			}
			return err
		}, func(before, after statestore.View) bool {
			return after.Owner == other && len(after.Changes) == len(before.Changes)+1
		}},
		{moveFn, func() error {
			v := look()
			_, err := s.Move(ctx, statestore.Move{Key: w.key, From: other, Epoch: v.Epoch, To: w.by, Job: job, Lifetimes: lives})
			return err
		}, func(before, after statestore.View) bool {
			return after.Owner == w.by && len(after.Changes) == len(before.Changes)+1
		}},
		{finishFn, func() error {
			_, err := s.Finish(ctx, statestore.Finish{Key: w.key, By: w.by, Handle: *present(), Lifetimes: lives})
			return err
		}, func(before, after statestore.View) bool {
			return after.Owner.IsZero() && len(after.Changes) == len(before.Changes)+1
		}},
		{deleteFn, func() error {
			e, err := s.Delete(ctx, statestore.Delete{Key: w.key, Handle: present(), Lifetimes: lives})
			if err == nil && (!e.Existed || len(e.Placements) != 1) {
				err = fmt.Errorf("the delete says %+v", e)
			}
			return err
		}, func(before, after statestore.View) bool {
			return !after.Exists && after.Tombstone.Reason == statestore.Deleted
		}},
	}
	for _, step := range steps {
		before := look()
		lose(step.fn)
		if err := step.act(); err != nil {
			t.Fatalf("%s: %v", step.fn, err)
		}
		if after := look(); !step.ok(before, after) {
			t.Fatalf("%s left %+v", step.fn, after)
		}
	}
}

// The same for the fleet: a commit is remembered by its number.
func TestEveryFleetChangeIsMadeOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, proxy, beside := behind(t, server.Addr)
	ctx := t.Context()
	lose := func() { proxy.LoseReply(commitFn) }

	lose()
	if _, existed, err := s.CreateJob(ctx, statestore.Job{ID: "j1", Kind: "drain"}, time.Hour); err != nil || existed {
		t.Fatalf("create: existed %v, %v", existed, err)
	}
	lose()
	if j, err := s.AcquireJob(ctx, "j1", "a", time.Hour); err != nil || j.Attempts != 1 || j.Token != 1 {
		t.Fatalf("acquire: %+v, %v", j, err)
	}
	lose()
	if l, err := s.AcquireLease(ctx, "health", "a", time.Hour); err != nil || l.Token != 1 {
		t.Fatalf("acquire lease: %+v, %v", l, err)
	}
	lose()
	if p, err := s.PutPolicy(ctx, "llama", []byte("{}")); err != nil || p.Version != 1 {
		t.Fatalf("put policy: %+v, %v", p, err)
	}
	spec := statestore.InstanceSpec{ID: "i1", Pool: "llama", Incarnation: "x", Address: "127.0.0.1:1"}
	if _, err := s.Register(ctx, spec); err != nil {
		t.Fatal(err)
	}
	lose()
	if err := s.Deregister(ctx, statestore.Owner{Instance: "i1", Incarnation: "x"}); err != nil {
		t.Fatalf("deregister: %v", err)
	}
	if v, err := beside.FleetView(ctx); err != nil || len(v.Instances) != 0 {
		t.Fatalf("fleet %+v, %v", v, err)
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	patient := open(t, server.URL)
	w := newWriter(patient, "outcomes")
	w.append(t, []byte("one"))
	a := statestore.Append{
		Key: w.key, By: w.by, Handle: w.handle, Op: "op-x", Lifetimes: lives,
		Turns: []statestore.Turn{{Type: statestore.TurnJSON, Value: []byte("{}")}},
	}
	// What has to be answered is asked with patience, what must not be without.
	hasty := reopen(t, server.URL+"?read_timeout=500ms&dial_timeout=500ms", patient)
	hasty.opts.Patience = 50 * time.Millisecond

	server.Pause(t)
	var unknown *statestore.OutcomeUnknownError
	if _, err := hasty.Append(t.Context(), a); !errors.As(err, &unknown) {
		t.Fatalf("a store that does not answer: %v, want the outcome to be unknown", err)
	}
	if _, err := hasty.Lookup(t.Context(), w.key); !errors.Is(err, statestore.ErrUnavailable) {
		t.Fatalf("a read of a store that does not answer: %v", err)
	}
	var gaveUp error
	for tries := 0; !errors.As(gaveUp, &unknown); tries++ { // some may not even have sent it
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, gaveUp = patient.Append(ctx, a)
		cancel()
		if gaveUp == nil || tries > 100 {
			t.Fatalf("a caller that gave up: %v", gaveUp)
		}
	}
	if !errors.Is(gaveUp, context.DeadlineExceeded) {
		t.Fatalf("a caller that gave up: %v", gaveUp)
	}
	server.Resume(t)

	if r, err := patient.Append(t.Context(), a); err != nil || r.Version != 2 {
		t.Fatalf("the same op once the store answers: %+v, %v", r, err)
	}

	server.Kill9(t)
	a.Op = "op-y"
	if _, err := hasty.Append(t.Context(), a); !errors.Is(err, statestore.ErrUnavailable) || errors.As(err, &unknown) {
		t.Fatalf("a store that is not there: %v, want it to be unavailable", err)
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	dial := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	read := &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}
	for err, want := range map[error]fault{
		dial: refusedForNow, read: unanswered, context.DeadlineExceeded: unanswered,
		errNotSent{context.Canceled}:                                         refusedForNow,
		serverError("READONLY You can't write against a read only replica."): refusedForNow,
		serverError("LOADING Redis is loading the dataset in memory"):        refusedForNow,
		serverError("TRYAGAIN Multiple keys request during rehashing"):       refusedForNow,
		serverError("ERR max number of clients reached"):                     refusedForNow,
		serverError("OOM command not allowed"):                               noMemory,
		serverError("WRONGTYPE Operation against a key"):                     refused,
		serverError("NOPERM this user has no permissions"):                   refused,
	} {
		if got := classify(fmt.Errorf("wrapped: %w", err)); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
}

type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}
