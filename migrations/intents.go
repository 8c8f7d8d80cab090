package migrations

import (
	"encoding/json"
	"fmt"

	"berth/statestore"
)

// intent is one commit: enough to tell from the session itself whether it happened.
type intent struct {
	Key    statestore.SessionKey `json:"key"`
	From   statestore.Owner      `json:"from"`
	Epoch  uint64                `json:"epoch"` // of the session when it was planned
	To     statestore.Owner      `json:"to,omitzero"`
	Bytes  uint64                `json:"bytes,omitempty"`
	Tokens uint64                `json:"tokens,omitempty"`
	Warm   bool                  `json:"warm,omitempty"`
	Lapsed bool                  `json:"lapsed,omitempty"`
	// Unanswered says that the target was to prewarm it, and took no task or did not answer.
	Unanswered bool `json:"unanswered,omitempty"`
	Named      int  `json:"named,omitempty"` // from 1: its place in what the job was asked to move
}

// intents are commits by their sessions. They are stored with every change of a
// job, hundreds at a time, so that names which many of them share are stored once.
type intents map[statestore.SessionKey]intent

func (s *intents) put(in intent) {
	if *s == nil {
		*s = intents{}
	}
	(*s)[in.Key] = in
}

func (s intents) drop(in intent) { delete(s, in.Key) }

// list is all of them, for who goes on while they change.
func (s intents) list() []intent {
	all := make([]intent, 0, len(s))
	for _, in := range s {
		all = append(all, in)
	}
	return all
}

// packedIntents is the stored form. Indexes are into the lists of names.
type packedIntents struct {
	Spaces [][2]string        `json:"spaces"` // tenant and pool
	Owners []statestore.Owner `json:"owners"`
	List   []packedIntent     `json:"list"`
}

type packedIntent struct {
	ID         string `json:"i"`
	Space      int    `json:"s,omitempty"`
	From       int    `json:"f,omitempty"`
	To         int    `json:"t,omitempty"`
	Epoch      uint64 `json:"e"`
	Bytes      uint64 `json:"b,omitempty"`
	Tokens     uint64 `json:"k,omitempty"`
	Warm       bool   `json:"w,omitempty"`
	Lapsed     bool   `json:"l,omitempty"`
	Unanswered bool   `json:"u,omitempty"`
	Named      int    `json:"n,omitempty"`
}

// MarshalJSON packs the set.
func (s intents) MarshalJSON() ([]byte, error) {
	p := packedIntents{List: make([]packedIntent, 0, len(s))}
	spaces, owners := map[[2]string]int{}, map[statestore.Owner]int{}
	for key, in := range s {
		p.List = append(p.List, packedIntent{
			ID: key.ID, Epoch: in.Epoch, Bytes: in.Bytes, Tokens: in.Tokens, Warm: in.Warm, Lapsed: in.Lapsed, Unanswered: in.Unanswered, Named: in.Named,
			Space: place(&p.Spaces, spaces, [2]string{key.Tenant, key.Pool}),
			From:  place(&p.Owners, owners, in.From), To: place(&p.Owners, owners, in.To),
		})
	}
	return json.Marshal(p) //nolint:wrapcheck // the caller is the encoder
}

// place is where a name stands in a list, to which it is added if it is new.
func place[T comparable](list *[]T, known map[T]int, name T) int {
	i, ok := known[name]
	if !ok {
		i = len(*list)
		known[name], *list = i, append(*list, name)
	}
	return i
}

// UnmarshalJSON unpacks a set.
func (s *intents) UnmarshalJSON(doc []byte) error {
	*s = intents{}
	if len(doc) > 0 && doc[0] == '[' { // as versions wrote it that stored every name
		var list []intent
		if err := json.Unmarshal(doc, &list); err != nil {
			return fmt.Errorf("parse commits: %w", err)
		}
		for _, in := range list {
			s.put(in)
		}
		return nil
	}
	var p packedIntents
	if err := json.Unmarshal(doc, &p); err != nil {
		return fmt.Errorf("parse commits: %w", err)
	}
	for _, c := range p.List {
		if max(c.From, c.To) >= len(p.Owners) || c.Space >= len(p.Spaces) || min(c.From, c.To, c.Space) < 0 {
			return fmt.Errorf("parse commits: a name is missing: %w", statestore.ErrInvalid)
		}
		space := p.Spaces[c.Space]
		s.put(intent{
			Key:  statestore.SessionKey{Tenant: space[0], Pool: space[1], ID: c.ID},
			From: p.Owners[c.From], To: p.Owners[c.To],
			Epoch: c.Epoch, Bytes: c.Bytes, Tokens: c.Tokens, Warm: c.Warm, Lapsed: c.Lapsed, Unanswered: c.Unanswered, Named: c.Named,
		})
	}
	return nil
}
