package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"berth/client"
)

// What a worker does with one request: it looks whether its own copy of the
// conversation is current, recovers what is missing, serves, and appends the
// turn before it lets go of the answer.
func ExampleSession() {
	berth := startBerth()
	defer berth.Close()
	ctx := context.Background()

	worker, err := client.NewWorker(
		client.Config{BaseURLs: []string{berth.URL}},
		client.Instance{ID: "i2", Address: "10.0.0.2:8000"},
	)
	if err != nil {
		log.Fatal(err)
	}
	if err := worker.Register(ctx); err != nil {
		log.Fatal(err)
	}

	// These came with the request, from the gateway.
	header := http.Header{
		"X-Session-Id": {"chat-17"}, "X-Berth-Handle": {"r1.…"}, "X-Berth-Epoch": {"41"}, "X-Berth-Version": {"2"},
	}
	req, err := client.FromHeader(header)
	if err != nil {
		log.Fatal(err)
	}

	session, err := worker.Open(req.Session) // once per session; keep it with the copy
	if err != nil {
		log.Fatal(err)
	}
	var conversation []client.Turn

	session.Offer(req.Hint)
	if !session.Current(req.Hint) {
		r, err := session.Recover(ctx, client.RecoverRequest{Mode: client.Claim, Have: session.Have()})
		if err != nil {
			log.Fatal(err)
		}
		conversation = append(conversation[:r.Base], r.Turns...)
		fmt.Printf("recovered %d turns, plan %s\n", len(conversation), r.Plan)
	}

	turn := client.JSON([]byte(`{"role":"assistant","content":"42"}`))
	receipt, err := session.Append(ctx, client.Write{Turns: []client.Turn{turn}})
	if err != nil {
		log.Fatal(err)
	}
	conversation = append(conversation, turn)
	fmt.Printf("version %d is %s, %d turns\n", receipt.Version, receipt.Durability.Level, len(conversation))
	// Output:
	// recovered 2 turns, plan recompute
	// version 3 is fsynced, 3 turns
}

// What a worker does with the refusals of a write.
func ExampleSession_Append_refusals() {
	handle := func(w http.ResponseWriter, r *http.Request, session *client.Session, turn client.Turn) {
		_, err := session.Append(r.Context(), client.Write{Turns: []client.Turn{turn}})
		var write *client.WriteError
		switch {
		case err == nil:
			return
		case client.AnswerNotOwner(w, err): // the gateway tries again, at the owner
		case errors.Is(err, client.ErrStoreBehind):
			// Accepted writes are lost and could not be repaired from here: claim
			// with AcceptLost, look at Recovery.Dropped, and tell the user.
		case errors.Is(err, client.ErrExpired), errors.Is(err, client.ErrDeleted):
			// The conversation is over. The next route begins a new one.
		case errors.As(err, &write):
			// Nobody answered in time. Keep the turn, and write it again under
			// write.Op: if it was stored, that is known, and nothing doubles.
		}
	}
	_ = handle
}

// What a gateway does with one request.
func ExampleGateway_Route() {
	berth := startBerth()
	defer berth.Close()

	gateway, err := client.NewGateway(client.Config{BaseURLs: []string{berth.URL}})
	if err != nil {
		log.Fatal(err)
	}
	request := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader("{}"))
	session := client.SessionKey{ID: "chat-17"}

	client.Strip(request.Header) // nothing of it may come from outside
	route, err := gateway.Route(request.Context(), client.RouteRequest{
		Session: session,
		Exclude: []client.Exclusion{{Instance: "i1", Result: client.ResultConnect}}, // it did not answer just now
	})
	if err != nil {
		log.Fatal(err)
	}
	route.Pass(request.Header, session)
	fmt.Printf("%s at %s, because %s; epoch %s\n", route.Instance, route.Address, route.Reason, request.Header.Get("X-Berth-Epoch"))
	// Output:
	// i2 at 10.0.0.2:8000, because failover; epoch 41
}

// How a worker lives: it beats, tells its load, and helps to move its sessions
// when it is drained.
func ExampleWorker_Run() {
	serve := func(ctx context.Context, worker *client.Worker, engine interface {
		Running() int
		Save(ctx context.Context, session client.SessionKey) (version uint64, err error)
	}) error {
		return worker.Run(ctx, client.RunConfig{
			Load: func() client.Load { return client.Load{Ready: true, Running: engine.Running()} },
			Tasks: client.TaskHandlers{
				Release: func(ctx context.Context, t client.Task) (client.TaskAnswer, error) {
					version, err := engine.Save(ctx, t.Session)
					return client.TaskAnswer{Version: version}, err
				},
			},
		})
	}
	_ = serve
}

// startBerth answers what a berth process would, for one session that i1 had
// and i2 takes over.
func startBerth() *httptest.Server {
	mux := http.NewServeMux()
	answer := func(pattern, contentType, body string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			_, _ = w.Write([]byte(body))
		})
	}
	answer("PUT /v1/instances/i2", "application/json",
		`{"state":"warming","incarnation":"9f…","next_ms":2000,"lease_ms":15000}`)
	answer("GET /route", "application/json",
		`{"instance":"i2","address":"10.0.0.2:8000","reason":"failover","jump":true,"previous":"i1",`+
			`"epoch":41,"version":2,"handle":"r1.…","snapshot_version":7,"valid_ms":2000}`)
	answer("POST /v1/recover", "application/x-ndjson",
		`{"epoch":57,"version":2,"base":0,"count":2,"handle":"s1.…","plan":"recompute","kv":[]}`+"\n"+
			`{"n":0,"type":"application/json","value":{"role":"system","content":"Be brief."}}`+"\n"+
			`{"n":1,"type":"application/json","value":{"role":"user","content":"6×7?"}}`+"\n")
	answer("POST /v1/sessions/chat-17/turns", "application/json",
		`{"version":3,"epoch":57,"turns":3,"bytes":110,"durability":{"level":"fsynced"},"handle":"s2.…","affinity_ms":1800000}`)
	return httptest.NewServer(mux)
}
