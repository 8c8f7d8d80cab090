package boltstore

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"berth/statestore"
)

func TestSecondOpenIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	s := openAt(t, path, Options{})
	_, err := Open(t.Context(), path, Options{})
	if !errors.Is(err, statestore.ErrInUse) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	openAt(t, path, Options{})
}

func TestOpenMakesAPrivateFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new", "directory", "store")
	openAt(t, path, Options{})
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("conversations lie in a file of mode %v, %v", info.Mode(), err)
	}
}

// A file that lost its bytes opens as a new store, and whoever starts it is told. One
// that Open makes itself, or that holds a store, is nothing to speak of.
func TestAnEmptyFileIsSpokenOf(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	warned := func() []string {
		t.Helper()
		s := openAt(t, path, Options{})
		about, err := s.Describe(t.Context())
		if err := errors.Join(err, s.Close()); err != nil {
			t.Fatal(err)
		}
		return about.Warnings
	}
	for _, when := range []string{"new", "there"} {
		if got := warned(); len(got) != 0 {
			t.Errorf("a store that is %s: %q", when, got)
		}
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if got := warned(); len(got) != 1 || !strings.Contains(got[0], path+" was there with 0 bytes") {
		t.Errorf("a store that lost its bytes: %q", got)
	}
}

func TestForeignFilesAreRefused(t *testing.T) {
	t.Parallel()
	write := func(b []byte) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	asBolt := func(fn func(*bolt.Tx) error) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			db, err := bolt.Open(path, 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(db.Update(fn), db.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
	cases := []struct {
		name string
		make func(t *testing.T, path string)
		says string
	}{
		{"text", write([]byte(strings.Repeat("not a database\n", 1000))), "damaged"},
		{"zeros", write(make([]byte, 64<<10)), "damaged"},
		{"another program's file", asBolt(func(tx *bolt.Tx) error {
			_, err := tx.CreateBucket([]byte("theirs"))
			return err
		}), "another program's"},
		{"a later format", asBolt(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucket(bMeta)
			if err != nil {
				return err
			}
			return b.Put(kFormat, be64(format+1))
		}), "format is 2"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "store")
			c.make(t, path)
			s, err := Open(t.Context(), path, Options{})
			if err == nil {
				s.Close()
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("it says %q", err)
			}
		})
	}
}

// A turn that changed on the disk is an error that names it, and never bytes that
// nobody wrote.
func TestDamagedTurnIsNoticed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	s := openAt(t, path, Options{})
	needle := []byte("a turn that can be found in the file")
	says(t, s, "a", "op1", []byte("the first"))
	says(t, s, "a", "op2", needle)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.ReplaceAll(file, needle, bytes.ToUpper(needle)), 0o600); err != nil {
		t.Fatal(err)
	}
	s = openAt(t, path, Options{})
	r, err := s.Load(t.Context(), keyOf("a"), 0)
	if err != nil {
		t.Fatal(err)
	}
	var read int
	for turn, err := range r.Turns {
		if err == nil {
			read++
			if turn.N != 0 {
				t.Errorf("turn %d was read as %q", turn.N, turn.Value)
			}
			continue
		}
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "turn 1") {
			t.Errorf("got %v", err)
		}
	}
	if read != 1 {
		t.Errorf("%d turns were read before the damage", read)
	}
}

// A file that lost its end, as after a bad copy, or a page is an error and no
// crash. Pages that hold the middle of a turn, or nothing, are not noticed here.
func TestDamagedPagesAreNoticed(t *testing.T) {
	t.Parallel()
	page := os.Getpagesize()
	path := filepath.Join(t.TempDir(), "store")
	s := openAt(t, path, Options{})
	for _, id := range []string{"a", "b", "c", "d"} {
		says(t, s, id, "op1", noiseOf(9000))
		says(t, s, id, "op2", noiseOf(100))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	opens := func(file []byte) error {
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), path, Options{})
		if err == nil {
			err = s.Close()
		}
		return err
	}
	if err := opens(whole[:4*page]); !errors.Is(err, ErrDamaged) {
		t.Errorf("cut off: %v", err)
	}
	noticed := 0
	for n := 2; n < len(whole)/page; n++ {
		file := bytes.Clone(whole)
		clear(file[n*page : n*page+16])
		switch err := opens(file); {
		case errors.Is(err, ErrDamaged):
			noticed++
		case err != nil:
			t.Errorf("page %d: %v", n, err)
		}
	}
	// At least the root, and a leaf of each of sessions, turns, owned and due.
	if noticed < 5 {
		t.Errorf("%d lost pages were noticed", noticed)
	}
}

func TestEveryCallAfterCloseIsUnavailable(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	says(t, s, "a", "op1", []byte("x"))
	key, ctx := keyOf("a"), t.Context()
	h := present(t, s, "a")
	reading, err := s.Load(ctx, key, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	second := func(_ any, err error) error { return err }
	third := func(_, _ any, err error) error { return err }
	inLoop := func() (last error) {
		for _, err := range reading.Turns {
			last = err
		}
		return last
	}
	inIndex := func() (last error) {
		for _, err := range s.SessionsOf(ctx, "default", "i1") {
			last = err
		}
		return last
	}
	calls := map[string]error{
		"Lookup":        second(s.Lookup(ctx, key)),
		"Load":          second(s.Load(ctx, key, 0)),
		"Turns":         inLoop(),
		"Append":        second(s.Append(ctx, statestore.Append{Key: key, By: i1, Op: "op2", Handle: h})),
		"Replace":       second(s.Replace(ctx, statestore.Replace{Key: key, By: i1, Op: "op2", Handle: h})),
		"Claim":         second(s.Claim(ctx, statestore.Claim{Key: key, By: i2, Handle: &h})),
		"Move":          second(s.Move(ctx, statestore.Move{Key: key})),
		"Reserve":       s.Reserve(ctx, statestore.Reserve{Key: key}),
		"Finish":        second(s.Finish(ctx, statestore.Finish{Key: key, By: i1, Handle: h})),
		"Delete":        second(s.Delete(ctx, statestore.Delete{Key: key})),
		"Bind":          second(s.Bind(ctx, statestore.Bind{Key: key, Owner: i1})),
		"PutPlacements": s.PutPlacements(ctx, key, i1, []byte("[]")),
		"SessionsOf":    inIndex(),
		"CountSessions": second(s.CountSessions(ctx)),
		"List":          third(s.List(ctx, statestore.SessionQuery{Limit: 1})),
		"Sweep":         second(s.Sweep(ctx, 1)),
		"Fence":         s.Fence(ctx, statestore.Fence{}),
		"AcquireLease":  second(s.AcquireLease(ctx, "l", "h", time.Second)),
		"ReleaseLease":  s.ReleaseLease(ctx, statestore.Lease{}),
		"Register":      second(s.Register(ctx, statestore.InstanceSpec{ID: "i1", Pool: "p", Incarnation: "x"})),
		"Heartbeat":     second(s.Heartbeat(ctx, i1, statestore.Heartbeat{})),
		"Heartbeats":    second(s.Heartbeats(ctx, nil)),
		"Deregister":    s.Deregister(ctx, i1),
		"SetLifecycle":  second(s.SetLifecycle(ctx, i1, statestore.LifecycleChange{})),
		"SetVerdicts":   s.SetVerdicts(ctx, statestore.Lease{}, nil),
		"SetOverride":   second(s.SetOverride(ctx, "i1", statestore.OverrideChange{})),
		"FleetView":     second(s.FleetView(ctx)),
		"CreateJob":     third(s.CreateJob(ctx, statestore.Job{ID: "j"}, time.Second)),
		"AcquireJob":    second(s.AcquireJob(ctx, "j", "h", time.Second)),
		"SaveJob":       second(s.SaveJob(ctx, statestore.JobRef{ID: "j"}, statestore.JobRunning, nil, time.Second)),
		"ControlJob":    second(s.ControlJob(ctx, "j", statestore.ControlPause)),
		"Job":           third(s.Job(ctx, "j")),
		"Jobs":          third(s.Jobs(ctx)),
		"PurgeJobs":     second(s.PurgeJobs(ctx, 0)),
		"PutTasks":      s.PutTasks(ctx, nil, 0),
		"LeaseTasks":    third(s.LeaseTasks(ctx, i1, 1, time.Second)),
		"FinishTask":    second(s.FinishTask(ctx, i1, "t", statestore.TaskAnswer{Result: statestore.TaskDone})),
		"ReadTasks":     second(s.ReadTasks(ctx, []string{"t"})),
		"TasksOf":       second(s.TasksOf(ctx, "j")),
		"DropTasks":     s.DropTasks(ctx, "j"),
		"PutPolicy":     second(s.PutPolicy(ctx, "p", nil)),
		"SigningKeys":   second(s.SigningKeys(ctx)),
		"Watch":         second(s.Watch(ctx)),
		"Describe":      second(s.Describe(ctx)),
	}
	for call, err := range calls {
		if !errors.Is(err, statestore.ErrUnavailable) {
			t.Errorf("%s after Close: %v", call, err)
		}
	}
}

// Close while everybody writes, reads and watches: each gets an answer, and no
// goroutine stays.
func TestCloseUnderLoad(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	s := openTest(t, Options{})
	events, err := s.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const writers = 8
	ended := make(chan error, writers)
	begun := make(chan struct{}, writers)
	for i := range writers {
		go func() {
			id := strings.Repeat("s", i+1)
			for n := 0; ; n++ {
				if _, err := s.Delete(context.WithoutCancel(t.Context()), statestore.Delete{Key: keyOf(id), Lifetimes: lives}); err != nil {
					ended <- err
					return
				}
				if _, err := s.Lookup(context.WithoutCancel(t.Context()), keyOf(id)); err != nil {
					ended <- err
					return
				}
				if n == 3 {
					begun <- struct{}{}
				}
			}
		}()
	}
	for range writers {
		<-begun
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range writers {
		if err := <-ended; !errors.Is(err, statestore.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	}
	for range events { //nolint:revive // ends because the store did
	}
}
