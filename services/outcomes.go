package services

import (
	"context"
	"errors"
	"fmt"

	"berth/statestore"
	"berth/statestore/handle"
)

type outcomesInput struct {
	Body struct {
		Outcomes []outcomeBody `json:"outcomes" maxItems:"1000"`
	}
}

type outcomeBody struct {
	Session  string         `json:"session,omitempty" maxLength:"256"`
	Handle   string         `json:"handle,omitempty" maxLength:"160" doc:"that the hint came with"`
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

// reportOutcomes takes reports of how requests ended. They feed metrics, and bind
// sessions that have no stored turns to whoever served them.
func (s *Server) reportOutcomes(ctx context.Context, in *outcomesInput) (*outcomesOutput, error) {
	if _, err := require(ctx, RoleGateway, RoleWorker); err != nil {
		return nil, err
	}
	out := new(outcomesOutput)
	image := s.fleet.now()
	for i := range in.Body.Outcomes {
		o := &in.Body.Outcomes[i]
		s.metrics.outcome(Result(o.Result))
		if instance := image.instances[o.Instance]; instance != nil {
			s.metrics.usage(parseUsage(o.Usage, instance.ReportsCached))
			if Result(o.Result) == ResultOK && o.Session != "" && o.Handle != "" {
				bound, err := s.bindServed(ctx, o, instance)
				if err != nil {
					return nil, err
				}
				if bound {
					out.Body.Bound++
				}
			}
		}
		out.Body.Accepted++
	}
	return out, nil
}

// bindServed binds a session without stored turns to the instance that served it,
// at the epoch of the handle it was hinted with. A handle that is not good binds
// nothing; the report still counts.
func (s *Server) bindServed(ctx context.Context, o *outcomeBody, instance *statestore.Instance) (bool, error) {
	key, err := s.keyFor(ctx, o.Session)
	if err != nil {
		return false, err
	}
	digest := key.Digest()
	h, err := s.handles.Verify(o.Handle, digest, s.fleet.storeWall())
	if err != nil {
		var bad *handle.Error
		if errors.As(err, &bad) {
			s.metrics.refusedHandle(err)
			return false, nil
		}
		return false, err
	}
	if h.Purpose != handle.Route || h.Floor.Version > 0 {
		return false, nil
	}
	bound, err := s.store.Bind(ctx, statestore.Bind{
		Key: key, Owner: instance.Owner(), Handle: h.Presented(instance.ID), Lifetimes: s.policyOf(key.Pool).lifetimes,
	})
	if err != nil {
		return false, fmt.Errorf("bind a served session: %w", err)
	}
	if bound {
		s.bindings.forget(digest)
	}
	return bound, nil
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
	return t
}

func number(m map[string]any, name string) (uint64, bool) {
	v, ok := m[name].(float64)
	if !ok || v < 0 {
		return 0, false
	}
	return uint64(v), true
}
