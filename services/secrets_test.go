package services_test

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"berth/services"
	"berth/statestore"
)

// Everything a journey handles that nobody may find in a log: tokens, incarnations
// and handles as they were given out, ids of sessions, affinity keys and contents.
// None of it shows in a refusal either, but for the ids that the caller sent.
func TestLogsAndRefusalsTellNoSecret(t *testing.T) {
	t.Parallel()
	var tokens []services.Token
	for _, token := range []services.Token{gateway, workers, operator} {
		token.Token = secret(token.Name)
		tokens = append(tokens, token)
	}
	set, err := services.NewTokens(tokens)
	if err != nil {
		t.Fatal(err)
	}
	b, store := setupFaulty(t, func(o *services.Options) { o.Tokens = set })
	given := map[string]bool{}
	var refusals []string
	secretMember := regexp.MustCompile(`"(?:handle|incarnation)":"([^"]{20,})"`)
	b.saw = func(a answer) {
		for _, m := range secretMember.FindAllStringSubmatch(string(a.body), -1) {
			given[m[1]] = true
		}
		if h := a.header.Get("X-Berth-Handle"); h != "" {
			given[h] = true
		}
		if strings.HasPrefix(a.header.Get("Content-Type"), "application/problem") {
			refusals = append(refusals, string(a.body))
		}
	}
	secretJourney(t, b, store)
	if len(given) < 8 || len(refusals) < 10 {
		t.Fatalf("the journey gave out %d secrets and %d refusals: it is none", len(given), len(refusals))
	}
	for _, token := range tokens {
		given[token.Token] = true
	}
	for s := range given {
		for _, r := range refusals {
			if strings.Contains(r, s) {
				t.Errorf("a refusal tells %q: %s", s, r)
			}
		}
	}
	for _, s := range []string{"private-session", "private-key", "private content", "private meta", "private reason", "private-op"} {
		given[s] = true
	}
	logs := b.logs.String()
	for s := range given {
		if strings.Contains(logs, s) {
			t.Errorf("the log tells %q:\n%s", s, logs)
		}
	}
	if !strings.Contains(logs, "audit") || !strings.Contains(logs, "call failed") {
		t.Fatalf("the journey logged next to nothing:\n%s", logs)
	}
}

// secretJourney makes every kind of call, good and bad.
func secretJourney(t *testing.T, b *bundle, store *faulty) {
	const session = "private-session"
	gw, op := b.as("gateway"), b.as("operator")
	w1, w2 := b.as("worker").worker("i1"), b.as("worker").worker("i2")
	hint := gw.route(session, "&key=private-key").want(200)
	owner, other := w1, w2
	if hint.str("instance") == w2.id {
		owner, other = w2, w1
	}
	h := owner.append(session, "private-op", hint.str("handle"), `"private content"`, `"meta":{"a":"private meta"}`).want(200).str("handle")
	owner.append(session, "private-op", h, `"other private content"`).refused(422, "op_reused")
	owner.append(session, "private-op-2", h+"A", `"private content"`).refused(403, "bad_handle")
	owner.append(session, "private-op-2", h, `"private content" x`).refused(400, "malformed")
	owner.append(session, "private-op-2", hint.str("handle"), `"private content"`).want(409)
	owner.call("POST", "/v1/recover", `{"session":"`+session+`","handle":"`+h+`","private content":1}`).refused(422, "invalid")
	other.recover(session, h, "claim").refused(403, "bad_handle")
	other.recover(session, "", "prewarm").want(200)
	fail := gw.route(session, "&exclude="+owner.id).want(200)
	other.recover(session, fail.str("handle"), "claim").want(200)
	owner.append(session, "private-op-3", h, `"private content, late"`).refused(409, "not_owner")
	owner.recover(session, "", "read").want(200)
	owner.finish(session, h).want(409)
	gw.call("DELETE", "/v1/sessions/"+session, "", "X-Berth-Handle: "+h).want(409)
	owner.call("PUT", "/v1/sessions/"+session+"/kv", `{"instance":"`+owner.id+`","incarnation":"`+owner.incarnation+`","placements":[{"tier":"disk","tokens":1,"version":1}]}`).want(204)
	gw.call("POST", "/v1/outcomes", `{"outcomes":[{"session":"`+session+`","handle":"`+fail.str("handle")+`","instance":"i1","result":"ok"}]}`).want(202)
	owner.call("POST", "/v1/instances/i1/tasks/none", `{"incarnation":"`+owner.incarnation+`","result":"failed","reason":"private reason"}`)
	op.call("GET", "/v1/sessions/"+session, "").want(200)
	op.call("GET", "/v1/sessions/"+session+"/history", "").want(200)
	op.call("GET", "/v1/sessions?key=private-key", "").want(200)
	op.call("GET", "/v1/instances", "").want(200)

	for _, fault := range []func(context.Context, string) error{
		away,
		func(context.Context, string) error {
			return &statestore.OutcomeUnknownError{Err: context.DeadlineExceeded}
		},
		func(context.Context, string) error { panic("a bug") },
	} {
		store.fail(func(ctx context.Context, call string) error {
			if call == "fleet" {
				return nil
			}
			return fault(ctx, call)
		})
		other.append(session, "private-op-4", fail.str("handle"), `"private content"`)
		other.recover(session, fail.str("handle"), "claim")
		store.fail(nil)
	}
	op.call("DELETE", "/v1/sessions/"+session, "").want(200)
	owner.append(session, "private-op-5", h, `"private content"`).want(410)
	w1.call("DELETE", "/v1/instances/i1", "", "X-Berth-Incarnation: "+w1.incarnation).want(204)
	op.call("GET", "/v1/sessions/"+session, "").refused(410, "deleted")
}
