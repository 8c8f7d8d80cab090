package client

import (
	"context"
	"net/http"
)

// Placement is one descriptor of KV cache, kv/1: where KV for a prefix of a
// session lies, and who can use it.
type Placement struct {
	Tier        string        `json:"tier"`                   // gpu, host, disk, object or slot_file
	URI         string        `json:"uri,omitempty"`          // where others can read it; empty: only the instance can
	Tokens      int64         `json:"tokens"`                 // of the prefix that it covers
	Version     uint64        `json:"version"`                // of the context that it was made from
	Bytes       int64         `json:"bytes,omitempty"`        //
	BlockTokens int           `json:"block_tokens,omitempty"` //
	Generation  uint64        `json:"generation,omitempty"`   // the instance's kv_generation when it was made
	RemainingMS *int64        `json:"remaining_ms,omitempty"` // time until it is gone; nil: not known to end
	Ranks       *Completeness `json:"ranks,omitempty"`        // tensor or pipeline ranks that hold their part
	Pools       *Completeness `json:"pools,omitempty"`        // KV pools that are complete
	// Compat is what an engine must have in common to use it: engine, model,
	// kv_dtype, block_size, hash_algorithm, hash_seed, tp, pp and the like.
	// Unknown keys are kept.
	Compat map[string]any `json:"compat,omitempty"`
	// MustEqual names the keys of Compat that must match.
	MustEqual []string `json:"must_equal,omitempty"`
}

// Completeness counts parts.
type Completeness struct {
	Have int `json:"have"`
	Want int `json:"want"`
}

// JudgedPlacement is a placement with what it is worth to the instance that
// asked.
type JudgedPlacement struct {
	Instance string `json:"instance"` // that wrote it
	// Verdict is usable, usable_prefix, incompatible, lapsed, owner_gone,
	// behind_context or ineffective.
	Verdict string `json:"verdict"`
	Field   string `json:"field"` // of Compat, for incompatible
	Placement
}

// Plans of a [Recovery]: what the best placement saves.
const (
	PlanKV        = "kv"
	PlanKVPrefix  = "kv_prefix"
	PlanRecompute = "recompute"
)

// PutKV replaces what this instance said about the KV cache it holds for the
// session; none removes it. It need not own the session.
func (s *Session) PutKV(ctx context.Context, placements []Placement) error {
	if placements == nil {
		placements = []Placement{}
	}
	k := s.key.call("put placements", http.MethodPut)
	k.path += "/kv"
	by := s.w.credentials("")
	k, err := k.withJSON(struct {
		Instance    string      `json:"instance"`
		Incarnation string      `json:"incarnation"`
		Placements  []Placement `json:"placements"`
	}{by.instance, by.incarnation, placements})
	if err != nil {
		return err
	}
	_, err = s.w.conn.repeat(ctx, k)
	return err
}
