package services_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"berth/services"
)

// secret is the token of the bearer of a name.
func secret(name string) string { return "secret-of-" + name }

// setupTokens is setup with tokens; each has its name's secret.
func setupTokens(t testing.TB, tokens ...services.Token) *bundle {
	t.Helper()
	for i := range tokens {
		tokens[i].Token = secret(tokens[i].Name)
	}
	set, err := services.NewTokens(tokens)
	if err != nil {
		t.Fatal(err)
	}
	return setup(t, func(o *services.Options) { o.Tokens = set })
}

// as is the same bundle, called by the bearer of a token.
func (b *bundle) as(name string) *bundle {
	same := *b
	same.token = secret(name)
	return &same
}

var (
	gateway  = services.Token{Name: "gateway", Roles: []services.Role{services.RoleGateway}}
	workers  = services.Token{Name: "worker", Roles: []services.Role{services.RoleWorker}}
	operator = services.Token{Name: "operator", Roles: []services.Role{services.RoleOperator}}
)

func TestEveryCallNeedsItsRole(t *testing.T) {
	t.Parallel()
	b := setupTokens(t, gateway, workers, operator)
	w := b.as("worker").worker("i1")
	hint := b.as("gateway").route("s").want(200)
	h := w.append("s", "first", hint.str("handle"), `1`).want(200).str("handle")
	by := fmt.Sprintf(`"instance":"i1","incarnation":%q`, w.incarnation)
	write := fmt.Sprintf(`{"op":"o","handle":%q,%s,"turns":[{"value":1}]}`, h, by)
	const worker, operator, gateway = "worker", "operator", "gateway"
	calls := []struct {
		method, path, body string
		roles              []string
	}{
		{"POST", "/v1/outcomes", `{"outcomes":[]}`, []string{gateway, worker}},
		{"PUT", "/v1/instances/i2", `{"address":"10.0.0.2:1"}`, []string{worker, operator}},
		{"POST", "/v1/instances/i1/heartbeat", fmt.Sprintf(`{"incarnation":%q,"running":0,"waiting":0}`, w.incarnation), []string{worker}},
		{"GET", "/v1/instances/i1/tasks", "", []string{worker}},
		{"POST", "/v1/instances/i1/tasks/none", fmt.Sprintf(`{"incarnation":%q,"result":"done"}`, w.incarnation), []string{worker}},
		{"GET", "/v1/instances", "", []string{operator}},
		{"GET", "/v1/instances/i1", "", []string{operator, worker}},
		{"PATCH", "/v1/instances/i1", `{"weight":null}`, []string{operator}},
		{"POST", "/v1/instances/i1/cordon", "", []string{operator}},
		{"POST", "/v1/instances/i1/uncordon", "", []string{operator}},
		{"DELETE", "/v1/instances/i3", "", []string{operator}},
		{"POST", "/v1/recover", fmt.Sprintf(`{"session":"s","mode":"read",%s}`, by), []string{worker}},
		{"POST", "/v1/recover", `{"session":"s","mode":"read"}`, []string{worker}},
		{"GET", "/v1/sessions/s", "", []string{worker, operator, gateway}},
		{"POST", "/v1/sessions/s/turns", write, []string{worker}},
		{"PUT", "/v1/sessions/s", write, []string{worker}},
		{"PUT", "/v1/sessions/s/kv", fmt.Sprintf(`{%s,"placements":[]}`, by), []string{worker}},
		{"POST", "/v1/sessions/s/finish", fmt.Sprintf(`{%s,"handle":%q}`, by, h), []string{worker}},
		{"GET", "/v1/sessions/s/history", "", []string{operator}},
		{"GET", "/v1/sessions", "", []string{operator}},
		{"GET", "/v1/sessions/s/parked", "", []string{operator}},
		{"DELETE", "/v1/sessions?key=nobody", "", []string{operator}},
		{"GET", "/v1/pools", "", []string{operator}},
		{"GET", "/v1/pools/default/policy", "", []string{operator}},
		{"PUT", "/v1/pools/other/policy", `{}`, []string{operator}},
		{"DELETE", "/v1/pools/other", "", []string{operator}},
		{"GET", "/v1/ring", "", []string{operator}},
		{"GET", "/v1/snapshot?sessions=hash", "", []string{operator}},
		{"POST", "/v1/drains", `{"instances":["none"]}`, []string{operator}},
		{"GET", "/v1/jobs", "", []string{operator}},
		{"GET", "/v1/jobs/none", "", []string{operator, worker}},
		{"GET", "/v1/jobs/none/events", "", []string{operator, worker}},
		{"POST", "/v1/jobs/none/cancel", "", []string{operator}},
		{"POST", "/v1/jobs/none/pause", "", []string{operator}},
		{"POST", "/v1/jobs/none/resume", "", []string{operator}},
		{"POST", "/v1/rebalances", `{"instance":"none"}`, []string{operator}},
		{"GET", "/metrics", "", []string{operator, worker, gateway}},
		{"GET", "/route?session=s", "", []string{operator, worker, gateway}},
		{"DELETE", "/v1/sessions/none", "", []string{operator}},
	}
	for _, c := range calls {
		b.call(c.method, c.path, c.body).refused(401, "unauthorized")
		b.as("nobody").call(c.method, c.path, c.body).refused(401, "unauthorized")
		for _, role := range []string{gateway, worker, operator} {
			a := b.as(role).call(c.method, c.path, c.body, "X-Berth-Incarnation: "+incarnationFor(c.path, w))
			allowed := slices.Contains(c.roles, role)
			if forbidden := a.status == 403 || a.status == 422 && strings.Contains(string(a.body), "only operators"); forbidden == allowed {
				t.Errorf("%s %s as %s: %d %s", c.method, c.path, role, a.status, a.body)
			}
		}
	}
}

// incarnationFor is sent only where the call is the worker's own.
func incarnationFor(path string, w *worker) string {
	if strings.HasSuffix(path, "/tasks") {
		return w.incarnation
	}
	return ""
}

// The service's own token may stand beside the end user's.
func TestTheServicesTokenWins(t *testing.T) {
	t.Parallel()
	b := setupTokens(t, gateway, workers)
	b.as("worker").worker("i1")
	b.call("GET", "/route?session=s", "", "Authorization: Bearer "+secret("gateway")).want(200)
	b.call("GET", "/route?session=s", "", "Authorization: bearer   "+secret("gateway")).want(200)
	b.call("GET", "/route?session=s", "", "Authorization: Bearer sk-user", "X-Berth-Token: "+secret("gateway")).want(200)
	b.call("GET", "/route?session=s", "", "Authorization: Bearer "+secret("gateway"), "X-Berth-Token: wrong").refused(401, "unauthorized")
	b.call("GET", "/route?session=s", "", "Authorization: Basic "+secret("gateway")).refused(401, "unauthorized")
}

// A session of another tenant is not there, whatever is asked of it.
func TestTenantsDoNotSeeEachOther(t *testing.T) {
	t.Parallel()
	acme, globex := workers, workers
	acme.Name, acme.Tenants, acme.Roles = "acme", []string{"acme"}, []services.Role{services.RoleWorker, services.RoleGateway}
	globex.Name, globex.Tenants, globex.Roles = "globex", []string{"globex"}, acme.Roles
	every := operator
	every.Tenants = []string{"*"}
	few := operator
	few.Name, few.Tenants = "few", []string{"globex"}
	b := setupTokens(t, acme, globex, every, few)
	w := b.as("acme").worker("i1")
	h := w.append("s", "first", w.route("s").want(200).str("handle"), `"of acme"`).want(200).str("handle")

	stranger := b.as("globex")
	thief := &worker{bundle: stranger, id: "i1", incarnation: w.incarnation} // the instance serves both
	stranger.call("GET", "/v1/sessions/s", "").refused(404, "not_found")
	if a := stranger.route("s").want(200); a.str("new") != "true" || a.str("version") != "0" {
		t.Fatalf("route of another tenant: %s", a.body)
	}
	if a := thief.recover("s", "", "claim").want(200); a.str("new") != "true" {
		t.Fatalf("claim by another tenant: %s", a.body)
	}
	if a := thief.append("s", "op", h, `1`).refused(403, "bad_handle"); a.str("why") != "other_session" {
		t.Fatalf("append with another tenant's handle: %s", a.body)
	}
	for _, c := range []answer{
		stranger.call("GET", "/v1/sessions/s", "", "X-Berth-Tenant: acme"),
		stranger.call("GET", "/route?session=s", "", "X-Berth-Tenant: acme"),
		stranger.call("POST", "/v1/recover", `{"session":"s","mode":"read"}`, "X-Berth-Tenant: acme"),
		stranger.call("DELETE", "/v1/sessions/s", "", "X-Berth-Tenant: acme", "X-Berth-Handle: "+h),
		b.as("few").call("GET", "/v1/sessions/s/history", "", "X-Berth-Tenant: acme"),
		b.as("few").call("GET", "/v1/sessions", "", "X-Berth-Tenant: acme"),
	} {
		c.refused(404, "not_found")
	}
	if a := b.as("few").call("GET", "/v1/sessions", "").want(200); a.str("sessions.0") != "" {
		t.Fatalf("list of another tenant: %s", a.body)
	}
	if a := b.as("operator").call("GET", "/v1/sessions", "").want(200); a.str("sessions.0.tenant") != "acme" {
		t.Fatalf("list of every tenant: %s", a.body)
	}
	if a := b.as("operator").call("GET", "/v1/sessions", "", "X-Berth-Tenant: globex").want(200); a.str("sessions.0") != "" {
		t.Fatalf("list of one tenant: %s", a.body)
	}
	w.recover("s", h, "read").want(200)
}

// An operator sees records and sizes; what was said needs the scope.
func TestContentNeedsTheScope(t *testing.T) {
	t.Parallel()
	reader := operator
	reader.Name, reader.Scopes = "reader", []string{services.ScopeContent}
	b := setupTokens(t, gateway, workers, operator, reader)
	w := b.as("worker").worker("i1")
	w.append("s", "first", b.as("gateway").route("s").want(200).str("handle"), `"a secret"`, `"meta":{"tools":"a secret"}`).want(200)
	for name, reads := range map[string]bool{"operator": false, "gateway": false, "reader": true, "worker": true} {
		a := b.as(name).call("GET", "/v1/sessions/s", "").want(200)
		if a.str("count") != "1" || strings.Contains(string(a.body), "a secret") != reads {
			t.Errorf("%s: %s", name, a.body)
		}
		status := map[bool]int{true: 200, false: 403}[reads]
		b.as(name).call("POST", "/v1/recover", `{"session":"s","mode":"read"}`).want(status)
	}
	for _, by := range []string{"reader", "worker"} {
		if want := "by=" + by + ` action="read content"`; !strings.Contains(b.logs.String(), want) {
			t.Errorf("no audit line %q in\n%s", want, b.logs)
		}
	}
}

func TestWorkersAreHeldToTheirInstancesPoolsAndNetworks(t *testing.T) {
	t.Parallel()
	bound := workers
	bound.Instances, bound.Networks, bound.Pools = []string{"a-*", "b1"}, []string{"10.1.0.0/16", "fd00::/8"}, []string{"llama"}
	b := setupTokens(t, bound, operator)
	w := b.as("worker")
	register := func(id, pool, address string) answer {
		return w.call("PUT", "/v1/instances/"+id, fmt.Sprintf(`{"pool":%q,"address":%q}`, pool, address))
	}
	register("a-1", "llama", "10.1.2.3:80").want(200)
	register("b1", "llama", "[fd00::8]:80").want(200)
	register("b1", "llama", "[::ffff:10.1.2.3]:80").want(200)
	register("b2", "llama", "10.1.2.3:80").refused(403, "forbidden")
	register("a-1", "other", "10.1.2.3:80").refused(403, "forbidden")
	register("a-1", "", "10.1.2.3:80").refused(403, "forbidden")
	register("a-1", "llama", "10.2.2.3:80").refused(403, "forbidden")
	b.as("operator").call("PUT", "/v1/instances/a-2", `{"address":"10.9.9.9:80"}`).want(200)
	register("a-2", "llama", "10.1.2.3:80").refused(403, "forbidden") // it would leave its pool
	w.call("POST", "/v1/instances/b2/heartbeat", `{"incarnation":"x","running":0,"waiting":0}`).refused(403, "forbidden")
	w.call("GET", "/v1/instances/b2/tasks", "", "X-Berth-Incarnation: x").refused(403, "forbidden")
	w.call("GET", "/v1/instances/b2", "").refused(403, "forbidden")
	w.call("DELETE", "/v1/instances/b2", "", "X-Berth-Incarnation: x").refused(403, "forbidden")
	w.call("POST", "/v1/recover", `{"session":"s","instance":"b2","incarnation":"x"}`).refused(403, "forbidden")
	w.call("GET", "/v1/sessions/s", "").refused(403, "forbidden")
	w.call("GET", "/v1/sessions/s?pool=llama", "").refused(404, "not_found")
}

func TestOperatorsAreHeldToTheirPools(t *testing.T) {
	t.Parallel()
	llama := operator
	llama.Name, llama.Pools = "llama", []string{"llama"}
	b := setupTokens(t, workers, operator, llama)
	b.as("worker").worker("i1")
	b.as("worker").worker("i2", `"pool":"llama"`)
	op := b.as("llama")
	for _, a := range []answer{
		op.call("GET", "/v1/instances/i1", ""),
		op.call("POST", "/v1/instances/i1/cordon", ""),
		op.call("PATCH", "/v1/instances/i1", `{"weight":0}`),
		op.call("DELETE", "/v1/instances/i1?force=true", ""),
		op.call("GET", "/v1/pools/default/policy", ""),
		op.call("PUT", "/v1/pools/default/policy", `{}`),
		op.call("GET", "/v1/ring", ""),
		op.call("GET", "/v1/sessions?pool=default", ""),
		op.call("GET", "/route?session=s", ""),
	} {
		a.refused(403, "forbidden")
	}
	op.call("GET", "/v1/instances/i2", "").want(200)
	op.call("GET", "/v1/sessions", "").want(200)
	if a := op.call("GET", "/v1/instances", "").want(200); a.str("instances.0.id") != "i2" || a.at("instances.1") != nil {
		t.Fatalf("instances: %s", a.body)
	}
	if a := op.call("GET", "/v1/pools", "").want(200); a.str("pools.0.pool") != "llama" || a.at("pools.1") != nil {
		t.Fatalf("pools: %s", a.body)
	}
}

func TestJobsAreHeldToTheirPools(t *testing.T) {
	t.Parallel()
	llama, sidecar := operator, workers
	llama.Name, llama.Pools = "llama", []string{"llama"}
	sidecar.Name, sidecar.Pools = "sidecar", []string{"llama"}
	b := setupTokens(t, workers, operator, llama, sidecar)
	b.as("worker").worker("i1")
	b.as("worker").worker("i2", `"pool":"llama"`)
	theirs := b.as("operator").call("POST", "/v1/drains", `{"instances":["i1"],"mode":"detach"}`).want(202).str("id")
	op := b.as("llama")
	for _, a := range []answer{
		op.call("POST", "/v1/drains", `{"instances":["i1"],"mode":"detach"}`),
		op.call("POST", "/v1/drains", `{"instances":["i2","i1"],"mode":"detach"}`),
		op.call("GET", "/v1/jobs/"+theirs, ""),
		op.call("GET", "/v1/jobs/"+theirs+"?wait=30s", ""),
		op.call("POST", "/v1/jobs/"+theirs+"/cancel", ""),
		b.as("sidecar").call("GET", "/v1/jobs/"+theirs, ""),
	} {
		a.refused(403, "forbidden")
	}
	op.call("POST", "/v1/drains", `{"instances":["nobody"],"mode":"detach"}`).refused(404, "unknown_instance")
	if a := op.call("GET", "/v1/jobs", "").want(200); a.at("jobs.0") != nil {
		t.Fatalf("jobs of other pools: %s", a.body)
	}
	if a := b.as("operator").call("GET", "/v1/jobs/"+theirs, "").want(200); a.str("state") == "cancelling" || a.str("state") == "cancelled" {
		t.Fatalf("cancelled all the same: %s", a.body)
	}
	own := op.call("POST", "/v1/drains", `{"instances":["i2"],"mode":"detach"}`).want(202).str("id")
	if a := op.call("GET", "/v1/jobs", "").want(200); a.str("jobs.0.id") != own || a.at("jobs.1") != nil {
		t.Fatalf("jobs: %s", a.body)
	}
	b.as("sidecar").call("GET", "/v1/jobs/"+own, "").want(200)
	op.call("POST", "/v1/jobs/"+own+"/cancel", "").want(202)
}

func TestTokenFilesThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	const one = `{"name":"a","token":"long-enough","roles":["worker"]}`
	cases := map[string]string{
		"no file of tokens":                  `{}`,
		"nothing":                            ``,
		"no tokens, which lets in everybody": `[]`,
		"two arrays":                         `[` + one + `][]`,
		"unknown member":                     `[{"name":"a","token":"long-enough","roles":["worker"],"pool":["x"]}]`,
		"short secret":                       `[{"name":"a","token":"short","roles":["worker"]}]`,
		"no secret":                          `[{"name":"a","roles":["worker"]}]`,
		"two secrets":                        `[{"name":"a","token":"long-enough","sha256":"00","roles":["worker"]}]`,
		"no digest":                          `[{"name":"a","sha256":"00","roles":["worker"]}]`,
		"no role":                            `[{"name":"a","token":"long-enough"}]`,
		"unknown role":                       `[{"name":"a","token":"long-enough","roles":["admin"]}]`,
		"unknown scope":                      `[{"name":"a","token":"long-enough","roles":["worker"],"scopes":["all"]}]`,
		"no name":                            `[{"token":"long-enough","roles":["worker"]}]`,
		"no network":                         `[{"name":"a","token":"long-enough","roles":["worker"],"networks":["10.0.0.1"]}]`,
		"tenant that is no name":             `[{"name":"a","token":"long-enough","roles":["worker"],"tenants":["a b"]}]`,
		"instance that is no name":           `[{"name":"a","token":"long-enough","roles":["worker"],"instances":["a*b"]}]`,
		"one secret twice":                   `[` + one + `,` + one + `]`,
	}
	for name, text := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "tokens.json")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := services.LoadTokens(path)
			if err == nil {
				t.Fatal("accepted")
			}
			if strings.Contains(err.Error(), "long-enough") {
				t.Fatalf("the error tells the secret: %v", err)
			}
		})
	}
}

// A token of one pool changes nothing of the instances of another: its reports shut none,
// and it neither beats nor leaves for one, with the right incarnation either.
func TestATokenOfOnePoolLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	narrow := func(name string, role services.Role) services.Token {
		return services.Token{Name: name, Roles: []services.Role{role}, Pools: []string{"pa"}}
	}
	b := setupTokens(t, workers, gateway, operator, narrow("narrow-gateway", services.RoleGateway), narrow("narrow-worker", services.RoleWorker))
	other := b.as("worker").worker("b1", `"pool":"pb"`)
	b.as("worker").worker("a1", `"pool":"pa"`)
	report := `{"outcomes":[` + strings.Repeat(`{"instance":"b1","result":"connect"},`, 3) + `{"instance":"a1","result":"connect"}]}`
	beat := fmt.Sprintf(`{"incarnation":%q,"running":0,"waiting":0}`, other.incarnation)
	b.as("narrow-worker").call("POST", "/v1/instances/b1/heartbeat", beat).refused(403, "forbidden")
	b.as("narrow-worker").call("DELETE", "/v1/instances/b1", "", "X-Berth-Incarnation: "+other.incarnation).refused(403, "forbidden")
	breaker := func(id string) string {
		return b.as("operator").call("GET", "/v1/instances/"+id, "").want(200).str("breaker")
	}
	eventually(t, "its reports open the breaker in its own pool", func() bool {
		b.as("narrow-gateway").call("POST", "/v1/outcomes", report).want(202)
		return breaker("a1") != ""
	})
	if got := breaker("b1"); got != "" {
		t.Errorf("a token of another pool made the breaker %s", got)
	}
}
