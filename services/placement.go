package services

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"berth/statestore"
)

// Placement is one KV-cache descriptor in the format kv/1: where KV for a prefix
// of a session lies, and who can use it.
type Placement struct {
	Tier        string        `json:"tier" enum:"gpu,host,disk,object,slot_file"`
	URI         string        `json:"uri,omitempty" doc:"where others can read it; without one only the instance itself can"`
	Tokens      uint64        `json:"tokens" doc:"of the prefix that it covers"`
	Version     uint64        `json:"version" doc:"of the context that it was made from"`
	Bytes       uint64        `json:"bytes,omitempty"`
	BlockTokens uint64        `json:"block_tokens,omitempty"`
	Generation  uint64        `json:"generation,omitempty" doc:"the instance's kv_generation when it was made; absent: the last that it reported"`
	RemainingMS *int64        `json:"remaining_ms,omitempty" minimum:"0" maximum:"315360000000" doc:"time until it is gone; absent: not known to end"`
	Ranks       *Completeness `json:"ranks,omitempty" doc:"tensor or pipeline ranks that hold their part"`
	Pools       *Completeness `json:"pools,omitempty" doc:"KV pools (layers, heads) that are complete"`
	Compat      compat        `json:"compat,omitempty" doc:"engine, model, kv_dtype, block_size, hash_algorithm, hash_seed, tp, pp and whatever else; unknown keys are kept"`
	MustEqual   []string      `json:"must_equal,omitempty" doc:"keys of compat that must match; default: all that both name"`
}

// Completeness counts parts.
type Completeness struct {
	Have int `json:"have" minimum:"0"`
	Want int `json:"want" minimum:"0"`
}

// Verdict says what a placement is worth to one instance.
type Verdict string

// Verdicts.
const (
	Usable        Verdict = "usable"
	UsablePrefix  Verdict = "usable_prefix"
	Incompatible  Verdict = "incompatible"
	Lapsed        Verdict = "lapsed"
	OwnerGone     Verdict = "owner_gone"
	BehindContext Verdict = "behind_context"
	Ineffective   Verdict = "ineffective" // out of reach, incomplete, or covers nothing
	planKV                = "kv"
	planPrefix            = "kv_prefix"
	planRecompute         = "recompute"
)

// JudgedPlacement is a placement with its verdict.
type JudgedPlacement struct {
	Instance string  `json:"instance" doc:"that wrote the placement"`
	Verdict  Verdict `json:"verdict" enum:"usable,usable_prefix,incompatible,lapsed,owner_gone,behind_context,ineffective"`
	Field    string  `json:"field,omitempty" doc:"what does not match, for incompatible"`
	Placement
}

// asker is who would use a placement.
type asker struct {
	instance string
	compat   map[string]any // as the registry keeps it
}

// holder is who wrote it: nil if it is not registered as that boot any more.
type holder struct {
	instance   string
	alive      bool
	generation uint64
}

// judgePlacements joins what instances said with the record and the fleet. The
// plan is the best of the verdicts.
func judgePlacements(rec *statestore.Record, sets []statestore.PlacementSet, image *fleetImage, who asker) ([]JudgedPlacement, string, error) {
	judged, plan := []JudgedPlacement{}, planRecompute
	for _, set := range sets {
		var list []Placement
		if err := json.Unmarshal(set.Descriptors, &list); err != nil {
			return nil, "", fmt.Errorf("read placements of instance %s: %w", set.By.Instance, err)
		}
		from := holderOf(image, set.By)
		for _, p := range list {
			if p.RemainingMS != nil {
				left := max(0, *p.RemainingMS-set.Age.Milliseconds())
				p.RemainingMS = &left
			}
			verdict, field := judge(&p, from, rec, who)
			judged = append(judged, JudgedPlacement{Instance: set.By.Instance, Verdict: verdict, Field: field, Placement: p})
			switch {
			case verdict == Usable:
				plan = planKV
			case verdict == UsablePrefix && plan == planRecompute:
				plan = planPrefix
			}
		}
	}
	return judged, plan, nil
}

func holderOf(image *fleetImage, by statestore.Owner) holder {
	h := holder{instance: by.Instance}
	if in := image.instances[by.Instance]; in != nil && in.Incarnation == by.Incarnation {
		h.alive, h.generation = in.Health != statestore.Down, in.LastBeat.KVGeneration
	}
	return h
}

// judge is the verdict on one placement; the first reason against it wins.
func judge(p *Placement, from holder, rec *statestore.Record, who asker) (Verdict, string) {
	shared := p.URI != ""
	switch {
	case !from.alive && !shared:
		return OwnerGone, ""
	case p.RemainingMS != nil && *p.RemainingMS == 0:
		return Lapsed, ""
	case from.alive && p.Generation < from.generation:
		return Lapsed, "" // made before the cache was reset or the weights changed
	}
	if field := mismatch(p, who.compat); field != "" {
		return Incompatible, field
	}
	switch {
	case p.Tokens == 0, !p.Ranks.complete(), !p.Pools.complete(), !shared && from.instance != who.instance:
		return Ineffective, ""
	case p.Version > rec.Version, p.Version < rec.Rewritten:
		return BehindContext, ""
	case p.Version == rec.Version && p.Tokens >= rec.Tokens:
		return Usable, ""
	}
	return UsablePrefix, ""
}

func (c *Completeness) complete() bool { return c == nil || c.Have >= c.Want }

// mismatch names the first field that must match and does not.
func mismatch(p *Placement, of map[string]any) string {
	fields := p.MustEqual
	if len(fields) == 0 {
		for k := range p.Compat {
			if _, both := of[k]; both {
				fields = append(fields, k)
			}
		}
		slices.Sort(fields)
	}
	for _, f := range fields {
		theirs, told := p.Compat[f]
		ours, known := of[f]
		if told != known || told && plainForm(theirs) != plainForm(ours) {
			return f
		}
	}
	return ""
}

// checkPlacements holds a worker's placements to their ranges and returns their
// stored form. by is the instance that they are of, nil if it is not known; where
// is their place in the body.
func checkPlacements(list []Placement, by *statestore.Instance, where string) ([]byte, error) {
	for i := range list {
		p := &list[i]
		at := fmt.Sprintf("%s[%d]", where, i)
		if !slices.Contains([]string{"gpu", "host", "disk", "object", "slot_file"}, p.Tier) {
			return nil, invalid(at+".tier", "must be gpu, host, disk, object or slot_file")
		}
		if ms := p.RemainingMS; ms != nil && (*ms < 0 || *ms > maxPlacementTime.Milliseconds()) {
			return nil, invalid(at+".remaining_ms", "must be a duration from 0 to ten years")
		}
		if p.Generation == 0 && by != nil {
			p.Generation = by.LastBeat.KVGeneration
		}
	}
	stored, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("render placements: %w", err)
	}
	if n := uint64(len(stored)); n > statestore.MaxPlacementBytes {
		return nil, &statestore.TooLargeError{What: "kv", Limit: statestore.MaxPlacementBytes, Size: n}
	}
	return stored, nil
}

// maxPlacementTime bounds remaining_ms, so that no sum overflows.
const maxPlacementTime = 10 * 365 * 24 * time.Hour

// readPlacements decodes placements that came with a write.
func readPlacements(raw []json.RawMessage) ([]Placement, error) {
	list := make([]Placement, len(raw))
	for i, r := range raw {
		at := fmt.Sprintf("body.kv[%d]", i)
		if err := checkJSON(r); err != nil {
			return nil, located(at, err)
		}
		dec := json.NewDecoder(bytes.NewReader(r))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&list[i]); err != nil {
			return nil, located(at, err)
		}
	}
	return list, nil
}
