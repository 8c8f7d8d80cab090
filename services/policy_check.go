package services

import (
	"fmt"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// embeddedBackend is the store in one file, which has no replicas and never will.
const embeddedBackend = "bolt"

// maxModelBytes bounds the name of a model.
const maxModelBytes = 256

// wrong lists what a new policy is held to and a stored one is not: whoever stored it
// could, and it stays in force. The backend is the store's, empty if it is not known.
func (p *PoolPolicy) wrong(backend string) (list []FieldErrors) {
	for i, m := range p.Models {
		at := fmt.Sprintf("models[%d]", i)
		switch {
		case strings.TrimSpace(m) == "" || len(m) > maxModelBytes:
			list = append(list, FieldErrors{Location: at, Message: fmt.Sprintf("must have 1 to %d bytes, not all white space", maxModelBytes)})
		case slices.Contains(p.Models[:i], m):
			list = append(list, FieldErrors{Location: at, Message: fmt.Sprintf("%q is listed twice", m)})
		}
	}
	if backend == embeddedBackend && p.Durability == "replicated" && p.OnShortfall != "accept" {
		list = append(list, FieldErrors{
			Location: "durability",
			Message:  "the embedded store has no replicas, so that every write would be refused: want fsynced, or on_shortfall accept",
		})
	}
	return list
}

// Resolve holds a policy that is put to that; huma calls it.
func (p *PoolPolicy) Resolve(ctx huma.Context, at *huma.PathBuffer) (list []error) {
	backend := ""
	if about, err := contextOf(ctx.Context()).server.store.Describe(ctx.Context()); err == nil {
		backend = about.Backend // without it the put fails, and says why
	}
	for _, w := range p.wrong(backend) {
		list = append(list, &huma.ErrorDetail{Location: at.With(w.Location), Message: w.Message})
	}
	return list
}

var _ huma.ResolverWithPath = (*PoolPolicy)(nil)
