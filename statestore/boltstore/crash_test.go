package boltstore

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/statestore"
)

// A child is this test binary, told by childRole what to write and by childPath
// where. It writes until it is killed, and prints a line for every answer.
const (
	childRole = "BERTH_BOLTSTORE_CHILD"
	childPath = "BERTH_BOLTSTORE_PATH"
)

func TestMain(m *testing.M) {
	role := os.Getenv(childRole)
	if role == "" {
		os.Exit(m.Run())
	}
	s, err := Open(context.Background(), os.Getenv(childPath), Options{})
	if err == nil {
		err = map[string]func(*Store) error{"turns": writeTurns, "context": writeContexts}[role](s)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// child is a running child.
type child struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func startChild(t *testing.T, role, path string) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: exec.CommandContext(t.Context(), self)} //nolint:gosec // itself
	c.cmd.Env = append(os.Environ(), childRole+"="+role, childPath+"="+path)
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.lines = bufio.NewScanner(out)
	return c
}

// read calls fn with the next n lines.
func (c *child) read(t *testing.T, n int, fn func(line string)) {
	t.Helper()
	for range n {
		if !c.lines.Scan() {
			t.Fatalf("the child ended by itself: %v", c.lines.Err())
		}
		fn(c.lines.Text())
	}
}

// kill sends SIGKILL and calls fn with the lines that were under way.
func (c *child) kill(t *testing.T, fn func(line string)) {
	t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for c.lines.Scan() {
		fn(c.lines.Text())
	}
	_ = c.cmd.Wait() // says that it was killed
}

const childWriters = 16

// writeTurns appends from several writers, each to sessions of a hundred turns,
// and goes on with what it finds.
func writeTurns(s *Store) error {
	var print sync.Mutex
	errs := make(chan error)
	for w := range childWriters {
		go func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%d-%d", w, i)
				if err := fillSession(s, id, func(n uint64) {
					print.Lock()
					defer print.Unlock()
					fmt.Printf("%s %d\n", id, n)
				}); err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	return <-errs
}

// fillSession appends turns up to the hundredth, and tells of each that was
// acknowledged.
func fillSession(s *Store, id string, acknowledged func(turn uint64)) error {
	v, err := s.Lookup(context.Background(), keyOf(id))
	if err != nil {
		return err
	}
	h := statestore.Presented{Floor: v.Floor()}
	for n := v.Turns; n < 100; n++ {
		r, err := s.Append(context.Background(), statestore.Append{
			Key: keyOf(id), By: i1, Handle: h, Op: "op" + strconv.FormatUint(n, 10), Turns: bytesTurn(turnOf(id, n)), Lifetimes: lives,
		})
		if err != nil {
			return err
		}
		h.Floor = r.Floor
		acknowledged(n)
	}
	return nil
}

// turnOf is different for every turn, and longer than a page for some.
func turnOf(id string, n uint64) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("turn %d of %s.", n, id)), int(1+n%7*100)) //nolint:gosec // small
}

// Cases T08 and T09: a process that is killed at random moments loses nothing
// that it acknowledged, and the next finds every turn in its place.
func TestKillLosesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	promised := map[string]uint64{} // turns, by session
	promise := func(line string) {
		id, turn, ok := strings.Cut(line, " ")
		n, err := strconv.ParseUint(turn, 10, 64)
		if !ok || err != nil {
			return // the kill cut the line off
		}
		promised[id] = max(promised[id], n+1)
	}
	for range 10 {
		c := startChild(t, "turns", path)
		c.read(t, 1+rand.IntN(300), promise) //nolint:gosec // a moment
		c.kill(t, promise)
		s := openAt(t, path, Options{})
		for id, turns := range promised {
			promised[id] = checkTurns(t, s, id, turns) // what was found has to stay too
		}
		checkFile(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("10 kills, %d sessions", len(promised))
}

// checkTurns loads a session that must have at least so many turns, and returns how
// many it has. A writer has one append under way at a time, so that at most one more
// was stored.
func checkTurns(t *testing.T, s *Store, id string, promised uint64) uint64 {
	t.Helper()
	r, err := s.Load(t.Context(), keyOf(id), 0)
	if err != nil {
		t.Fatal(err)
	}
	n := uint64(0)
	for turn, err := range r.Turns {
		if err != nil || turn.N != n || !bytes.Equal(turn.Value, turnOf(id, n)) {
			t.Fatalf("turn %d of %s is %.40q, %v", n, id, turn.Value, err)
		}
		n++
	}
	if n < promised || n > promised+1 {
		t.Fatalf("%s has %d turns, and %d were acknowledged", id, n, promised)
	}
	return n
}

// contextOf is a context of several large turns, all of one round.
func contextOf(round int) []statestore.Turn {
	turns := make([]statestore.Turn, 8)
	for i := range turns {
		b := noiseOf(256<<10 + round)
		turns[i] = statestore.Turn{Type: statestore.TurnBytes, Value: b, Tokens: uint64(round)} //nolint:gosec // small
	}
	return turns
}

func replaceOf(v statestore.View, round int) statestore.Replace {
	return statestore.Replace{
		Key: keyOf("large"), By: i1, Handle: statestore.Presented{Floor: v.Floor()}, Op: "round" + strconv.Itoa(round),
		Turns: contextOf(round), Lifetimes: lives,
	}
}

// writeContexts replaces a large context over and over.
func writeContexts(s *Store) error {
	for {
		v, err := s.Lookup(context.Background(), keyOf("large"))
		if err != nil {
			return err
		}
		round := int(v.Version) + 1 //nolint:gosec // small
		save := replaceOf(v, round)
		fmt.Println("begin", round)
		if _, err := s.Replace(context.Background(), save); err != nil {
			return err
		}
		fmt.Println("stored", round)
	}
}

// Case T14: a process killed in the middle of a large save leaves the old context
// or the new one, whole; the same save, sent again, succeeds at once; and nothing
// is left of the first try.
func TestKillInALargeSaveLeavesNoHalf(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	begun, stored := 0, 0
	note := func(line string) {
		what, round, _ := strings.Cut(line, " ")
		n, err := strconv.Atoi(round)
		if err != nil {
			return
		}
		if what == "begin" {
			begun = n
		} else {
			stored = n
		}
	}
	for range 10 {
		c := startChild(t, "context", path)
		c.read(t, 3, note) // in the middle of its second save
		// How far into the save is up to chance.
		<-time.After(time.Duration(rand.IntN(20_000)) * time.Microsecond) //nolint:gosec // a moment
		c.kill(t, note)
		s := openAt(t, path, Options{})
		v, err := s.Lookup(t.Context(), keyOf("large"))
		if err != nil || int(v.Version) < stored || int(v.Version) > begun { //nolint:gosec // small
			t.Fatalf("version %d after %d was stored and %d begun, %v", v.Version, stored, begun, err)
		}
		checkContext(t, s, int(v.Version)) //nolint:gosec // small
		retry := replaceOf(v, begun)
		r, err := s.Replace(t.Context(), retry)
		if err != nil || int(r.Version) != begun { //nolint:gosec // small
			t.Fatalf("the same save again: %+v, %v", r, err)
		}
		checkContext(t, s, begun)
		checkFile(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func checkContext(t *testing.T, s *Store, round int) {
	t.Helper()
	r, err := s.Load(t.Context(), keyOf("large"), 0)
	if err != nil {
		t.Fatal(err)
	}
	want := contextOf(round)
	if round == 0 {
		want = nil
	}
	n := 0
	for turn, err := range r.Turns {
		if err != nil || !bytes.Equal(turn.Value, want[n].Value) || turn.Tokens != want[n].Tokens {
			t.Fatalf("turn %d of round %d is of round %d, %v", n, round, turn.Tokens, err)
		}
		n++
	}
	if n != len(want) {
		t.Fatalf("round %d has %d turns", round, n)
	}
}
