package trace

import (
	"errors"
	"fmt"
	"io"
	"strconv"
)

// sharedBlock is the block every prompt of the service begins with (its system
// prompt). Two requests that share no more than it have nothing to do with
// each other.
const sharedBlock = 0

// Turn is a request that knows its conversation.
type Turn struct {
	Request
	Session   int // which session, counted from 0 in the order they begin
	N         int // which turn of the session, counted from 0
	Seen      int // leading blocks that an earlier request of the trace had too
	NewTokens int // tokens this turn adds to the session: question and answer
}

// SessionID returns the id under which the turn's session is known to servers.
func (t Turn) SessionID() string { return "conversation-" + strconv.Itoa(t.Session) }

// Trace is a trace in memory.
type Trace struct {
	Turns      []Turn // in order of arrival
	Sessions   int
	Blocks     int // prompt blocks of all turns
	SeenBlocks int // those of them that are Seen
}

// Ideal returns the share of all prompt blocks, 0 to 1, that one unbounded
// cache shared by the whole fleet would reuse: for every request the leading
// blocks seen before, summed and divided by all blocks. No placement of
// sessions on instances can reuse more.
func (t Trace) Ideal() float64 {
	if t.Blocks == 0 {
		return 0
	}
	return float64(t.SeenBlocks) / float64(t.Blocks)
}

// Load reads a trace from src and groups it into sessions. It stops after
// limit requests; 0 means all. A trace without a request is an error.
func Load(src io.Reader, limit int) (Trace, error) {
	r, err := NewReader(src)
	if err != nil {
		return Trace{}, err
	}
	var t Trace
	g := grouping{producer: make(map[uint64]int)}
	for limit == 0 || len(t.Turns) < limit {
		req, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Trace{}, err
		}
		turn := g.add(req)
		t.Turns = append(t.Turns, turn)
		t.Blocks += len(turn.Blocks)
		t.SeenBlocks += turn.Seen
	}
	if len(t.Turns) == 0 {
		return Trace{}, fmt.Errorf("read trace: no requests in it: %w", io.ErrUnexpectedEOF)
	}
	t.Sessions = len(g.sessions)
	return t, nil
}

// grouping assigns requests to sessions. The trace names none, but a chat
// request repeats the conversation so far, so its prompt shows where it
// belongs: to the session that first produced the last of its blocks seen
// before.
type grouping struct {
	producer map[uint64]int // block → session that first produced it
	sessions []progress
}

type progress struct {
	turns  int
	tokens int // length of the last prompt and its answer
}

func (g *grouping) add(req Request) Turn {
	turn := Turn{Request: req, Session: len(g.sessions)}
	leading := true
	for i, b := range req.Blocks {
		session, seen := g.producer[b]
		leading = leading && seen
		if leading {
			turn.Seen = i + 1
		}
		if seen && b != sharedBlock {
			turn.Session = session
		}
	}
	if turn.Session == len(g.sessions) {
		g.sessions = append(g.sessions, progress{})
	}
	for _, b := range req.Blocks {
		if _, seen := g.producer[b]; !seen {
			g.producer[b] = turn.Session
		}
	}
	p := &g.sessions[turn.Session]
	turn.N = p.turns
	// A prompt shorter than the conversation so far was edited or cut by the
	// client; what it adds is then the answer alone.
	turn.NewTokens = max(0, req.InputTokens-p.tokens) + req.OutputTokens
	*p = progress{turns: p.turns + 1, tokens: req.InputTokens + req.OutputTokens}
	return turn
}
