package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"berth/client"
	"berth/cmd/berth/internal/pause"
	"berth/cmd/berth/internal/scoreboard"
	"berth/cmd/berth/internal/simworker"
	"berth/cmd/berth/internal/trace"
)

const (
	tracePool = "trace"
	// parallel is how many requests are under way at once.
	parallel = 32
	// idleBelow is, in the trace's time, how long ago a session may have been
	// used for a prewarm to be worth its cost.
	idleBelow = 10 * time.Minute
	// drainPace is the time between two requests while the drain moves sessions.
	// Without it the last quarter hour of the trace would be over in a second or
	// two, before anybody came back to a session that has moved.
	drainPace = 3 * time.Millisecond
	// rampOver is how long the instance that joins ramps: a minute in the trace's
	// hour, which passes in less than a minute here.
	rampOver = time.Second
	// drainGrace is how long the drain waits for a worker's answer.
	drainGrace = time.Second
)

// Play plays the trace through the server and returns how Berth did.
func Play(ctx context.Context, berth client.Config, fleet Fleet, t trace.Trace, say Narrator) (p scoreboard.Policy, err error) {
	if err := fleet.Ramp(ctx, tracePool, rampOver); err != nil {
		return p, fmt.Errorf("set the ramp: %w", err)
	}
	c := newCrew(ctx, berth, tracePool, scoreboard.CacheBlocks)
	defer func() { err = errors.Join(err, c.end()) }()
	for _, id := range scoreboard.Fleet() {
		if err := c.start(id); err != nil {
			return p, err
		}
	}
	if err := c.awaitReady(ctx, fleet); err != nil {
		return p, fmt.Errorf("wait for the instances: %w", err)
	}
	g, err := newGateway(berth, c)
	if err != nil {
		return p, err
	}
	run := &performance{
		gateway: g, fleet: fleet, say: say, turns: t.Turns, started: time.Now(),
		tally: scoreboard.NewTally(scoreboard.Fleet()), ledger: scoreboard.NewLedger(), events: scoreboard.Schedule(len(t.Turns)),
	}
	c.prewarmed = run.prewarmed
	player := trace.Player{Parallel: parallel, Before: run.before, Serve: run.serve}
	if err := player.Play(ctx, t.Turns); err != nil {
		return p, fmt.Errorf("play the trace: %w", err)
	}
	say.Progress("playing the trace", len(t.Turns), len(t.Turns))
	if err := run.settle(ctx); err != nil {
		return p, err
	}
	if err := run.check(ctx, t.Sessions); err != nil {
		return p, err
	}
	return run.tally.Policy("berth"), nil
}

// performance is one play of a trace.
type performance struct {
	gateway
	fleet   Fleet
	say     Narrator
	turns   []trace.Turn
	tally   *scoreboard.Tally
	ledger  *scoreboard.Ledger
	events  []scoreboard.Event
	started time.Time
	served  atomic.Int64
	refused atomic.Int64
	firsts  sync.Once // the first failure's text, of which there should be none
	drained string    // job of the drain
	moved   bool      // it has moved every session
}

// sessionKey names a session of the trace on the server.
func sessionKey(t trace.Turn) client.SessionKey {
	return client.SessionKey{ID: t.SessionID(), Pool: tracePool}
}

// content is the JSON value that a turn saves.
func content(t trace.Turn) ([]byte, error) {
	value, err := json.Marshal(trace.Text(t.Session, t.N, t.NewTokens))
	if err != nil {
		return nil, fmt.Errorf("render turn %d of session %d: %w", t.N, t.Session, err)
	}
	return value, nil
}

// serve sends one turn. A request that fails is counted, not an error: the rest
// of the trace goes on.
func (p *performance) serve(ctx context.Context, t trace.Turn) error {
	value, err := content(t)
	if err != nil {
		return err
	}
	got, err := p.send(ctx, simworker.Request{
		Session: sessionKey(t), Op: "turn-" + strconv.Itoa(t.N),
		Turns:  []client.Turn{{Value: value, Tokens: t.NewTokens}},
		Prompt: func([]client.Turn) []uint64 { return t.Blocks },
	})
	p.refused.Add(int64(got.refused))
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.tally.Failed()
		p.firsts.Do(func() { p.say.Say("a request failed: %v", err) })
		return nil
	}
	p.ledger.Acknowledged(t.Session, value)
	p.tally.Served(t, got.route.Instance, got.Hit)
	p.served.Add(1)
	return nil
}

// before plays the events that come ahead of the i-th turn.
func (p *performance) before(ctx context.Context, i int) error {
	if i%100 == 0 {
		p.say.Progress("playing the trace", i, len(p.turns))
	}
	for len(p.events) > 0 && p.events[0].At <= i {
		if err := p.play(ctx, p.events[0], i); err != nil {
			return err
		}
		p.events = p.events[1:]
	}
	if p.drained != "" && !p.moved {
		return p.slowly(ctx, i)
	}
	return nil
}

// slowly paces the trace until the drain has moved every session.
func (p *performance) slowly(ctx context.Context, i int) error {
	if i%100 == 0 {
		job, err := p.fleet.Job(ctx, p.drained)
		if err != nil {
			return err
		}
		if p.moved = job.Progress.Phase == "settling" || job.State == "succeeded"; p.moved {
			p.say.Say("after %d requests the drain has moved every session; old hints run out before the instance is safe to stop", i)
			return nil
		}
	}
	return pause.For(ctx, drainPace)
}

func (p *performance) play(ctx context.Context, e scoreboard.Event, i int) error {
	p.tally.Event(e)
	switch e.Kind {
	case scoreboard.Join:
		p.say.Say("after %d requests %s joins: bound sessions stay where they are", i, e.Instance)
		return p.crew.start(e.Instance)
	case scoreboard.Kill:
		p.say.Say("after %d requests %s is killed: its sessions fail over through exclude and recover", i, e.Instance)
		p.crew.kill(e.Instance)
		return nil
	case scoreboard.Drain:
		p.say.Say("after %d requests %s is drained: its sessions are prewarmed on their targets", i, e.Instance)
		job, err := p.fleet.Drain(ctx, e.Instance, p.recently(i), drainGrace)
		p.drained = job.ID
		if err != nil {
			return fmt.Errorf("drain %s: %w", e.Instance, err)
		}
		return nil
	}
	return fmt.Errorf("the demo knows no event %q", e.Kind)
}

// recently is idleBelow in the time of this run, which passes faster than the
// trace's.
func (p *performance) recently(i int) time.Duration {
	passed := p.turns[i].At - p.turns[0].At
	if passed <= 0 {
		return idleBelow
	}
	// A session is moved once it was quiet for the grace, so less would prewarm none.
	return max(3*drainGrace, time.Duration(float64(idleBelow)*float64(time.Since(p.started))/float64(passed)))
}

func (p *performance) prewarmed(instance string, session client.SessionKey, blocks int) {
	if n, err := strconv.Atoi(strings.TrimPrefix(session.ID, "conversation-")); err == nil {
		p.tally.Prewarmed(n, instance, blocks)
	}
}

// settle waits for the drain, if the trace was long enough for one.
func (p *performance) settle(ctx context.Context) error {
	if p.drained == "" {
		return nil
	}
	job, err := p.fleet.AwaitJob(ctx, p.drained)
	if err != nil {
		return fmt.Errorf("wait for the drain: %w", err)
	}
	p.say.Say("the drain %s: %d of %d sessions moved, %d of them prewarmed; %d connections to the killed instance failed over",
		job.State, job.Progress.Moved, job.Progress.Total, job.Progress.Prewarmed, p.refused.Load())
	return nil
}
