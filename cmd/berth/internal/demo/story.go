package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"berth/client"
	"berth/cmd/berth/internal/simworker"
	"berth/cmd/berth/internal/trace"
)

const (
	storyPool   = "story"
	storyTurns  = 9
	storyBlocks = 4 // of prompt that each turn adds
	storyCache  = 1000
	storyGrace  = 3 * time.Second // for the target to prewarm, and the session to be quiet
	blockTokens = trace.BlockTokens
)

// Story tells one session's life: nine turns on one instance, its death, the
// recovery elsewhere, a drain, and the next turn as a hit.
func Story(ctx context.Context, berth client.Config, fleet Fleet, say Narrator) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	c := newCrew(ctx, berth, storyPool, storyCache)
	defer func() { err = errors.Join(err, c.end()) }()
	for _, id := range []string{"s1", "s2", "s3"} {
		if err := c.start(id); err != nil {
			return err
		}
	}
	if err := c.awaitReady(ctx, fleet); err != nil {
		return fmt.Errorf("wait for the instances: %w", err)
	}
	g, err := newGateway(berth, c)
	if err != nil {
		return err
	}
	s := &story{gateway: g, fleet: fleet, say: say, key: client.SessionKey{ID: "a-conversation", Pool: storyPool}}
	return s.tell(ctx)
}

// story is one session and what was saved of it.
type story struct {
	gateway
	fleet Fleet
	say   Narrator
	key   client.SessionKey
	saved []client.Turn
}

func (s *story) tell(ctx context.Context) error {
	s.say.Say("One session's life, on three instances:")
	home, err := s.nineTurns(ctx)
	if err != nil {
		return err
	}
	s.crew.kill(home)
	s.say.Say("  %s is killed. Its KV cache and its memory are gone.", home)
	refuge, err := s.failover(ctx, home)
	if err != nil {
		return err
	}
	return s.drain(ctx, refuge, home)
}

// turn sends one more turn.
func (s *story) turn(ctx context.Context) (trip, error) {
	n := len(s.saved)
	value, err := json.Marshal(trace.Text(-1, n, storyBlocks*blockTokens))
	if err != nil {
		return trip{}, fmt.Errorf("render a turn: %w", err)
	}
	turn := client.JSON(value)
	t, err := s.send(ctx, simworker.Request{
		Session: s.key, Op: fmt.Sprintf("turn-%d", n), Turns: []client.Turn{turn},
		Prompt: func(stored []client.Turn) []uint64 { return storyPrompt(len(stored) + 1) },
	})
	if err != nil {
		return t, fmt.Errorf("turn %d: %w", n+1, err)
	}
	s.saved = append(s.saved, turn)
	return t, nil
}

// storyPrompt is the blocks of a prompt of n turns; the ids lie above the trace's.
func storyPrompt(n int) []uint64 {
	blocks := make([]uint64, n*storyBlocks)
	for i := range blocks {
		blocks[i] = 1<<40 + uint64(i) //nolint:gosec // an index
	}
	return blocks
}

func (s *story) nineTurns(ctx context.Context) (home string, err error) {
	for n := range storyTurns {
		t, err := s.turn(ctx)
		if err != nil {
			return "", err
		}
		if home == "" {
			home = t.route.Instance
		}
		if t.route.Instance != home {
			return "", fmt.Errorf("turn %d went to %s although %s serves the session", n+1, t.route.Instance, home)
		}
		if n == 0 || n == storyTurns-1 {
			s.say.Say("  turn %d → %s (%s), %d of %d prompt tokens cached, saved as version %d, %s",
				n+1, home, t.route.Reason, t.Hit.Blocks*blockTokens, t.Blocks*blockTokens, t.Receipt.Version, t.Receipt.Durability.Level)
		}
	}
	return home, nil
}

func (s *story) failover(ctx context.Context, home string) (refuge string, err error) {
	t, err := s.turn(ctx)
	if err != nil {
		return "", err
	}
	if t.route.Instance == home || !t.Recovered {
		return "", fmt.Errorf("turn %d was served by %s without a recovery", len(s.saved), t.route.Instance)
	}
	for i, turn := range t.Turns {
		if !bytes.Equal(turn.Value, s.saved[i].Value) {
			return "", fmt.Errorf("turn %d came back with other bytes", i+1)
		}
	}
	s.say.Say("  turn %d → %s does not answer; asked again with exclude=%s → %s (%s)",
		len(s.saved), home, home, t.route.Instance, t.route.Reason)
	s.say.Say("  %s presents its handle and has all %d turns, byte for byte; the prompt is computed again (%d tokens)",
		t.route.Instance, len(t.Turns)-1, (t.Blocks-t.Hit.Blocks)*blockTokens)
	return t.route.Instance, nil
}

func (s *story) drain(ctx context.Context, refuge, home string) error {
	if err := s.crew.awaitGone(ctx, s.fleet, home); err != nil {
		return fmt.Errorf("wait for %s to be missed: %w", home, err)
	}
	job, err := s.fleet.Drain(ctx, refuge, 10*time.Minute, storyGrace)
	if err != nil {
		return fmt.Errorf("drain %s: %w", refuge, err)
	}
	s.say.Say("  %s has been silent for a while and takes no sessions; now %s is drained, as before an upgrade …", home, refuge)
	if job, err = s.fleet.AwaitJob(ctx, job.ID); err != nil {
		return fmt.Errorf("drain %s: %w", refuge, err)
	}
	s.say.Say("  … %d session moved, %d prewarmed on its target; %s is safe to stop", job.Progress.Moved, job.Progress.Prewarmed, refuge)
	t, err := s.turn(ctx)
	if err != nil {
		return err
	}
	if t.route.Instance == refuge || t.Hit.Blocks == 0 {
		return fmt.Errorf("after the drain, turn %d went to %s with %d blocks cached", len(s.saved), t.route.Instance, t.Hit.Blocks)
	}
	s.say.Say("  turn %d → %s (%s), %d of %d prompt tokens cached: the prewarm paid off",
		len(s.saved), t.route.Instance, t.route.Reason, t.Hit.Blocks*blockTokens, t.Blocks*blockTokens)
	return nil
}
