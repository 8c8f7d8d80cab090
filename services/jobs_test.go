package services_test

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"berth/services"
)

// quick lets the hints of before end soon.
func quick(o *services.Options) { o.HintValid, o.CacheTTL = 100*time.Millisecond, 100*time.Millisecond }

// crowd begins sessions that all belong to the first worker.
func (b *bundle) crowd(n int, owner, other *worker) {
	b.t.Helper()
	for i := range n {
		id := fmt.Sprintf("crowd-%d", i)
		hint := b.route(id, "&exclude="+other.id+":busy").want(200)
		owner.append(id, "first", hint.str("handle"), `"hello"`, `"usage":{}`).want(200)
	}
}

// A dry run of a drain says who would move and what that costs, and begins nothing.
func TestDryRunOfADrain(t *testing.T) {
	t.Parallel()
	b := setup(t, quick)
	w1, w2 := b.worker("i1"), b.worker("i2")
	b.crowd(5, w1, w2)
	plan := b.call("POST", "/v1/drains", `{"instances":["i1"],"in_flight_grace_ms":0,"dry_run":true}`).want(200)
	if plan.str("sessions") != "5" || plan.str("targets.i2.sessions") != "5" || plan.str("moves.4.to") != "i2" || plan.str("bytes") != "35" {
		t.Errorf("plan %s", plan.body)
	}
	if plan.header.Get("Location") != "" {
		t.Errorf("a dry run is at %s", plan.header.Get("Location"))
	}
	if a := b.call("GET", "/v1/jobs", "").want(200); a.at("jobs.0") != nil {
		t.Errorf("jobs: %s", a.body)
	}
	if a := w1.beat(0); a.str("state") != "ready" {
		t.Errorf("the instance is %s", a.str("state"))
	}
	b.call("POST", "/v1/drains", `{"instances":["i1","i2"],"dry_run":true}`).refused(409, "no_target")
	b.call("POST", "/v1/drains", `{"instances":["i1"],"dry_run":"yes"}`).refused(422, "invalid")
}

// A drain that is under way answers the same request again, and what asks for something
// else: it says what it was asked itself.
func TestADrainThatExistsSaysWhatItWasAsked(t *testing.T) {
	t.Parallel()
	b := setup(t, quick)
	w1, _ := b.worker("i1"), b.worker("i2")
	w1.beat(1)
	job := b.call("POST", "/v1/drains", `{"instances":["i1"],"mode":"linger","deadline_ms":300000}`).want(202)
	if job.str("spec.mode") != "linger" || job.str("spec.prewarm.idle_below_ms") != "600000" || job.str("spec.pace.concurrency") != "16" {
		t.Errorf("it says it was asked for %v", job.at("spec"))
	}
	again := b.call("POST", "/v1/drains", `{"instances":["i1"],"deadline_ms":1000}`).want(200)
	if again.str("id") != job.str("id") || again.str("mode") != "linger" || again.str("time_ms") != "300000" {
		t.Errorf("again: %s", again.body)
	}
	other := b.call("POST", "/v1/rebalances", `{"instance":"i2"}`).want(202)
	if other.at("mode") != nil || other.at("spec") != nil || other.str("time_ms") != "600000" {
		t.Errorf("a rebalance: %s", other.body)
	}
}

// Named sessions are rebalanced to the target that the operator chose; asked again
// for an instance, the same job is answered, and another in the pool is refused.
func TestRebalances(t *testing.T) {
	t.Parallel()
	b := setup(t, quick)
	w1, w2 := b.worker("i1"), b.worker("i2")
	b.crowd(3, w1, w2)
	dry := b.call("POST", "/v1/rebalances", `{"sessions":["crowd-0","crowd-1"],"target":"i2","in_flight_grace_ms":0,"dry_run":true}`).want(200)
	if dry.str("sessions") != "2" || dry.str("moves.0.to") != "i2" {
		t.Errorf("plan %s", dry.body)
	}
	job := b.call("POST", "/v1/rebalances", `{"sessions":["crowd-0","crowd-1"],"target":"i2","in_flight_grace_ms":0}`).want(202)
	if job.str("kind") != "rebalance" || job.header.Get("Location") != "/v1/jobs/"+job.str("id") {
		t.Errorf("job %s at %s", job.body, job.header.Get("Location"))
	}
	b.ended(job.str("id"), "succeeded")
	for id, want := range map[string]string{"crowd-0": "i2", "crowd-1": "i2", "crowd-2": "i1"} {
		if got := b.route(id).want(200).str("instance"); got != want {
			t.Errorf("%s is on %s, want %s", id, got, want)
		}
	}
	b.call("POST", "/v1/rebalances", `{"instance":"nobody"}`).refused(404, "unknown_instance")
	b.call("POST", "/v1/rebalances?pool=nowhere", `{}`).refused(404, "unknown_pool")
	b.call("POST", "/v1/rebalances", `{"instance":"i1","sessions":["s"]}`).refused(422, "invalid")
	b.call("POST", "/v1/instances/i2/cordon", "").want(200)
	a := b.call("POST", "/v1/rebalances", `{"sessions":["crowd-2"],"target":"i2"}`).refused(409, "no_target")
	if a.str("candidates.0") != "i2" || a.str("detail") != "the target i2 may not take sessions: it is cordoned" {
		t.Errorf("refused with %s", a.body)
	}
}

// ended waits for the end of a job.
func (b *bundle) ended(id, state string) answer {
	b.t.Helper()
	var a answer
	eventually(b.t, "the job ends", func() bool {
		a = b.call("GET", "/v1/jobs/"+id+"?wait=1s", "").want(200)
		return a.str("state") != "running" && a.str("state") != "pending" && a.str("state") != "planning"
	})
	if a.str("state") != state {
		b.t.Fatalf("the job ended as %s", a.body)
	}
	return a
}

// A job is paused, resumed and cancelled; its events tell of all of it, and end with
// it.
func TestAJobIsControlledAndFollowed(t *testing.T) {
	t.Parallel()
	b := setup(t, quick)
	w1, w2 := b.worker("i1"), b.worker("i2")
	b.crowd(40, w1, w2)
	job := b.call("POST", "/v1/drains", `{"instances":["i1"],"in_flight_grace_ms":0,"pace":{"sessions_per_s":1}}`).want(202).str("id")
	told, ended := b.follow("/v1/jobs/" + job + "/events")
	is := func(state string) {
		t.Helper()
		eventually(t, "the job is "+state, func() bool { return b.call("GET", "/v1/jobs/"+job, "").want(200).str("state") == state })
	}
	// tells waits until the events tell of a state as well, which nobody else changes.
	tells := func(state string) {
		t.Helper()
		is(state)
		limit := time.NewTimer(patience)
		defer limit.Stop()
		for got := ""; got != state; {
			select {
			case next, open := <-told:
				if got = next; !open {
					t.Fatalf("the events ended before they told that the job is %s", state)
				}
			case <-limit.C:
				t.Fatalf("the events do not tell that the job is %s", state)
			}
		}
	}
	tells("running")
	b.call("POST", "/v1/jobs/"+job+"/pause", "").want(202)
	tells("paused")
	b.call("POST", "/v1/jobs/"+job+"/resume", "").want(202)
	tells("running")
	b.call("POST", "/v1/jobs/"+job+"/cancel", "").want(202)
	is("cancelled")
	if a := w1.beat(0); a.str("state") != "ready" {
		t.Errorf("the instance is %s", a.str("state"))
	}
	for _, late := range []string{"pause", "resume"} {
		b.call("POST", "/v1/jobs/"+job+"/"+late, "").refused(409, "wrong_state")
	}
	b.call("POST", "/v1/jobs/"+job+"/cancel", "").want(202)
	is("cancelled")
	if last := <-ended; last != "cancelled" {
		t.Errorf("the last event says %q", last)
	}
	b.call("GET", "/v1/jobs/none/events", "").refused(404, "not_found")
}

// follow reads server-sent events until they end. told gets the states of the events
// named progress, without repetitions; ended that of the one named end.
func (b *bundle) follow(path string) (told, ended <-chan string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.url+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	if ct := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || ct != "text/event-stream" {
		b.t.Fatalf("status %d, %s", resp.StatusCode, ct)
	}
	states, last := make(chan string, 100), make(chan string, 1)
	go func() {
		defer close(states)
		defer close(last)
		defer resp.Body.Close() //nolint:errcheck // read to its end
		name, before := "", ""
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			field, value, _ := strings.Cut(lines.Text(), ": ")
			if field == "event" {
				name = value
			}
			if field != "data" {
				continue
			}
			state := answer{t: b.t, body: []byte(value)}.str("state")
			if name == "end" {
				last <- state
			} else if state != before {
				states <- state
				before = state
			}
		}
	}()
	return states, last
}

// A pool whose policy asks for it relieves an instance that stays over its bound.
func TestAPoolRebalancesByItself(t *testing.T) {
	t.Parallel()
	b := setup(t, quick)
	w1, _ := b.worker("i1"), b.worker("i2")
	w1.beat(30)
	if a := b.call("GET", "/v1/jobs", "").want(200); a.at("jobs.0") != nil {
		t.Fatalf("unasked: %s", a.body)
	}
	b.call("PUT", "/v1/pools/default/policy", `{"rebalance":{"mode":"always"}}`).refused(422, "invalid")
	b.call("PUT", "/v1/pools/default/policy", `{"rebalance":{"mode":"auto","after_ms":1000}}`).want(200)
	eventually(t, "a rebalance begins", func() bool {
		a := b.call("GET", "/v1/jobs", "").want(200)
		return a.str("jobs.0.kind") == "rebalance" && a.str("jobs.0.instances.0") == "i1"
	})
}

// Only a drained instance is safe to stop; any other one has a reason against it.
func TestOnlyDrainedIsSafeToStop(t *testing.T) {
	t.Parallel()
	b := setup(t, quick)
	w1, w2 := b.worker("i1"), b.worker("i2")
	says := func(want string) {
		t.Helper()
		a := b.call("GET", "/v1/instances/i1", "").want(200)
		got := a.str("safe_to_stop")
		for i := 0; a.at(fmt.Sprintf("because.%d", i)) != nil; i++ {
			got += fmt.Sprintf(" %s:%s", a.str(fmt.Sprintf("because.%d.reason", i)), a.str(fmt.Sprintf("because.%d.count", i)))
		}
		if got != want {
			t.Errorf("says %q, want %q", got, want)
		}
	}
	says("false job:0")
	b.crowd(2, w1, w2)
	w1.beat(3)
	says("false sessions:2 in_flight:3 job:0")
	job := b.call("POST", "/v1/drains", `{"instances":["i1"],"in_flight_grace_ms":0}`).want(202).str("id")
	eventually(t, "its sessions have moved", func() bool {
		return b.call("GET", "/v1/jobs/"+job, "").want(200).str("progress.moved") == "2"
	})
	says("false in_flight:3 job:1")
	eventually(t, "it is drained", func() bool { return w1.beat(0).str("state") == "drained" })
	says("true")
	if a := b.call("GET", "/v1/instances/i2", "").want(200); a.str("drain_cost.sessions") != "2" || a.str("drain_cost.tokens") == "" {
		t.Errorf("cost of draining i2: %s", a.body)
	}
	b.call("PUT", "/v1/instances/i3", `{"address":"10.0.0.3:80"}`).want(200)
	if a := b.call("GET", "/v1/instances/i3", "").want(200); a.str("because.0.reason") != "unknown_in_flight" {
		t.Errorf("never heard of: %s", a.body)
	}
}

// What jobs do shows in the metrics, by their kind.
func TestMetricsOfJobs(t *testing.T) {
	t.Parallel()
	b := setup(t, quick)
	w1, w2 := b.worker("i1"), b.worker("i2")
	b.crowd(30, w1, w2)
	w1.beat(1)
	job := b.call("POST", "/v1/drains", `{"instances":["i1"],"in_flight_grace_ms":0,"pace":{"sessions_per_s":20}}`).want(202).str("id")
	metrics := func() string { return string(b.call("GET", "/metrics", "").want(200).body) }
	eventually(t, "the job shows", func() bool {
		m := metrics()
		return strings.Contains(m, `berth_job_held{kind="drain",state="running"} 1`) && strings.Contains(m, `berth_job_left_sessions{kind="drain"}`) &&
			strings.Contains(m, `berth_job_oldest_waiting_seconds{kind="drain"} 0`) && strings.Contains(m, `berth_job_last_progress_seconds{kind="drain"}`)
	})
	b.typesAreAsInTheTable()
	eventually(t, "it is drained", func() bool {
		w1.beat(0)
		return b.call("GET", "/v1/jobs/"+job, "").want(200).str("state") == "succeeded"
	})
	eventually(t, "the end shows", func() bool {
		return strings.Contains(metrics(), `berth_job_ended_total{kind="drain",state="succeeded"} 1`)
	})
	b.typesAreAsInTheTable()
	m := metrics()
	for _, want := range []string{
		`berth_job_sessions_total{kind="drain",result="moved"} 30`, `berth_job_moved_bytes_total{kind="drain"} 210`,
		`berth_job_phase_seconds_count{kind="drain",phase="moving"} 1`, `berth_job_phase_seconds_sum{kind="drain",phase="settling"}`,
	} {
		if !strings.Contains(m, want) {
			t.Errorf("no %s", want)
		}
	}
}

// A job is about everybody's sessions; whose token is for one tenant is told how many
// there are, and the names of its own.
func TestJobsNameNoSessionsOfOtherTenants(t *testing.T) {
	t.Parallel()
	both, all, one := workers, operator, operator
	both.Tenants, all.Tenants, one.Name, one.Tenants = []string{"*"}, []string{"*"}, "one", []string{"a"}
	b := setupTokens(t, both, all, one)
	w := b.as("worker")
	w1 := w.worker("i1")
	for _, tenant := range []string{"a", "b"} {
		hint := w.call("GET", "/route?session=s-of-"+tenant, "", "X-Berth-Tenant: "+tenant).want(200)
		body := fmt.Sprintf(`{"op":"o","handle":%q,"instance":"i1","incarnation":%q,"turns":[{"value":1}]}`, hint.str("handle"), w1.incarnation)
		w.call("POST", "/v1/sessions/s-of-"+tenant+"/turns", body, "X-Berth-Tenant: "+tenant).want(200)
	}
	w.worker("i2")
	order := `{"instances":["i1"],"at_deadline":"leave","mode":"linger","deadline_ms":1000`
	job := b.as("operator").call("POST", "/v1/drains", order+`}`).want(202).str("id")
	ended := b.as("operator").ended(job, "partial")
	if ended.str("progress.left.0.session") == "" || ended.str("progress.left.1.session") == "" {
		t.Fatalf("the job ended as %s", ended.body)
	}
	plan := `{"instances":["i1"],"dry_run":true,"in_flight_grace_ms":0}`
	for _, a := range []answer{
		b.as("one").call("GET", "/v1/jobs/"+job, ""), b.as("one").call("GET", "/v1/jobs", ""), b.as("one").call("POST", "/v1/drains", plan),
	} {
		if body := string(a.want(200).body); !strings.Contains(body, "s-of-a") || strings.Contains(body, "s-of-b") {
			t.Errorf("told of %s", body)
		}
	}
	if a := b.as("one").call("POST", "/v1/drains", plan); a.str("sessions") != "2" {
		t.Errorf("plan %s", a.body)
	}
}
