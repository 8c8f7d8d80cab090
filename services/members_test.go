package services_test

import (
	"strings"
	"testing"
)

// A body that is well-formed and wrong is refused as invalid, with the member that is
// wrong and in words of the API: no type of Go, no act of this program, nothing twice.
func TestTheMemberThatIsWrongIsNamed(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("9", 100)
	cases := []struct{ path, body, location, message string }{
		{"/v1/drains", `{"instances":[]}`, "body.instances", "must be 1 to 1000"},
		{"/v1/drains", `{"instances":["i1","i2","i1"]}`, "body.instances[2]", "i1 is named twice"},
		{"/v1/drains", `{"instances":["a b"]}`, "body.instances[0]", "must be 1 to 63 letters, digits, '.', '_' and '-'"},
		{"/v1/drains", `{"instances":["i1","e1"]}`, "body.instances", "must be of one pool: those of other and default need a drain each"},
		{"/v1/drains", `{"instances":["i1"],"mode":"x"}`, "body.mode", "must be migrate, linger or detach"},
		{"/v1/drains", `{"instances":["i1"],"mode":"x","dry_run":true}`, "body.mode", "must be migrate, linger or detach"},
		{"/v1/drains", `{"instances":["i1"],"at_deadline":"x"}`, "body.at_deadline", "must be commit or leave"},
		{"/v1/drains", `{"instances":["i1"],"deadline_ms":-1}`, "body.deadline_ms", "expected number >= 1"},
		{"/v1/drains", `{"instances":["i1"],"deadline_ms":0}`, "body.deadline_ms", "expected number >= 1"},
		{"/v1/drains", `{"instances":["i1"],"pace":{"per_target":0}}`, "body.pace.per_target", "expected number >= 1"},
		// As a duration of 64 bits it would be some hours.
		{"/v1/drains", `{"instances":["i1"],"deadline_ms":18446760000000}`, "body.deadline_ms", "must be 1 to 604800000"},
		{"/v1/drains", `{"instances":["i1"],"in_flight_grace_ms":18446760000000}`, "body.in_flight_grace_ms", "must be 0 to 604800000"},
		{"/v1/drains", `{"instances":["i1"],"in_flight_grace_ms":-1}`, "body.in_flight_grace_ms", "must be 0 to 604800000"},
		{"/v1/drains", `{"instances":["i1"],"pace":{"sessions_per_s":-1}}`, "body.pace.sessions_per_s", "must not be negative"},
		{"/v1/drains", `{"instances":["i1"],"pace":{"bytes_per_s":-1}}`, "body.pace.bytes_per_s", "must not be negative"},
		{"/v1/drains", `{"instances":["i1"],"pace":{"tokens_per_s":-1}}`, "body.pace.tokens_per_s", "must not be negative"},
		{"/v1/drains", `{"instances":["i1"],"pace":{"retries":-1}}`, "body.pace.retries", "must not be negative"},
		{"/v1/drains", `{"instances":["i1"],"pace":{"concurrency":0}}`, "body.pace.concurrency", "expected number >= 1"},
		{"/v1/drains", `{"instances":["i1"],"pace":{"per_target":1025}}`, "body.pace.per_target", "must be 1 to 1024"},
		{"/v1/drains", `{"instances":["i1"],"prewarm":{"idle_below_ms":-1}}`, "body.prewarm.idle_below_ms", "must not be negative"},
		{"/v1/drains", `{"instances":["i1"],"prewarm":{"tokens_per_s":-1}}`, "body.prewarm.tokens_per_s", "must not be negative"},
		{"/v1/drains", `{"instances":["i1"],"deadline_ms":` + long + `}`, "body.deadline_ms", "want an integer of 64 bits, got number " + long[:33] + "…"},
		{"/v1/rebalances", `{"instance":"i1","sessions":["s"]}`, "body.sessions", "may not come together with an instance"},
		{"/v1/drains", `{"instances":["i1"],"avoid":{"":""}}`, "body.avoid", "must have no label without a name"},
		{"/v1/rebalances", `{"sessions":[]}`, "body.sessions", "must name some; without it a rebalance goes by load"},
		{"/v1/rebalances", `{"sessions":["s","s"]}`, "body.sessions[1]", "is named twice"},
		{"/v1/rebalances", `{"sessions":["s",""]}`, "body.sessions[1]", "must be 1 to 256 bytes of UTF-8 without control characters"},
		{"/v1/rebalances", `{"instance":"i1","target":"i1"}`, "body.target", "must be another instance than the one that is relieved"},
		{"/v1/rebalances", `{"target":"a b"}`, "body.target", "must be 1 to 63 letters, digits, '.', '_' and '-'"},
		{"/v1/rebalances", `{"deadline_ms":0}`, "body.deadline_ms", "expected number >= 1"},
		{"/v1/rebalances", `{"deadline_ms":-1}`, "body.deadline_ms", "expected number >= 1"},
		{"/v1/recover", `{"session":"s"}`, "body.instance", "instance id must have 1 to 63 characters"},
		{"/v1/recover", `{"session":"s","mode":"prewarm","instance":"a b"}`, "body.instance", "instance id may hold only letters, digits, '.', '_' and '-'"},
		{"/v1/sessions/s/turns", `{"op":"o","turns":[{"value":1}]}`, "body.instance", "instance id must have 1 to 63 characters"},
		{"/v1/sessions/s/turns", `{"op":"a b","handle":"h","instance":"i1","incarnation":"x","turns":[{"value":1}]}`, "body.op", "op may hold only printable ASCII without spaces"},
		{"/v1/sessions/s/turns", `{"base":-1}`, "body.base", "want an integer from 0 to 2^64-1, got number -1"},
		{"/v1/sessions/s/turns", `{"op":1}`, "body.op", "want a string, got number"},
		{"/v1/sessions/s/turns", `{"turns":[{"base64":{}}]}`, "body.turns[0].base64", "want a string, got object"},
		{"/v1/sessions/s/finish", `{"handle":"h","instance":"","incarnation":"x"}`, "body.instance", "instance id must have 1 to 63 characters"},
	}
	b := setup(t)
	b.worker("i1")
	b.worker("i2")
	b.worker("e1", `"pool":"other"`)
	for _, tc := range cases {
		a := b.call("POST", tc.path, tc.body).refused(422, "invalid")
		if a.str("errors.0.location") != tc.location || a.str("errors.0.message") != tc.message {
			t.Errorf("%s %.80s: %s, want %s: %s", tc.path, tc.body, a.body, tc.location, tc.message)
		}
		if a.str("detail") != tc.location+": "+tc.message {
			t.Errorf("%s %.80s: detail %s", tc.path, tc.body, a.str("detail"))
		}
	}
	b.call("PUT", "/v1/instances/new", `{"pool":"a b","address":"10.0.0.9:1"}`).refused(422, "invalid")
}

// What a refusal says is about the thing that is refused.
func TestDetailsSayWhatIsWrongAndNoMore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.worker("i1")
	b.worker("e1", `"pool":"other"`)
	large := strings.Repeat("x", 300<<10)
	for _, tc := range []struct {
		method, path, body string
		status             int
		detail             string
	}{
		{"POST", "/v1/drains", `{"instances":["i9"]}`, 404, "instance i9 is not registered"},
		{"POST", "/v1/drains", `{"instances":["i9"],"dry_run":true}`, 404, "instance i9 is not registered"},
		{"POST", "/v1/rebalances", `{"instance":"i9"}`, 404, "instance i9 is not registered"},
		{"POST", "/v1/rebalances", `{"target":"e1"}`, 404, "instance e1 is not registered in pool default"},
		{"POST", "/v1/drains", `{"instances":["i1"]}`, 409, "no other instance is in the pool: 0 would have to move"},
		{"GET", "/v1/sessions/a%00b", "", 400, "session id has a control character"},
		{"GET", "/v1/sessions?cursor=%00zz", "", 400, "query.cursor: is not one that a list answered"},
		{"POST", "/v1/recover", `{"session":"` + large[:257] + `"}`, 400, "body.session: session id has 257 bytes, at most 256 are allowed"},
		{"POST", "/v1/outcomes", `{"outcomes":[{"session":"\u0000","instance":"i1","result":"ok"}]}`, 400, "body.outcomes[0].session: session id has a control character"},
		{"POST", "/v1/drains", `{"instances":["` + large + `"]}`, 413, "body of 307218 bytes, at most 262144 are allowed"},
		{"POST", "/v1/drains", `{"deadline_ms":1e400}`, 400, "body: want a number in the range of 64 bits, got number 1e400"},
	} {
		a := b.call(tc.method, tc.path, tc.body).want(tc.status)
		if a.str("detail") != tc.detail {
			t.Errorf("%s %s %.60s: detail %q, want %q", tc.method, tc.path, tc.body, a.str("detail"), tc.detail)
		}
	}
}
