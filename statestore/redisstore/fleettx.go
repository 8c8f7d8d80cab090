package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"

	"berth/statestore"
)

// table is a hash or sorted set of the fleet's slot.
type table int

// Tables, in the order in which lua/commit.lua has their keys after its own.
const (
	tFences    table = iota // hash, as in a partition
	tCounters               // name → number
	tInstances              // id → JSON without its heartbeats
	tLoads                  // id → row of its heartbeats
	tLeases                 // name → JSON
	tJobs                   // id → JSON
	tTasks                  // id → JSON
	tTaskQueue              // by name: instance NUL incarnation NUL place NUL id
	tTaskJobs               // by name: job NUL place NUL id
	tTaskDue                // by ms: id of a task that belongs to no job
	tPolicies               // pool → JSON
	tKeys                   // number → JSON
	tNotes                  // process → ms at which it ends, as 8 bytes, and the note
	tables
)

var tableNames = [tables]string{
	"fences", "counters", "instances", "loads", "leases", "jobs", "tasks", "taskqueue", "taskjobs", "taskdue", "policies", "keys", "notes",
}

func (s *Store) table(t table) string { return s.keys.fleet(tableNames[t]) }

// cell is a field of a hash; the field "*" is all of it.
type cell struct {
	table table
	field string
}

// tx is a transaction on the fleet: what it read, at one moment, and what it will
// change if that still holds. Transactions on different cells do not meet.
type tx struct {
	now   statestore.Millis
	seen  map[cell]string
	loose map[cell]bool // seen, and free to change until the commit
	whole map[table]map[string]string
	steps []any
	// harmless: a commit that is made twice does no harm, and is not remembered.
	harmless bool
}

// txAge is how long after its reads a transaction may still be made, in ms. What it
// decided by the clock it would mostly decide again; but a lease of that length
// should not be over when it is got.
const txAge = 5000

// txRounds bounds how often a transaction whose reads changed is judged again.
const txRounds = 50

// peek reads cells at one moment.
func (s *Store) peek(ctx context.Context, cells ...cell) (*tx, error) {
	keys := make([]string, 0, len(cells)+1)
	var args []any
	for i, c := range cells {
		keys = append(keys, s.table(c.table))
		args = append(args, i+1, c.field)
	}
	if len(keys) == 0 {
		keys = append(keys, s.table(tCounters))
	}
	reply, err := s.read(ctx, peekFn, keys, args...)
	if err != nil {
		return nil, err
	}
	a, err := answerOf(reply)
	if err != nil {
		return nil, err
	}
	t := &tx{now: a.millis(0), seen: map[cell]string{}, loose: map[cell]bool{}, whole: map[table]map[string]string{}}
	for i, c := range cells {
		if c.field == "*" {
			t.whole[c.table] = pairs(a.list(i + 1))
		} else {
			t.seen[c] = a.text(i + 1)
		}
	}
	return t, nil
}

// transact reads cells, lets fn judge and change them, and commits. fn runs again
// when another transaction changed one of them meanwhile.
func (s *Store) transact(ctx context.Context, cells []cell, fn func(*tx) error) error {
	for n := 1; n <= txRounds; n++ {
		t, err := s.peek(ctx, cells...)
		if err != nil {
			return err
		}
		if err := fn(t); err != nil {
			return err
		}
		done, err := s.commit(ctx, t)
		if err != nil || done {
			return err
		}
		if err := sleep(ctx, pause(n)); err != nil {
			return fmt.Errorf("%w: %w", statestore.ErrUnavailable, err)
		}
	}
	return fmt.Errorf("others changed the fleet %d times meanwhile: %w", txRounds, statestore.ErrUnavailable)
}

// commit makes the changes of t; false when what it read has changed.
func (s *Store) commit(ctx context.Context, t *tx) (done bool, err error) {
	if len(t.steps) == 0 {
		return true, nil
	}
	keys := []string{s.keys.fleet("tx:" + strconv.FormatUint(rand.Uint64(), 36))} //nolint:gosec // tells transactions apart
	for i := range tables {
		keys = append(keys, s.table(i))
	}
	args := []any{s.keys.channel(), int64(t.now), txAge, s.remember(t)}
	for c, v := range t.seen {
		if !t.loose[c] {
			args = append(args, "is", c.table.key(), c.field, v)
		}
	}
	args = append(args, t.steps...)
	err = s.settle(ctx, func() error {
		reply, err := s.fcall(ctx, s.client, commitFn, keys, args)
		done = reply == int64(1)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("commit: %w", err)
	}
	return done, nil
}

// remember is how long, in ms, the store knows that t was made: longer than its
// commit is sent again.
func (s *Store) remember(t *tx) int64 {
	if t.harmless {
		return 0
	}
	return 2*s.opts.Patience.Milliseconds() + 30_000
}

// key is the table's place among the KEYS of commit.lua, which begin at 1 with the
// transaction's own.
func (t table) key() int { return int(t) + 2 }

// loosen lets a cell change between the look at it and the commit.
func (t *tx) loosen(of table, field string) { t.loose[cell{of, field}] = true }

// hold undoes loosen.
func (t *tx) hold(of table, field string) { delete(t.loose, cell{of, field}) }

// get reads a cell that was asked for. Nothing is stored as "".
func (t *tx) get(of table, field string) string { return t.seen[cell{of, field}] }

// getJSON reads a cell into v, and reports whether it was there.
func (t *tx) getJSON(of table, field string, v any) (bool, error) {
	text := t.get(of, field)
	if text == "" {
		return false, nil
	}
	return true, decodeJSON(of, text, v)
}

func decodeJSON(of table, text string, v any) error {
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return fmt.Errorf("%s: %w: %w", tableNames[of], err, ErrDamaged)
	}
	return nil
}

func (t *tx) set(of table, field, value string) {
	t.steps = append(t.steps, "set", of.key(), field, value)
}

func (t *tx) setJSON(of table, field string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w: %w", tableNames[of], err, statestore.ErrInvalid)
	}
	t.set(of, field, string(text))
	return nil
}

func (t *tx) drop(of table, field string) { t.steps = append(t.steps, "del", of.key(), field) }

func (t *tx) list(in table, member string, score int64) {
	t.steps = append(t.steps, "add", in.key(), member, score)
}

func (t *tx) unlist(in table, member string) {
	t.steps = append(t.steps, "rem", in.key(), member)
}

func (t *tx) count(counter string) { t.steps = append(t.steps, "up", tCounters.key(), counter) }

func (t *tx) tell(e statestore.Event) { t.steps = append(t.steps, "tell", encodeEvent(e)) }
