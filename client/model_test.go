package client

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
)

// model is a berth with one session in a store that can go back in time. It
// keeps the contract's rules for writes and reads, in the contract's order of
// checks, and plays a fault with each request.
type model struct {
	mu     sync.Mutex
	clock  uint64 // never goes back, unlike the store
	stored *stored
	// past are the states that a fail-over may bring back: those since the
	// last write that was answered as durable, oldest first.
	past   []*stored
	parked []string // ops

	faults  []fault // one a request; none when they run out
	served  int
	rolled  int
	durable []bool // of each accepted write; memory when they run out
	late    func() // how long a request and an answer are on their way
	trace   []string
}

// fault is what happens around one request.
type fault int

const (
	none       fault = iota
	lostBefore       // the request never arrives
	lostAfter        // the answer never arrives
	away             // the store cannot be asked
	weak             // stored, not durable in time
	rollback         // the store goes back first; the depth is above
	depths     = 8
)

type stored struct {
	epoch, version uint64
	owner          string
	turns          []string
	ops            []storedOp // one a version, the last 32
	began          []change
}

type storedOp struct {
	op, content string
	version     uint64
	kept        int
}

// change is an epoch and the version at which the one before it ended.
type change struct{ epoch, version uint64 }

func (s *stored) clone() *stored {
	if s == nil {
		return nil
	}
	c := *s
	c.turns, c.ops, c.began = slices.Clone(s.turns), slices.Clone(s.ops), slices.Clone(s.began)
	return &c
}

func newModel() *model { return &model{clock: 1000, past: []*stored{nil}} }

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if m.late != nil {
		m.late()
		defer m.late()
	}
	m.mu.Lock()
	f := none
	if m.served < len(m.faults) {
		f = m.faults[m.served]
	}
	m.served++
	m.clock += 10
	if f >= rollback {
		m.goBack(int(f - rollback))
	}
	answer := refuse(503, ErrStoreUnavailable, "")
	if f != lostBefore && f != away {
		answer = m.do(r, body)
	}
	m.note(f, body, answer)
	m.mu.Unlock()
	switch f {
	case lostBefore, lostAfter:
		answer = tear
	case weak:
		answer = refuse(503, ErrNotDurable, `"stored":true`)
	}
	answer(w, r)
}

// note keeps what happened, for the message of a failure.
func (m *model) note(f fault, body []byte, answer step) {
	rec := httptest.NewRecorder()
	answer(rec, nil)
	m.trace = append(m.trace, fmt.Sprintf("fault %d: %s\n  → %d %s", f, body, rec.Code, strings.TrimSpace(rec.Body.String())))
}

func (m *model) goBack(depth int) {
	if depth == 0 || len(m.past) == 1 {
		return
	}
	m.past = m.past[:max(1, len(m.past)-depth)]
	m.stored = m.past[len(m.past)-1].clone()
	m.rolled++
}

type modelCall struct {
	Op, Handle, Instance, At string
	Base                     *int
	Turns                    json.RawMessage // of a write, a list; of a recover, a word
	Have                     *struct {
		Handle string
		Turns  int
	}
}

func (m *model) do(r *http.Request, body []byte) step {
	var c modelCall
	if err := json.Unmarshal(body, &c); err != nil {
		return reply(400, err.Error())
	}
	if strings.HasSuffix(r.URL.Path, "/recover") {
		return m.recover(c)
	}
	return m.write(c, r.Method == http.MethodPut)
}

type floor struct {
	epoch, version uint64
	op             string
}

func parseFloor(h string) (f floor) {
	_, _ = fmt.Sscanf(strings.ReplaceAll(h, "/", " "), "%d %d %s", &f.epoch, &f.version, &f.op)
	return f
}

func (f floor) handle() string { return fmt.Sprintf("%d/%d/%s", f.epoch, f.version, f.op) }

// holds is the lineage rule: the op of that version, or, older than memory, an
// epoch that did not end below it.
func (s *stored) holds(f floor) bool {
	switch {
	case f.version == 0:
		return true
	case s == nil || f.version > s.version:
		return false
	}
	if back := int(s.version - f.version); back < len(s.ops) {
		return s.ops[len(s.ops)-1-back].op == f.op
	}
	for i, c := range s.began {
		if c.epoch == f.epoch {
			return i+1 == len(s.began) || f.version <= s.began[i+1].version
		}
	}
	return f.epoch < s.began[0].epoch
}

func (m *model) behind(f floor) step {
	have, turns := uint64(0), 0
	if m.stored != nil {
		have, turns = m.stored.version, len(m.stored.turns)
	}
	return refuse(409, ErrStoreBehind, fmt.Sprintf(`"have":{"version":%d,"turns":%d},"want":{"version":%d}`, have, turns, f.version))
}

func (m *model) write(c modelCall, replaces bool) step {
	f, s := parseFloor(c.Handle), m.stored
	content := fmt.Sprint(replaces, c.Base != nil, c.Base == nil || *c.Base == 0, string(c.Turns))
	if s == nil {
		if f.version > 0 {
			return m.behind(f)
		}
		s = &stored{epoch: m.clock, owner: c.Instance, began: []change{{epoch: m.clock}}}
		return m.accept(s, c, floor{epoch: m.clock}, content, replaces)
	}
	if i := slices.IndexFunc(s.ops, func(o storedOp) bool { return o.op == c.Op }); i >= 0 {
		switch {
		case !s.holds(f):
			return m.behind(f)
		case s.ops[i].content != content:
			return refuse(422, ErrOpReused, "")
		}
		return m.receipt(floor{s.epoch, s.ops[i].version, c.Op}, `,"duplicate":true`)
	}
	switch {
	case s.version > f.version+32:
		return refuse(409, ErrOpForgotten, fmt.Sprintf(`"version":%d`, s.version))
	case !s.holds(f):
		return m.behind(f)
	case s.owner != c.Instance || f.epoch != s.epoch:
		m.parked = append(m.parked, c.Op)
		return refuse(409, ErrNotOwner, fmt.Sprintf(`"parked":true,"owner":{"instance":%q,"epoch":%d}`, s.owner, s.epoch))
	}
	return m.accept(s.clone(), c, f, content, replaces)
}

func (m *model) accept(s *stored, c modelCall, f floor, content string, replaces bool) step {
	kept := len(s.turns)
	if c.Base != nil {
		kept = *c.Base
	}
	if replaces {
		kept = 0
	}
	if (c.At != "end" && f.version != s.version) || kept > len(s.turns) {
		return refuse(409, ErrVersionConflict, fmt.Sprintf(`"version":%d,"turns":%d`, s.version, len(s.turns)))
	}
	var turns []struct{ Value json.RawMessage }
	_ = json.Unmarshal(c.Turns, &turns)
	s.turns = s.turns[:kept]
	for _, t := range turns {
		s.turns = append(s.turns, string(t.Value))
	}
	s.version++
	if s.ops = append(s.ops, storedOp{c.Op, content, s.version, kept}); len(s.ops) > 32 {
		s.ops = s.ops[1:]
	}
	m.stored = s
	m.past = append(m.past, s.clone())
	return m.receipt(floor{s.epoch, s.version, c.Op}, "")
}

func (m *model) receipt(f floor, more string) step {
	level := "memory"
	if len(m.durable) > 0 {
		if m.durable[0] {
			level = "fsynced"
			m.past = m.past[len(m.past)-1:]
		}
		m.durable = m.durable[1:]
	}
	return reply(200, fmt.Sprintf(`{"version":%d,"epoch":%d,"turns":%d,"durability":{"level":%q},"handle":%q%s}`,
		f.version, m.stored.epoch, len(m.stored.turns), level, f.handle(), more))
}

func (m *model) recover(c modelCall) step {
	f, s := parseFloor(c.Handle), m.stored
	base := 0
	switch {
	case !s.holds(f):
		return m.behind(f)
	case c.Have != nil && !s.holds(parseFloor(c.Have.Handle)):
		return m.behind(parseFloor(c.Have.Handle))
	case s == nil:
		return lines(`{"new":true,"handle":"0/0/"}` + "\n")
	case c.Have != nil:
		base = min(c.Have.Turns, len(s.turns))
		for _, o := range s.ops {
			if o.version > parseFloor(c.Have.Handle).version {
				base = min(base, o.kept)
			}
		}
	}
	h := floor{s.epoch, s.version, s.ops[len(s.ops)-1].op}.handle()
	out := fmt.Sprintf(`{"epoch":%d,"version":%d,"base":%d,"count":%d,"handle":%q}`+"\n", s.epoch, s.version, base, len(s.turns), h)
	if string(c.Turns) != `"none"` {
		for n, t := range s.turns[base:] {
			out += fmt.Sprintf(`{"n":%d,"type":"application/json","value":%s}`+"\n", base+n, t)
		}
	}
	return lines(out)
}
