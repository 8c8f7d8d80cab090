package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"berth/integration/redistest"
	"berth/statestore"
)

// Case T09: a killed server has every write that it acknowledged as fsynced.
func TestKilledServerKeepsWhatItAcknowledged(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Fsync("always"))
	s := open(t, server.URL+"?read_timeout=500ms", func(o *Options) { o.Patience = time.Millisecond })
	patient := reopen(t, server.URL, s)
	const writers = 8
	acked := make([][]string, writers)
	for round := range 10 {
		var running sync.WaitGroup
		stop := make(chan struct{})
		for i := range writers {
			running.Go(func() {
				w := newWriter(s, fmt.Sprintf("%d/%d", round, i))
				acked[i] = nil
				for {
					select {
					case <-stop:
						return
					default:
					}
					value := fmt.Sprintf("turn %d", w.n)
					w.n++
					r, err := s.Append(t.Context(), statestore.Append{
						Key: w.key, By: w.by, Handle: w.handle, Op: value, Lifetimes: lives,
						Turns: []statestore.Turn{{Type: statestore.TurnBytes, Value: []byte(value)}},
					})
					if err != nil {
						return
					}
					if r.Durability.Level != statestore.LevelFsynced {
						t.Errorf("acknowledged as %v", r.Durability)
					}
					w.handle.Floor = r.Floor
					acked[i] = append(acked[i], value)
				}
			})
		}
		kill := time.NewTimer(time.Duration(5+round*12) * time.Millisecond)
		<-kill.C
		server.Kill9(t)
		close(stop)
		running.Wait()
		server.Restart(t)
		for i := range writers {
			got := allTexts(t, patient, newWriter(s, fmt.Sprintf("%d/%d", round, i)).key)
			if len(got) < len(acked[i]) || fmt.Sprint(got[:len(acked[i])]) != fmt.Sprint(acked[i]) {
				t.Fatalf("round %d: %d turns were acknowledged, %d are there", round, len(acked[i]), len(got))
			}
		}
	}
}

func TestDurabilityIsWhatTheServerConfirms(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]statestore.Level{"always": statestore.LevelFsynced, "everysec": statestore.LevelMemory} {
		t.Run(policy, func(t *testing.T) {
			server := redistest.Start(t, redistest.Fsync(policy))
			s := open(t, server.URL)
			r := newWriter(s, "durable").append(t, []byte("one"))
			d, err := s.Describe(t.Context())
			if err != nil || d.Durability != want || r.Durability.Level != want {
				t.Fatalf("described as %v, answered as %v, want %v (%v)", d.Durability, r.Durability, want, err)
			}
			if warned := len(d.Warnings) > 0; warned == (policy == "always") {
				t.Fatalf("warnings %q", d.Warnings)
			}
		})
	}
}

// A server that takes over may have other settings: a new connection tells.
func TestWeakerServerIsNoticedOnConnect(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Fsync("always"))
	s := open(t, server.URL)
	w := newWriter(s, "weaker")
	if r := w.append(t, []byte("one")); r.Durability.Level != statestore.LevelFsynced {
		t.Fatalf("acknowledged as %v", r.Durability)
	}
	client := server.Client(t)
	if err := client.ConfigSet(t.Context(), "appendfsync", "everysec").Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.ClientKillByFilter(t.Context(), "SKIPME", "yes").Err(); err != nil {
		t.Fatal(err)
	}
	if r := w.append(t, []byte("two")); r.Durability.Level != statestore.LevelMemory {
		t.Fatalf("acknowledged as %v after the setting changed", r.Durability)
	}
	if err := client.ConfigSet(t.Context(), "appendfsync", "always").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sweep(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if r := w.append(t, []byte("three")); r.Durability.Level != statestore.LevelFsynced {
		t.Fatalf("acknowledged as %v after a sweep asked again", r.Durability)
	}
}

// A new connection that does not say its settings in time is not used, and says
// nothing of the server.
func TestUnansweredQuestionChangesNoPromise(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Fsync("always"))
	for name, harm := range map[string]func(*redistest.Proxy) <-chan struct{}{
		"late": func(p *redistest.Proxy) <-chan struct{} { return p.DelayReply("append*", time.Second) },
		"lost": func(p *redistest.Proxy) <-chan struct{} { return p.LoseReply("append*") },
		"cut":  func(p *redistest.Proxy) <-chan struct{} { return p.CutReply("append*", 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewProxy(t, server.Addr)
			s := open(t, "redis://"+proxy.Addr)
			w := newWriter(s, "asked")
			if r := w.append(t, []byte("one")); r.Durability.Level != statestore.LevelFsynced {
				t.Fatalf("acknowledged as %v", r.Durability)
			}
			struck := harm(proxy)
			proxy.CutAll()
			// Routes give up long before the answer comes, the first ones perhaps even
			// before the question is asked.
			for asked := false; !asked; {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				_, _ = s.Lookup(ctx, w.key) // mostly fails
				cancel()
				select {
				case <-struck:
					asked = true
				default:
				}
			}
			if r := w.append(t, []byte("two")); r.Durability.Level != statestore.LevelFsynced {
				t.Fatalf("acknowledged as %v after a question without an answer", r.Durability)
			}
		})
	}
}

// A store that is opened while its server does not answer asks again, rather than
// promise less for good.
func TestUnansweredQuestionAtOpenIsAskedAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Fsync("always"))
	proxy := redistest.NewProxy(t, server.Addr)
	proxy.CutReply("append*", 0)
	proxy.LoseReply("append*")
	s := open(t, "redis://"+proxy.Addr+"?read_timeout=100ms", func(o *Options) { o.Patience = time.Minute })
	if r := newWriter(s, "asked").append(t, []byte("one")); r.Durability.Level != statestore.LevelFsynced {
		t.Fatalf("acknowledged as %v", r.Durability)
	}
}

// replicated starts a primary with replicas that have caught up.
func replicated(t *testing.T, n int) (primary *redistest.Process, replicas []*redistest.Process) {
	t.Helper()
	primary = redistest.Start(t)
	host, port := splitAddr(t, primary.Addr)
	for range n {
		r := redistest.Start(t)
		replicas = append(replicas, r)
		if err := r.Client(t).Do(t.Context(), "replicaof", host, port).Err(); err != nil {
			t.Fatal(err)
		}
	}
	client := primary.Client(t)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 6000 {
		if online(t, client) == n {
			return primary, replicas
		}
		<-tick.C
	}
	t.Fatalf("%d of %d replicas are online", online(t, client), n)
	return nil, nil
}

func online(t *testing.T, client *redis.Client) (n int) {
	t.Helper()
	info, err := client.InfoMap(t.Context(), "replication").Result()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		var state string
		line := info["Replication"][fmt.Sprint("slave", i)]
		if _, err := fmt.Sscanf(line, "ip=127.0.0.1,port=%s", &state); err == nil && strings.Contains(line, "state=online") {
			n++
		}
	}
	return n
}

func TestReplicatedWritesWaitForEveryReplica(t *testing.T) {
	t.Parallel()
	primary, replicas := replicated(t, 2)
	s := open(t, primary.URL+"?read_timeout=1m")
	w := newWriter(s, "replicated")
	need := statestore.Requirement{Level: statestore.LevelReplicated, Wait: time.Minute}
	req := statestore.Append{
		Key: w.key, By: w.by, Op: "op-1", Lifetimes: lives, Require: need,
		Turns: []statestore.Turn{{Type: statestore.TurnBytes, Value: []byte("one")}},
	}
	want := statestore.Durability{Level: statestore.LevelReplicated, Replicas: 2, Of: 2}
	r, err := s.Append(t.Context(), req)
	if err != nil || r.Durability != want {
		t.Fatalf("%v, %v, want %v", r.Durability, err, want)
	}

	replicas[1].Pause(t)
	req.Op, req.Handle.Floor, req.Require.Wait = "op-2", r.Floor, 200*time.Millisecond
	var short *statestore.NotDurableError
	one := statestore.Durability{Level: statestore.LevelReplicated, Replicas: 1, Of: 2}
	// The other replica may take longer than one wait.
	for tries := 0; short == nil || short.Reached != one; tries++ {
		if _, err = s.Append(t.Context(), req); !errors.As(err, &short) || short.Receipt.Version != 2 || tries > 100 {
			t.Fatalf("with a silent replica: %v", err)
		}
	}
	claim := statestore.Claim{Key: w.key, By: w.by, Lifetimes: lives, Require: req.Require}
	if _, err := s.Claim(t.Context(), claim); !errors.As(err, &short) {
		t.Fatalf("a claim by the owner with a silent replica: %v", err)
	}

	replicas[1].Resume(t)
	req.Require = need
	// Repeating the op waits again, and covers what the first copy wrote.
	if r, err = s.Append(t.Context(), req); err != nil || r.Durability != want || !r.Duplicate {
		t.Fatalf("repeated: %+v, %v", r, err)
	}
}

func TestRequirementsThatNothingMeets(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t).URL)
	for _, level := range []statestore.Level{statestore.LevelFsynced, statestore.LevelReplicated} {
		w := newWriter(s, level.String())
		_, err := s.Append(t.Context(), statestore.Append{
			Key: w.key, By: w.by, Op: "op-1", Lifetimes: lives, Require: statestore.Requirement{Level: level, Wait: time.Second},
			Turns: []statestore.Turn{{Type: statestore.TurnBytes, Value: []byte("one")}},
		})
		var short *statestore.NotDurableError
		if !errors.As(err, &short) || short.Reached != (statestore.Durability{Level: statestore.LevelMemory}) {
			t.Errorf("%v on one server in memory: %v", level, err)
		}
		equalTexts(t, allTexts(t, s, w.key), "one")
	}
}

func splitAddr(t *testing.T, addr string) (host, port string) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return host, port
}
