package services

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"berth/routing"
	"berth/statestore"
)

// Any replica is told how requests ended, and only the holder of the health lease
// judges instances by it. So each process keeps its tallies in a note of the store,
// where the holder reads them. A note is also how a process says that it is there.
const (
	tallySoon = 500 * time.Millisecond // after something was counted
	tallyIdle = 4 * time.Second        // when nothing was
	tallyLife = 3 * tallyIdle
)

// tally is how requests to one boot of an instance ended, by the words of the API,
// and how many writes of it were accepted ("writes"). Words that a neighbouring
// version does not know are skipped by it.
type tally map[string]uint64

const tallyWrites = "writes"

// tallies counts since this process began.
type tallies struct {
	mu      sync.Mutex
	byBoot  map[statestore.Owner]tally
	changed bool
	wake    chan struct{}
}

func newTallies() *tallies {
	return &tallies{byBoot: map[statestore.Owner]tally{}, wake: make(chan struct{}, 1)}
}

// outcome counts how a request ended. Failures are told soon, the rest in time.
func (t *tallies) outcome(boot statestore.Owner, o routing.Outcome) {
	if o == routing.OutcomeUnknown {
		return
	}
	t.count(boot, o.String())
	if o.Failed() {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// wrote counts a write that was accepted.
func (t *tallies) wrote(boot statestore.Owner) { t.count(boot, tallyWrites) }

func (t *tallies) count(boot statestore.Owner, word string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	mine := t.byBoot[boot]
	if mine == nil {
		mine = tally{}
		t.byBoot[boot] = mine
	}
	mine[word]++
	t.changed = true
}

// note renders the tallies of the boots that are still registered, and whether
// anything was counted since the last note.
func (t *tallies) note(image *fleetImage) (text []byte, changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	said := make(map[string]tally, len(t.byBoot))
	for boot, counts := range t.byBoot {
		in := image.instances[boot.Instance]
		if image.loaded && (in == nil || in.Incarnation != boot.Incarnation) {
			delete(t.byBoot, boot)
			continue
		}
		said[boot.Instance+" "+boot.Incarnation] = counts
	}
	changed, t.changed = t.changed, false
	text, err := json.Marshal(said)
	if err != nil {
		panic(err) // strings and numbers
	}
	return text, changed
}

// readNote is the inverse of note. What cannot be read says nothing.
func readNote(text []byte) map[statestore.Owner]tally {
	var said map[string]tally
	if json.Unmarshal(text, &said) != nil {
		return nil
	}
	out := make(map[statestore.Owner]tally, len(said))
	for boot, counts := range said {
		id, incarnation, _ := strings.Cut(boot, " ")
		out[statestore.Owner{Instance: id, Incarnation: incarnation}] = counts
	}
	return out
}

// tell keeps this process's note up to date until ctx ends, and then removes it.
func (s *Server) tell(ctx context.Context) error {
	var last time.Time
	for {
		text, changed := s.tallies.note(s.fleet.now())
		if changed || time.Since(last) >= tallyIdle {
			if err := s.store.PutNote(ctx, s.options.Process, text, tallyLife); err != nil && ctx.Err() == nil {
				s.log.Warn("outcomes not told", "error", err)
			}
			last = time.Now()
		}
		if !s.tallies.rest(ctx) {
			break
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tallySoon)
	defer cancel()
	_ = s.store.PutNote(ctx, s.options.Process, nil, 0) // it would end by itself
	return nil
}

// rest waits, less long after a failure, and reports whether ctx is still on.
func (t *tallies) rest(ctx context.Context) bool {
	select {
	case <-t.wake:
		return pause(ctx, tallySoon/5) // failures come in rows
	case <-ctx.Done():
		return false
	case <-time.After(tallySoon):
		return true
	}
}

// ledger is what the holder of the lease has read of the tallies so far.
type ledger struct {
	begun bool
	seen  map[string]map[statestore.Owner]tally
}

// read returns what was counted since the last time, and who is there. What had
// been counted before the first time says nothing about now.
func (l *ledger) read(notes map[string][]byte) (news map[statestore.Owner]tally, processes []string) {
	news = map[statestore.Owner]tally{}
	seen := make(map[string]map[statestore.Owner]tally, len(notes))
	for process, text := range notes {
		said := readNote(text)
		seen[process] = said
		processes = append(processes, process)
		if !l.begun {
			continue
		}
		for boot, counts := range said {
			for word, n := range counts {
				before := l.seen[process][boot][word]
				if n < before {
					before = 0 // a process of the same name began anew
				}
				if n == before {
					continue
				}
				if news[boot] == nil {
					news[boot] = tally{}
				}
				news[boot][word] += n - before
			}
		}
	}
	if l.begun {
		// A note that is late is not one that begins anew.
		for process, said := range l.seen {
			if _, there := seen[process]; !there && len(seen) < maxSilentProcesses {
				seen[process] = said
			}
		}
	}
	l.begun, l.seen = true, seen
	return news, processes
}

// maxSilentProcesses bounds whose counts are kept though they are gone.
const maxSilentProcesses = 1000
