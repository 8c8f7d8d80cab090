package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"berth/migrations"
	"berth/statestore"
)

// A rebalance asks for what the flags say, of the pool and tenant that they name, and
// exits as a drain does.
func TestRebalanceOnTheCommandLine(t *testing.T) {
	t.Parallel()
	job := strings.ReplaceAll(jobIn(statestore.JobPartial, `,"left":[{"instance":"i1","session":"s2","reason":"no_target"}]`), "drain", "rebalance")
	s := &scripted{create: 202, body: job, looks: []string{job}}
	headers := &headerNotes{Handler: s}
	out, _, err := runAgainst(t, headers, "rebalance", "--sessions", "s1,s2", "--target", "i2", "--pool", "p", "--tenant", "t",
		"--sessions-per-s", "2.5", "--retries", "3", "--deadline", "1m", "--grace", "0s")
	var code exitCode
	if !errors.As(err, &code) || code != exitPartial || !strings.Contains(out, "rebalance j1: partial, 3 of 4 sessions moved, 1 skipped: lapsed\n") || !strings.Contains(out, "left on i1: s2 (no_target)") {
		t.Errorf("prints %q, error %v", out, err)
	}
	body, found := strings.CutPrefix(s.asked[0], "POST /v1/rebalances ")
	var spec migrations.RebalanceSpec
	if err := json.Unmarshal([]byte(body), &spec); err != nil || !found {
		t.Fatalf("asked %s: %v", s.asked[0], err)
	}
	if len(spec.Sessions) != 2 || spec.Target != "i2" || spec.Pace.SessionsPerS != 2.5 || spec.Pace.Retries != 3 || spec.DeadlineMS != 60_000 || *spec.InFlightGraceMS != 0 {
		t.Errorf("asked for %+v", spec)
	}
	if got := headers.seen("X-Berth-Pool", "X-Berth-Tenant"); got != "p t" {
		t.Errorf("pool and tenant: %q", got)
	}
}

// Sessions that were not there are told apart from those that moved, and what did
// not move is no success.
func TestSessionsThatWereNotThere(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		progress string
		code     exitCode
		says     string
	}{
		{`"moved":0,"skipped":{"expired":2}`, exitPartial, "rebalance-7: succeeded, 0 of 2 sessions moved, 2 skipped: expired\n"},
		{`"moved":1,"targets":{"i2":1},"skipped":{"expired":1}`, exitPartial, "1 of 2 sessions moved, 1 skipped: expired\n"},
		{`"moved":1,"targets":{"i2":1},"skipped":{"already_moved":1}`, 0, "1 of 2 sessions moved, 1 skipped: already_moved\n"},
		{`"moved":1,"targets":{"i2":1}`, 0, "1 of 2 sessions moved\n"}, // under its bound before
		{`"moved":2,"targets":{"i2":2},"skipped":{"expired":1}`, 0, "2 of 2 sessions moved, 1 skipped: expired\n"},
	} {
		job := `{"id":"rebalance-7","kind":"rebalance","state":"succeeded","progress":{"total":2,` + tt.progress + `}}`
		out, _, err := runAgainst(t, &scripted{create: 202, body: job, looks: []string{job}}, "rebalance", "--sessions", "s1,s2")
		var code exitCode
		if errors.As(err, &code); code != tt.code || !strings.HasSuffix(out, tt.says) {
			t.Errorf("prints %q, code %d; want %q and %d", out, code, tt.says, tt.code)
		}
		list, _, err := runAgainst(t, &scripted{looks: []string{`{"jobs":[` + job + `]}`}}, "jobs")
		moved := strings.TrimPrefix(strings.Split(tt.progress, ",")[0], `"moved":`)
		if lines := strings.Split(list, "\n"); err != nil || !slices.Equal(strings.Fields(lines[1])[3:5], []string{moved, "2"}) {
			t.Errorf("the list says\n%s, want %s of 2: %v", list, moved, err)
		}
	}
}

// What was given and means nothing is refused before anything is asked.
func TestWhatMeansNothingIsRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		says string
	}{
		{[]string{"rebalance", "--sessions="}, "has an empty id; leave the flag out for all"},
		{[]string{"rebalance", "--sessions", ""}, "has an empty id; leave the flag out for all"},
		{[]string{"rebalance", "--sessions", "s1,,s2"}, "has an empty id; leave the flag out for all"},
		{[]string{"drain", "i1", "--deadline=0s"}, "--deadline is 0s, must be at least 1ms"},
		{[]string{"drain", "i1", "--deadline=-1m"}, "--deadline is -1m0s, must be at least 1ms"},
		{[]string{"rebalance", "--deadline", "10us"}, "--deadline is 10µs, must be at least 1ms"},
	} {
		s := &scripted{create: 202, body: jobIn(statestore.JobRunning, "")}
		out, _, err := runAgainst(t, s, tt.args...)
		if err == nil || !strings.Contains(err.Error(), tt.says) || out != "" || len(s.asked) > 0 {
			t.Errorf("berth %q asks %q, prints %q: %v", tt.args, s.asked, out, err)
		}
	}
	var both struct{ Sessions []string }
	s := &scripted{create: 202, body: jobIn(statestore.JobRunning, "")}
	if _, _, err := runAgainst(t, s, "rebalance", "--no-wait", "--sessions", `a,b\,c`, "--sessions", "d"); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(s.asked[0], "POST /v1/rebalances ")), &both); err != nil || !slices.Equal(both.Sessions, []string{"a", "b,c", "d"}) {
		t.Errorf("asks %q: %v", s.asked, err)
	}
}

// headerNotes keeps the headers of the first request.
type headerNotes struct {
	http.Handler
	once  sync.Once
	first http.Header
}

func (h *headerNotes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.once.Do(func() { h.first = r.Header.Clone() })
	h.Handler.ServeHTTP(w, r)
}

func (h *headerNotes) seen(names ...string) string {
	for i, n := range names {
		names[i] = h.first.Get(n)
	}
	return strings.Join(names, " ")
}

// A dry run prints who would go where, and begins nothing that could be followed.
func TestDryRunOnTheCommandLine(t *testing.T) {
	t.Parallel()
	const plan = `{"pool":"p","sessions":7,"bytes":70,"tokens":700,"unbound":2,"waiting":1,"blocked":{"in_flight":3},` +
		`"prewarm_sessions":4,"prewarm_tokens":400,"targets":{"i2":{"sessions":7,"tokens":700}},"moves":[]}`
	s := &scripted{create: 200, body: plan}
	out, _, err := runAgainst(t, s, "drain", "i1", "--dry-run", "--avoid", "rs=old")
	if err != nil || len(s.asked) != 1 || !strings.Contains(s.asked[0], `"dry_run":true`) || !strings.Contains(s.asked[0], `"avoid":{"rs":"old"}`) {
		t.Errorf("asked %q: %v", s.asked, err)
	}
	for _, want := range []string{"7 sessions would move, of 700 tokens", "4 of them, 400 tokens,", "2 would only be unbound", "1 would be waited for", "3 could not move now: in_flight", "i2      7         700"} {
		if !strings.Contains(out, want) {
			t.Errorf("prints\n%s, want %q", out, want)
		}
	}
	for over, want := range map[string]string{
		"":                     "nothing to do: there is no session to move\n",
		`,"over_bound":[]`:     "nothing to do: no instance that is asked about is over its bound\n",
		`,"over_bound":["i3"]`: "nothing to do: i3 is over its bound, but no session there may move: they are idle, or have been there for less than the policy's min_stick_ms\n",
	} {
		idle := &scripted{create: 200, body: `{"pool":"p","sessions":0,"bytes":0,"tokens":0,"unbound":0,"waiting":0,"blocked":{},"prewarm_sessions":0,"prewarm_tokens":0,"targets":{},"moves":[]` + over + `}`}
		if out, _, err := runAgainst(t, idle, "rebalance", "--dry-run"); err != nil || out != want {
			t.Errorf("prints %q, %v; want %q", out, err, want)
		}
	}
	if out, _, err = runAgainst(t, s, "drain", "i1", "--dry-run", "--json"); err != nil || strings.TrimSpace(out) != plan {
		t.Errorf("--json prints %q: %v", out, err)
	}
}

// Jobs are watched, paused, resumed and cancelled by their ids.
func TestJobsAreControlledOnTheCommandLine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		action string
		state  statestore.JobState
		says   string
	}{
		{"pause", statestore.JobRunning, "drain j1 will be paused: what is under way ends first; berth jobs resume j1 lets it go on\n"},
		{"pause", statestore.JobPaused, "drain j1 is paused; berth jobs resume j1 lets it go on\n"},
		{"resume", statestore.JobPaused, "drain j1 will go on\n"},
		{"resume", statestore.JobRunning, "drain j1 goes on\n"},
		{"cancel", statestore.JobRunning, "drain j1 will be cancelled: what is under way ends first; berth jobs watch j1 follows it\n"},
		{"cancel", statestore.JobCancelling, "drain j1 will be cancelled: what is under way ends first; berth jobs watch j1 follows it\n"},
		{"cancel", statestore.JobCancelled, "drain j1 is cancelled\n"},
	} {
		s := &scripted{create: 202, body: jobIn(tt.state, "")}
		out, _, err := runAgainst(t, s, "jobs", tt.action, "j 1")
		if err != nil || s.asked[0] != "POST /v1/jobs/j%201/"+tt.action+" " || !strings.HasPrefix(out, tt.says+"drain j1: "+string(tt.state)+", ") {
			t.Errorf("%s asks %q, prints %q, want %q: %v", tt.action, s.asked, out, tt.says, err)
		}
	}
	for action, fails := range map[string]bool{"pause": true, "resume": true, "cancel": false} {
		s := &scripted{create: 202, body: jobIn(statestore.JobSucceeded, "")}
		out, notes, err := runAgainst(t, s, "jobs", action, "j1")
		if says := notes + fmt.Sprint(err); (err != nil) != fails || out != "" || !strings.Contains(says, "drain j1: the job had ended already, as succeeded") {
			t.Errorf("%s of a job that has ended prints %q and %q: %v", action, out, notes, err)
		}
	}
	s := &scripted{looks: []string{jobIn(statestore.JobRunning, ""), jobIn(statestore.JobFailed, `,"reason":"it broke"`)}}
	out, _, err := runAgainst(t, s, "jobs", "watch", "j1")
	var code exitCode
	if !errors.As(err, &code) || code != exitFailed || !strings.Contains(out, "it broke") {
		t.Errorf("watch prints %q: %v", out, err)
	}
}

// A job is shown as it stands by its id alone, whatever became of it.
func TestOneJobAsItStands(t *testing.T) {
	t.Parallel()
	running := jobIn(statestore.JobRunning, `,"phase":"moving","blocked":{"in_flight":1}`)
	for _, tt := range []struct{ job, says string }{
		{running, "draining i1 (moving, 1 blocked: in_flight)\ndrain j1: running, 3 of 4 sessions moved off i1, 1 skipped: lapsed\n"},
		{jobIn(statestore.JobSucceeded, ""), "drain j1: succeeded, 3 of 4 sessions moved off i1, 1 skipped: lapsed\nsafe to stop\n"},
		{jobIn(statestore.JobFailed, ""), "drain j1: failed, 3 of 4 sessions moved off i1, 1 skipped: lapsed\ni1 stays draining"},
	} {
		s := &scripted{looks: []string{tt.job}}
		out, _, err := runAgainst(t, s, "jobs", "j 1")
		if err != nil || !strings.HasPrefix(out, tt.says) || s.asked[0] != "GET /v1/jobs/j%201 " {
			t.Errorf("asks %q, prints %q, want %q: %v", s.asked, out, tt.says, err)
		}
	}
	if out, _, err := runAgainst(t, &scripted{looks: []string{running}}, "jobs", "j1", "--json"); err != nil || strings.TrimSpace(out) != running {
		t.Errorf("--json prints %q: %v", out, err)
	}
	if _, _, err := runAgainst(t, &scripted{looks: []string{"gone"}}, "jobs", "nope"); err == nil || !strings.HasPrefix(err.Error(), "job nope: ") || !strings.HasSuffix(err.Error(), "; berth jobs lists those there are") {
		t.Errorf("of no job: %v", err)
	}
}

// Who drains is told what to do next when not all went well.
func TestWaysOnAfterADrain(t *testing.T) {
	t.Parallel()
	const job = `{"id":"drain-7","kind":"drain","state":%q,"instances":["i1","i2"],"progress":{"instances":{"i1":{"state":"drained"},"i2":{"state":"draining"}}}}`
	const stays = "i2 stays draining and gets no sessions: berth drain i2 tries again, berth uncordon i2 gives it sessions again\n" +
		"(while a drain runs, berth jobs cancel ends it and gives its instances back)\n"
	for state, says := range map[statestore.JobState]string{
		statestore.JobRunning:   "",
		statestore.JobPartial:   stays,
		statestore.JobFailed:    stays,
		statestore.JobCancelled: "i1 was drained by then, and stays so\ni2: open as before the drain; sessions that moved stay where they are\nberth drain i2 begins anew\n",
	} {
		out, _, err := runAgainst(t, &scripted{looks: []string{fmt.Sprintf(job, state)}}, "jobs", "drain-7")
		if _, rest, _ := strings.Cut(out, " off i1,i2\n"); err != nil || rest != says {
			t.Errorf("%s: prints %q, want %q: %v", state, out, says, err)
		}
	}
}

// A rebalance that finds nobody over the bound says that, not how many of none moved.
func TestNothingToRebalance(t *testing.T) {
	t.Parallel()
	const job = `{"id":"rebalance-7","kind":"rebalance","state":"succeeded","progress":{"total":0}}`
	out, _, err := runAgainst(t, &scripted{create: 202, body: job, looks: []string{job}}, "rebalance")
	if err != nil || out != "rebalance-7: succeeded, nothing to do: no instance is over its bound\n" {
		t.Errorf("prints %q: %v", out, err)
	}
}

// The bar tells how fast a job is, when it will be done, and what holds it up.
func TestWhatAJobIsBusyWith(t *testing.T) {
	t.Parallel()
	job := &jobAnswer{Kind: migrations.KindDrain, Instances: []string{"i1", "i2"}}
	job.Progress.Progress = migrations.Progress{
		Phase: migrations.PhaseMoving, Total: 10, Moved: 2, RatePerS: 1.55, EtaMS: 5400,
		Blocked:   map[string]int{"no_target": 1, "in_flight": 3},
		Instances: map[string]migrations.InstanceProgress{"i1": {Because: "sessions"}, "i2": {Because: "hints"}},
	}
	const want = "draining i1,i2 (moving, 1.6/s, about 5s left, 3 blocked: in_flight, 1 blocked: no_target, i2 waits for hints)"
	if got := whatItDoes(job); got != want {
		t.Errorf("says %q, want %q", got, want)
	}
	job.Mode = "linger"
	if got := whatItDoes(job); got != want {
		t.Errorf("of sessions that lingered and move: %q, want %q", got, want)
	}
	job.Progress.Progress = migrations.Progress{Phase: migrations.PhaseMoving, Total: 10, Skipped: map[string]int{"lapsed": 2}}
	if got := whatItDoes(job); got != "draining i1,i2 (lingering: waiting for sessions to lapse)" {
		t.Errorf("of sessions that linger: %q", got)
	}
	if got := whatItDoes(&jobAnswer{Kind: migrations.KindRebalance}); got != "rebalancing" {
		t.Errorf("of a job that has not begun: %q", got)
	}
}

// What an answer leaves out is over: nothing of an earlier one is told with it.
func TestWhatIsOverIsNotTold(t *testing.T) {
	t.Parallel()
	job := `{"id":"rebalance-7","kind":"rebalance","state":%q,"progress":{"total":2,"moved":2%s}}`
	s := &scripted{looks: []string{
		fmt.Sprintf(job, "running", `,"skipped":{"expired":1},"reason":"a step back","left":[{"instance":"i1","session":"s","reason":"deadline"}]`),
		fmt.Sprintf(job, "succeeded", ""),
	}}
	var followed jobAnswer
	web := httptest.NewServer(s)
	defer web.Close()
	r := &RemoteFlags{URL: web.URL}
	if _, err := r.follow(t.Context(), &streams{io.Discard, io.Discard}, &followed); err != nil {
		t.Fatal(err)
	}
	if p := &followed.Progress; followed.State != statestore.JobSucceeded || p.done() != 2 || p.Reason != "" || len(p.Left) > 0 {
		t.Errorf("follows to %+v", followed)
	}
}

// What an erase has done is told in its own words.
func TestWhatAnEraseHasDone(t *testing.T) {
	t.Parallel()
	job := `{"id":"erase-1","kind":"erase","state":"partial","instances":[],"progress":{"phase":"erasing","total":5,"erased":3,"skipped":{"deleted":1},` +
		`"left":[{"instance":"i1","session":"s","reason":"deadline"}]}}`
	out, _, err := runAgainst(t, &scripted{looks: []string{job}}, "jobs", "watch", "erase-1")
	var code exitCode
	const want = "erase-1: partial, 3 of 5 sessions erased, 1 skipped: deleted\nleft on i1: s (deadline)\n"
	if !errors.As(err, &code) || code != exitPartial || out != want {
		t.Errorf("watch prints %q: %v", out, err)
	}
	var j jobAnswer
	if err := json.Unmarshal([]byte(job), &j); err != nil || whatItDoes(&j) != "ending the sessions of a key (erasing)" || j.Progress.done() != 4 {
		t.Errorf("says %q, %d done: %v", whatItDoes(&j), j.Progress.done(), err)
	}
}

// The cheapest instances are those whose sessions take the fewest tokens to move.
func TestCheapestInstances(t *testing.T) {
	t.Parallel()
	cost := map[string]string{"a": "3 900", "b": "9 100", "c": "0 0", "d": "1 5", "e": "2 100"}
	web := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id, one := strings.CutPrefix(r.URL.Path, "/v1/instances/"); one {
			sessions, tokens, _ := strings.Cut(cost[id], " ")
			fmt.Fprintf(w, `{"id":%q,"state":"ready","drain_cost":{"sessions":%s,"tokens":%s}}`, id, sessions, tokens)
			return
		}
		_, _ = io.WriteString(w, `{"instances":[{"id":"a","state":"ready"},{"id":"b","state":"ready"},{"id":"c","state":"drained"},`+
			`{"id":"d","state":"draining"},{"id":"e","state":"cordoned"},{"id":"f","state":"down"},{"id":"g","state":"warming"},{"id":"h","state":"suspect"}]}`)
	})
	out, _, err := runAgainst(t, web, "instances", "--cheapest", "2")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err != nil || len(lines) != 3 || !strings.HasPrefix(lines[1], "e ") || !strings.HasPrefix(lines[2], "b ") {
		t.Errorf("prints\n%s: %v", out, err)
	}
	for _, n := range []string{"0", "-1"} {
		if out, _, err := runAgainst(t, web, "instances", "--cheapest="+n); err == nil || out != "" || !strings.Contains(err.Error(), "--cheapest is "+n+", must be at least 1") {
			t.Errorf("--cheapest %s prints %q: %v", n, out, err)
		}
	}
	out, _, err = runAgainst(t, web, "instances", "--cheapest", "9", "--json")
	var list instanceList
	if err != nil || json.Unmarshal([]byte(out), &list) != nil || len(list.Instances) != 3 || list.Instances[2].ID != "a" {
		t.Errorf("--json prints %s: %v", out, err)
	}
}
