package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"berth/statestore"
)

// scripted is a Berth that answers a drain and looks at its job as a test says.
type scripted struct {
	mu     sync.Mutex
	create int      // status of the creation
	body   string   // of its answer
	looks  []string // answers to looks at the job; "" is a 503; the last is repeated
	fleet  []string // answers to looks at instances, likewise; "gone" is a 404; none: all are drained
	asked  []string // bodies and paths
	tokens []string
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	s.asked = append(s.asked, r.Method+" "+r.URL.String()+" "+string(body))
	s.tokens = append(s.tokens, r.Header.Get("X-Berth-Token"))
	if r.Method == http.MethodPost {
		w.WriteHeader(s.create)
		_, _ = io.WriteString(w, s.body)
		return
	}
	looks := &s.looks
	if strings.HasPrefix(r.URL.Path, "/v1/instances/") {
		looks = &s.fleet
		if len(s.fleet) == 0 {
			s.fleet = []string{`{"state":"drained","safe_to_stop":true}`}
		}
	}
	look := (*looks)[0]
	if len(*looks) > 1 {
		*looks = (*looks)[1:]
	}
	switch look {
	case "":
		w.WriteHeader(http.StatusServiceUnavailable)
	case "gone":
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"code":"unknown_instance","status":404}`)
	default:
		_, _ = io.WriteString(w, look)
	}
}

func jobIn(state statestore.JobState, rest string) string {
	return fmt.Sprintf(`{"id":"j1","kind":"drain","state":%q,"instances":["i1"],"progress":{"total":4,"moved":3,"targets":{"i2":3},"skipped":{"lapsed":1}%s}}`, state, rest)
}

// runAgainst runs a command against a scripted Berth.
func runAgainst(t *testing.T, s http.Handler, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	web := httptest.NewServer(s)
	defer web.Close()
	out, notes := new(output), new(output)
	err = run(t.Context(), append(args, "--berth", web.URL+"/"), out, notes)
	return out.String(), notes.String(), err
}

// Scripts branch on the exit code: 0 is for safe to stop alone.
func TestWhatADrainExitsWith(t *testing.T) {
	t.Parallel()
	running := jobIn(statestore.JobRunning, "")
	problem := func(code string) string { return fmt.Sprintf(`{"code":%q,"status":409,"detail":"it says why"}`, code) }
	for name, tt := range map[string]struct {
		create int
		body   string
		looks  []string
		args   string
		code   exitCode // 0: no error
		fails  string   // another error
		says   string
	}{
		"succeeded":                    {create: 202, body: running, looks: []string{running, jobIn(statestore.JobSucceeded, `,"prewarmed":2`)}, says: "drain j1: succeeded, 3 of 4 sessions moved off i1, 2 of them prewarmed on their target, 1 skipped: lapsed\nsafe to stop\n"},
		"partial":                      {create: 202, body: running, looks: []string{jobIn(statestore.JobPartial, `,"left":[{"instance":"i1","session":"s1","reason":"in_flight"}]`)}, code: exitPartial, says: "left on i1: s1 (in_flight)"},
		"partial, an instance":         {create: 202, body: running, looks: []string{jobIn(statestore.JobPartial, `,"left":[{"instance":"i1","reason":"unknown_in_flight"}]`)}, code: exitPartial, says: "i1 is not safe to stop: unknown_in_flight"},
		"detached":                     {create: 202, body: running, looks: []string{jobIn(statestore.JobSucceeded, `,"moved":5`)}, args: "--mode detach", says: "3 of 4 sessions moved off i1, 2 detached, 1 skipped: lapsed\nsafe to stop\ndetached sessions have no instance"},
		"failed":                       {create: 202, body: running, looks: []string{jobIn(statestore.JobFailed, "")}, code: exitFailed},
		"cancelled":                    {create: 202, body: running, looks: []string{jobIn(statestore.JobCancelled, "")}, code: exitFailed},
		"no target":                    {create: 409, body: problem("no_target"), code: exitNoTarget, says: "berth: no_target: it says why\nberth: add an instance, or drain with --mode detach"},
		"no target, for a script":      {create: 409, body: problem("no_target"), args: "--json", code: exitNoTarget, says: problem("no_target") + "\n"},
		"another refusal":              {create: 409, body: problem("wrong_state"), fails: "wrong_state: it says why"},
		"a refusal that is none":       {create: 502, body: "bad gateway", fails: "answered 502"},
		"an answer that is none":       {create: 202, body: "hello", fails: "read the answer"},
		"not waited for":               {create: 202, body: running, args: "--no-wait", says: "drain j1: running"},
		"not waited for, and was over": {create: 200, body: jobIn(statestore.JobPartial, ""), args: "--no-wait", code: exitPartial},
		"Berth restarts meanwhile":     {create: 202, body: running, looks: []string{"", jobIn(statestore.JobSucceeded, "")}, says: "safe to stop"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &scripted{create: tt.create, body: tt.body, looks: tt.looks}
			out, notes, err := runAgainst(t, s, append([]string{"drain", "i1"}, strings.Fields(tt.args)...)...)
			var code exitCode
			if errors.As(err, &code); code != tt.code {
				t.Errorf("exit code %d, want %d: %v", code, tt.code, err)
			}
			if tt.code == 0 && (err != nil) != (tt.fails != "") || tt.fails != "" && !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("error %v, want %q", err, tt.fails)
			}
			if !strings.Contains(out+notes, tt.says) {
				t.Errorf("prints %q and %q, want %q", out, notes, tt.says)
			}
		})
	}
}

// A drain is of the boots that it found. An id under which another boot serves by
// its end is not safe to stop; one that is just gone is.
func TestADrainOfAnInstanceThatWasStartedAgain(t *testing.T) {
	t.Parallel()
	const (
		ready   = `{"state":"ready","safe_to_stop":false}`
		drained = `{"state":"drained","safe_to_stop":true}`
	)
	for name, tt := range map[string]struct {
		left  string // of i1, in the job
		fleet []string
		code  exitCode
		says  string
	}{
		"gone":                       {"gone", []string{"gone", drained}, 0, "\nsafe to stop\n"},
		"Berth restarts meanwhile":   {"gone", []string{"", "gone", drained}, 0, "\nsafe to stop\n"},
		"started again":              {"gone", []string{ready, drained}, exitPartial, "\ni1 is not safe to stop: what was drained is gone, and it was started again under the same id: the new boot is ready\ni2 is safe to stop\nberth drain i1 drains what runs there by now\n"},
		"started again, and drained": {"gone", []string{drained, drained}, 0, "\nsafe to stop\n"},
		"uncordoned":                 {"drained", []string{ready, drained}, exitPartial, "\ni1 is not safe to stop: it was drained, and was uncordoned or started again since: it is ready\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job := `{"id":"j1","kind":"drain","state":"succeeded","instances":["i1","i2"],"progress":{"instances":{"i1":{"state":"` + tt.left + `"}}}}`
			for _, args := range []string{"drain i1 i2", "jobs watch j1", "drain i1 i2 --no-wait", "drain i1 i2 --json"} {
				s := &scripted{create: 202, body: job, looks: []string{job}, fleet: tt.fleet}
				out, _, err := runAgainst(t, s, strings.Fields(args)...)
				var code exitCode
				if errors.As(err, &code); code != tt.code {
					t.Errorf("berth %s: exit code %d, want %d: %v", args, code, tt.code, err)
				}
				if strings.HasSuffix(args, "--json") {
					var doc jobAnswer
					if err := json.Unmarshal([]byte(out), &doc); err != nil || (len(doc.unsafe()) > 0) != (tt.code != 0) || doc.ID != "j1" {
						t.Errorf("berth %s prints %q: %v", args, out, err)
					}
				} else if !strings.Contains(out, tt.says) || tt.code != 0 && strings.Contains(out, "\nsafe to stop") {
					t.Errorf("berth %s prints %q, want %q", args, out, tt.says)
				}
			}
		})
	}
}

// What is asked is what the flags say, with the caller's token.
func TestWhatADrainAsksFor(t *testing.T) {
	t.Parallel()
	s := &scripted{create: 202, body: jobIn(statestore.JobSucceeded, ""), looks: []string{jobIn(statestore.JobSucceeded, "")}}
	out, _, err := runAgainst(t, s, "drain", "i1", "i2", "--mode", "linger", "--deadline", "90s", "--grace", "0s", "--at-deadline", "leave",
		"--idle-below", "1m", "--token", "secret", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var asked map[string]any
	if err := json.Unmarshal([]byte(strings.TrimPrefix(s.asked[0], "POST /v1/drains ")), &asked); err != nil {
		t.Fatalf("%v in %s", err, s.asked[0])
	}
	for name, want := range map[string]any{
		"instances": []any{"i1", "i2"}, "mode": "linger", "deadline_ms": 90000.0, "in_flight_grace_ms": 0.0, "at_deadline": "leave",
	} {
		if fmt.Sprint(asked[name]) != fmt.Sprint(want) {
			t.Errorf("%s is %v, want %v", name, asked[name], want)
		}
	}
	if s.asked[1] != "GET /v1/jobs/j1?wait=2s " || s.tokens[0] != "secret" || s.tokens[1] != "secret" {
		t.Errorf("asked %q with %q", s.asked, s.tokens)
	}
	if !json.Valid([]byte(out)) {
		t.Errorf("--json prints %q", out)
	}
}

// The lists are tables for people and the API's own JSON for scripts.
func TestLists(t *testing.T) {
	t.Parallel()
	const instances = `{"instances":[{"id":"i1","pool":"p","address":"10.0.0.1:80","state":"ready","weight":100,"running":2,"waiting":1,"sessions":7,"last_heartbeat_ms":1234},` +
		`{"id":"i2","pool":"p","state":"warming"}]}`
	const route = `{"instance":"i1","address":"10.0.0.1:80","reason":"failover","jump":true,"previous":"i9","epoch":7,"version":3,"degraded":"panic",` +
		`"fallbacks":[{"instance":"i2","address":"10.0.0.2:80"}]}`
	const silent = `{"instances":[{"id":"i1","state":"ready","last_heartbeat_ms":6100},{"id":"i2","state":"down"}]}`
	jobs := `{"jobs":[` + jobIn(statestore.JobRunning, "") + `]}`
	for _, tt := range []struct {
		args   []string
		answer string
		says   []string
		asks   string
	}{
		{[]string{"instances", "--pool", "a b"}, instances, []string{"i1", "10.0.0.1:80", "1.2s ago\n", "never"}, "GET /v1/instances?pool=a+b "},
		{[]string{"instances"}, silent, []string{"6.1s ago, overdue\n", "never\n", "every heartbeat is overdue"}, "GET /v1/instances?pool= "},
		{[]string{"instances", "--overdue-after", "7s"}, silent, []string{"6.1s ago\n"}, "GET /v1/instances?pool= "},
		{[]string{"jobs"}, jobs, []string{"j1", "running", "4"}, "GET /v1/jobs "},
		{
			[]string{"route", "s 1", "--pool", "p", "--key", "k", "--exclude", "i9:busy", "--fallbacks", "1"}, route,
			[]string{"i1  10.0.0.1:80  (failover)  last served by i9  degraded: panic", "epoch 7, version 3", "then i2  10.0.0.2:80"},
			"GET /route?exclude=i9%3Abusy&fallbacks=1&key=k&pool=p&session=s+1 ",
		},
	} {
		s := &scripted{looks: []string{tt.answer}}
		out, notes, err := runAgainst(t, s, tt.args...)
		if err != nil {
			t.Fatalf("berth %v: %v", tt.args, err)
		}
		for _, says := range tt.says {
			if !strings.Contains(out+notes, says) {
				t.Errorf("berth %v prints\n%s%s, want %q", tt.args, out, notes, says)
			}
		}
		if s.asked[0] != tt.asks {
			t.Errorf("berth %v asked %q, want %q", tt.args, s.asked[0], tt.asks)
		}
		if out, _, err = runAgainst(t, s, append(tt.args, "--json")...); err != nil || strings.TrimSpace(out) != tt.answer {
			t.Errorf("berth %v --json prints %q: %v", tt.args, out, err)
		}
	}
}

// An instance is closed for new sessions and opened again, also after a drain.
func TestCordonOnTheCommandLine(t *testing.T) {
	t.Parallel()
	for action, state := range map[string]string{"cordon": "cordoned", "uncordon": "ready"} {
		s := &scripted{create: 200, body: fmt.Sprintf(`{"state":%q}`, state)}
		out, _, err := runAgainst(t, s, action, "i 1")
		if err != nil || out != "i 1: "+state+"\n" || s.asked[0] != "POST /v1/instances/i%201/"+action+" " {
			t.Errorf("%s asks %q, prints %q: %v", action, s.asked, out, err)
		}
		s = &scripted{create: 409, body: `{"code":"wrong_state","status":409,"detail":"it is warming"}`}
		if _, _, err := runAgainst(t, s, action, "i1"); err == nil || !strings.Contains(err.Error(), "it is warming") {
			t.Errorf("a refused %s: %v", action, err)
		}
	}
}
