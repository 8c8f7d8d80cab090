package services

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"berth/routing"
	"berth/statestore"
	"berth/statestore/handle"
)

type outcomesInput struct {
	Body struct {
		Outcomes []outcomeBody `json:"outcomes" maxItems:"1000"`
	}
}

type outcomeBody struct {
	Session  string         `json:"session,omitempty"`
	Handle   string         `json:"handle,omitempty" doc:"that the hint came with"`
	Instance string         `json:"instance" minLength:"1" maxLength:"63" doc:"that served, or failed"`
	Result   string         `json:"result" enum:"ok,connect,reset,5xx,timeout,busy,client"`
	Status   int            `json:"status,omitempty"`
	TTFTMS   float64        `json:"ttft_ms,omitempty" minimum:"0"`
	Usage    map[string]any `json:"usage,omitempty" doc:"the engine's own object"`
}

type outcomesOutput struct {
	Body struct {
		Accepted int `json:"accepted"`
		Bound    int `json:"bound" doc:"sessions without stored turns that now belong to whom served them"`
	}
}

// bindsAtOnce bounds how many sessions one report binds at the same time.
const bindsAtOnce = 32

// reportOutcomes takes reports of how requests ended. They feed breakers and metrics,
// bind sessions that have no stored turns to whoever served them, and keep a session's
// next hints from who did not serve it and does not hold it. A report with a
// malformed session id is refused before anything of it counts.
func (s *Server) reportOutcomes(ctx context.Context, in *outcomesInput) (*outcomesOutput, error) {
	p, err := require(ctx, RoleGateway, RoleWorker)
	if err != nil {
		return nil, err
	}
	keys := make([]statestore.SessionKey, len(in.Body.Outcomes))
	for i, o := range in.Body.Outcomes {
		if o.Session == "" {
			continue
		}
		if err := statestore.ValidateSessionID(o.Session); err != nil {
			return nil, badID(fmt.Sprintf("body.outcomes[%d].session", i), err)
		}
		if keys[i], err = s.keyFor(ctx, o.Session); err != nil {
			return nil, err
		}
	}
	image := s.fleet.now()
	var bound atomic.Int64
	var group errgroup.Group
	group.SetLimit(bindsAtOnce)
	for i := range in.Body.Outcomes {
		o := &in.Body.Outcomes[i]
		s.metrics.outcome(Result(o.Result))
		instance := image.instances[o.Instance]
		if instance == nil || p.allowPool(instance.Pool) != nil {
			continue // another pool's instance is none for this caller
		}
		var session *statestore.SessionDigest
		if o.Session != "" && instance.Pool == keys[i].Pool {
			digest := keys[i].Digest()
			session = &digest
		}
		s.reported(instance, outcomeOf(o.Result).WithStatus(o.Status), session)
		s.metrics.usage(instance, o.Usage)
		if Result(o.Result) != ResultOK || session == nil || o.Handle == "" {
			continue
		}
		group.Go(func() error {
			if s.bindServed(ctx, keys[i], o.Handle, instance) {
				bound.Add(1)
			}
			return nil
		})
	}
	_ = group.Wait() // nothing that it runs returns an error
	out := new(outcomesOutput)
	out.Body.Accepted, out.Body.Bound = len(in.Body.Outcomes), int(bound.Load())
	return out, nil
}

// outcomeOf reads a word that was checked.
func outcomeOf(word string) routing.Outcome {
	o, err := routing.ParseOutcome(word)
	if err != nil {
		return routing.OutcomeUnknown
	}
	return o
}

// bindServed binds a session without stored turns to the instance that served it,
// at the epoch of the handle it was hinted with. What cannot be bound is left as
// it is, and the report still counts: the next route decides again.
func (s *Server) bindServed(ctx context.Context, key statestore.SessionKey, text string, instance *statestore.Instance) bool {
	digest := key.Digest()
	h, err := s.handles.Verify(text, digest, s.fleet.storeWall())
	if err != nil {
		s.metrics.refusedHandle(err)
		return false
	}
	if h.Purpose != handle.Route || h.Floor.Version > 0 {
		return false
	}
	bound, err := s.store.Bind(ctx, statestore.Bind{
		Key: key, Owner: instance.Owner(), Handle: h.Presented(instance.ID), Lifetimes: s.policyOf(key.Pool).lifetimes,
	})
	if err != nil {
		s.log.Warn("served session not bound", "session", s.tag(digest), "instance", instance.ID, "error", err)
		return false
	}
	if bound {
		s.bindings.forget(digest)
	}
	return bound
}

// usageTokens is what a request's usage object says, whatever the dialect.
type usageTokens struct {
	prompt, cached uint64
	known          bool // the cached count was told, or is 0 by the instance's word
}

// parseUsage reads the usage objects of Chat Completions, Responses and
// Anthropic's Messages. A missing cached count is 0 only for instances that
// report it, else unknown.
func parseUsage(u map[string]any, reportsCached bool) (t usageTokens) {
	if u == nil {
		return t
	}
	prompt, ok := number(u, "prompt_tokens")
	if !ok {
		prompt, ok = number(u, "input_tokens")
	}
	if !ok {
		return t
	}
	t.prompt, t.known = prompt, reportsCached
	for _, name := range []string{"prompt_tokens_details", "input_tokens_details"} {
		if details, ok := u[name].(map[string]any); ok {
			if cached, ok := number(details, "cached_tokens"); ok {
				t.cached, t.known = cached, true
			}
		}
	}
	// Anthropic's input_tokens leaves out what the cache read and wrote.
	if read, ok := number(u, "cache_read_input_tokens"); ok {
		wrote, _ := number(u, "cache_creation_input_tokens")
		t.cached, t.known = read, true
		t.prompt += read + wrote
	}
	t.cached = min(t.cached, t.prompt)
	return t
}

// maxUsage bounds a count that an engine tells: more is a mistake, and would spoil
// a counter for good.
const maxUsage = 1 << 32

func number(m map[string]any, name string) (uint64, bool) {
	v, ok := m[name].(float64)
	if !ok || v < 0 || v > maxUsage {
		return 0, false
	}
	return uint64(v), true
}
