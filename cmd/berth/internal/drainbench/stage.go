package drainbench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"berth/client"
	"berth/cmd/berth/internal/pause"
	"berth/cmd/berth/internal/simworker"
)

// stage is the simulated workers of one pool.
type stage struct {
	c       Config
	berth   client.Config
	ids     []string // the first is the source
	workers map[string]*simworker.Worker
	stop    context.CancelFunc
	beating *errgroup.Group
}

const (
	cacheBlocks = 1 << 16
	seatedBy    = 32 // clients that begin the sessions
)

// newStage starts the workers, and returns when all of them take sessions.
func newStage(ctx context.Context, c Config) (*stage, error) {
	s := &stage{c: c, workers: map[string]*simworker.Worker{}}
	s.berth = client.Config{BaseURLs: []string{c.URL}, AttemptTimeout: 30 * time.Second, HTTPClient: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 256},
	}}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.beating, running = errgroup.WithContext(running)
	for i := range c.Targets + 1 {
		id := fmt.Sprintf("bench-%d", i)
		w, err := simworker.New(simworker.Config{
			Berth: s.berth, CacheBlocks: cacheBlocks,
			Instance: client.Instance{ID: id, Pool: c.Pool, Address: fmt.Sprintf("127.0.0.1:%d", 9000+i)},
		})
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		if err := w.Register(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("register %s: %w", id, err), s.close())
		}
		s.ids, s.workers[id] = append(s.ids, id), w
		s.beating.Go(func() error {
			if err := w.Run(running); err != nil && running.Err() == nil {
				return fmt.Errorf("worker %s: %w", id, err)
			}
			return nil
		})
	}
	for ready := false; !ready; {
		if err := pause.For(ctx, 20*time.Millisecond); err != nil {
			return nil, errors.Join(err, s.close())
		}
		ready = !slices.ContainsFunc(s.ids, func(id string) bool { return s.workers[id].State() != "ready" })
	}
	return s, nil
}

func (s *stage) close() error {
	s.stop()
	return s.beating.Wait()
}

func (s *stage) key(id string) client.SessionKey { return client.SessionKey{Pool: s.c.Pool, ID: id} }

func seated(i int) string { return fmt.Sprintf("seated-%d", i) }

// seat begins all sessions on the source, of one turn each.
func (s *stage) seat(ctx context.Context) error {
	routes, err := client.NewGateway(s.berth)
	if err != nil {
		return fmt.Errorf("make a gateway: %w", err)
	}
	var others []client.Exclusion
	for _, id := range s.ids[1:] {
		others = append(others, client.Exclusion{Instance: id, Result: client.ResultBusy})
	}
	var done atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(seatedBy)
	for i := range s.c.Sessions {
		g.Go(func() error {
			key := s.key(seated(i))
			route, err := routes.Route(ctx, client.RouteRequest{Session: key, Exclude: others})
			if err != nil {
				return fmt.Errorf("route: %w", err)
			}
			if _, err := s.workers[s.ids[0]].Serve(ctx, request(key, route, turnOf(seated(i), 0))); err != nil {
				return err
			}
			s.step("beginning sessions", int(done.Add(1)), s.c.Sessions)
			return nil
		})
	}
	return g.Wait()
}

func (s *stage) step(what string, done, total int) {
	if s.c.Step != nil {
		s.c.Step(what, done, total)
	}
}

// turnOf is the n-th turn of a session, which no other is equal to.
func turnOf(session string, n int) client.Turn {
	value, _ := json.Marshal(map[string]any{"session": session, "turn": n}) // always marshals
	t := client.JSON(value)
	t.Tokens = 512
	return t
}

func request(key client.SessionKey, route *client.Route, turn client.Turn) simworker.Request {
	return simworker.Request{
		Session: key, Hint: route.Hint(), Op: string(turn.Value), Turns: []client.Turn{turn},
		Prompt: func(stored []client.Turn) []uint64 { return make([]uint64, 1+len(stored)) },
	}
}

// drained is how one drain went.
type drained struct {
	sessions, prewarmed, offloaded int

	moved, safe time.Duration // from the request
	seen        []sighting
}

// sighting is how many sessions were settled at one moment.
type sighting struct {
	at   time.Duration
	done int
}

// rate is how many sessions a second left between the first tenth and the last, where
// a pace rules: the last to leave are those that wait for their turns.
func (d *drained) rate() float64 {
	from, to := sighting{}, sighting{}
	for _, s := range d.seen {
		if 10*s.done <= d.sessions {
			from = s
		}
		if 10*s.done <= 9*d.sessions {
			to = s
		}
	}
	if to.at <= from.at {
		return 0
	}
	return float64(to.done-from.done) / (to.at - from.at).Seconds()
}

type job struct {
	ID       string `json:"id"`
	State    string `json:"state"`
	Progress struct {
		Total     int            `json:"total"`
		Moved     int            `json:"moved"`
		Prewarmed int            `json:"prewarmed"`
		Offloaded int            `json:"offloaded"`
		Skipped   map[string]int `json:"skipped"`
		Instances map[string]struct {
			Sessions int `json:"sessions"`
		} `json:"instances"`
	} `json:"progress"`
}

func (j *job) left() int {
	left := j.Progress.Total - j.Progress.Moved
	for _, n := range j.Progress.Skipped {
		left -= n
	}
	return left
}

// drain drains an instance, and follows the job to its end.
func (s *stage) drain(ctx context.Context, t *traffic, id string, pace float64) (d drained, err error) {
	order := map[string]any{
		"instances": []string{id}, "in_flight_grace_ms": 2000,
		"prewarm": map[string]any{"idle_below_ms": s.c.IdleBelow.Milliseconds()},
		"pace":    map[string]any{"sessions_per_s": pace, "concurrency": s.c.Concurrency, "per_target": s.c.PerTarget},
	}
	began := time.Now()
	var j job
	if err := s.call(ctx, http.MethodPost, "/v1/drains", order, &j); err != nil {
		return d, err
	}
	t.closed(id)
	what := "draining " + id
	for d.moved == 0 || d.safe == 0 {
		if err := pause.For(ctx, 10*time.Millisecond); err != nil {
			return d, err
		}
		if err := s.call(ctx, http.MethodGet, "/v1/jobs/"+url.PathEscape(j.ID), nil, &j); err != nil {
			return d, err
		}
		d.seen = append(d.seen, sighting{time.Since(began), j.Progress.Total - j.left()})
		s.step(what, j.Progress.Total-j.left(), j.Progress.Total)
		if d.moved == 0 && j.Progress.Total > 0 && j.left() == 0 {
			d.moved, d.sessions = time.Since(began), j.Progress.Moved
			d.prewarmed, d.offloaded = j.Progress.Prewarmed, j.Progress.Offloaded
		}
		switch j.State {
		case "succeeded":
			d.safe = time.Since(began)
		case "partial", "failed", "cancelled":
			return d, fmt.Errorf("drain of %s ended %s", id, j.State)
		}
	}
	return d, nil
}

// check loads every session, and counts the turns that were acknowledged and are not
// there, and those that are there twice.
func (s *stage) check(ctx context.Context, t *traffic) (lost, doubled int, err error) {
	reader, err := client.NewWorker(s.berth, client.Instance{ID: "reader", Pool: s.c.Pool, Address: "127.0.0.1:1"})
	if err != nil {
		return 0, 0, err
	}
	acknowledged := t.acknowledged(s.c.Sessions)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(seatedBy)
	var mu sync.Mutex
	done := 0
	for id, turns := range acknowledged {
		g.Go(func() error {
			session, err := reader.Open(s.key(id))
			if err != nil {
				return err
			}
			_, stored, err := session.Load(ctx, 0)
			if err != nil {
				return fmt.Errorf("load a session: %w", err)
			}
			found := map[string]int{}
			for i := range stored {
				found[string(stored[i].Value)]++
			}
			mu.Lock()
			defer mu.Unlock()
			for n := range turns {
				if found[string(turnOf(id, n).Value)] == 0 {
					lost++
				}
			}
			for _, n := range found {
				doubled += n - 1
			}
			done++
			s.step("loading every session", done, len(acknowledged))
			return nil
		})
	}
	return lost, doubled, g.Wait()
}

// call makes one call of an operator.
func (s *stage) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("render the request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.c.URL+path, body)
	if err != nil {
		return fmt.Errorf("make the request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.berth.HTTPClient.Do(req)
	if err != nil {
		return fmt.Errorf("call %s: %w", path, err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", path, err)
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s answered %s: %s", path, resp.Status, answer)
	}
	return json.Unmarshal(answer, out)
}
