package services

import (
	"context"
	"encoding/json"
	"fmt"

	"berth/statestore"
)

type parkedBody struct {
	Op      string           `json:"op" doc:"append under it to adopt the write"`
	By      parkedBy         `json:"by" doc:"who wrote it"`
	Version uint64           `json:"version" doc:"that its writer had seen"`
	Base    *uint64          `json:"base,omitempty" doc:"it keeps the first k turns, and drops the rest"`
	Bytes   int              `json:"bytes" doc:"of its turns"`
	Turns   []parkedTurnBody `json:"turns,omitempty" doc:"as they were written; absent, as meta is, for those who may not read content"`
	Meta    json.RawMessage  `json:"meta,omitempty" doc:"as it was written"`
	AgeMS   int64            `json:"age_ms" doc:"time since it was parked"`
}

type parkedBy struct {
	Instance string `json:"instance"`
}

// parkedTurnBody always carries base64: these bytes are about to be written
// again, and must be the same.
type parkedTurnBody struct {
	Type   string `json:"type"`
	Base64 []byte `json:"base64"`
	Tokens uint64 `json:"tokens,omitempty"`
}

func parkedBodies(list []statestore.Parked) []parkedBody {
	out := make([]parkedBody, 0, len(list))
	for _, p := range list {
		b := parkedBody{
			Op: p.Op, By: parkedBy{p.By.Instance}, Version: p.Floor.Version, Base: p.Base, Meta: p.Meta,
			AgeMS: p.Age.Milliseconds(), Turns: make([]parkedTurnBody, 0, len(p.Turns)),
		}
		for _, t := range p.Turns {
			b.Bytes += len(t.Value)
			b.Turns = append(b.Turns, parkedTurnBody{Type: mediaType(t.Type), Base64: t.Value, Tokens: t.Tokens})
		}
		out = append(out, b)
	}
	return out
}

type parkedInput struct {
	ID string `path:"id"`
}

type parkedOutput struct {
	CacheControl string `header:"Cache-Control"`
	Body         struct {
		Owner  *OwnerRef    `json:"owner,omitempty" doc:"who may adopt them, by appending each under its op"`
		Parked []parkedBody `json:"parked" doc:"oldest first, at most 8"`
	}
}

// sessionParked shows what waits for the owner of a session. Whoever may not read
// content is told of records and sizes.
func (s *Server) sessionParked(ctx context.Context, in *parkedInput) (*parkedOutput, error) {
	p, err := require(ctx, RoleOperator)
	if err != nil {
		return nil, err
	}
	key, err := s.sessionKey(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	reading, err := s.store.Load(ctx, key, 0)
	if err != nil {
		return nil, fmt.Errorf("load session %s: %w", s.tag(key.Digest()), err)
	}
	if err := present(&reading.View); err != nil {
		return nil, err
	}
	out := &parkedOutput{CacheControl: "no-store"}
	out.Body.Owner, out.Body.Parked = s.ownerRef(reading.Owner, reading.Epoch), parkedBodies(reading.Parked)
	if p.reads() {
		s.audit(p, "read parked", "session", s.tag(key.Digest()))
		return out, nil
	}
	for i := range out.Body.Parked {
		out.Body.Parked[i].Turns, out.Body.Parked[i].Meta = nil, nil
	}
	return out, nil
}
