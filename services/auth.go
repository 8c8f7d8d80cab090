package services

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"

	"berth/statestore"
)

// Role says which calls a token may make.
type Role string

// Roles.
const (
	RoleGateway  Role = "gateway"
	RoleWorker   Role = "worker"
	RoleOperator Role = "operator"
)

// ScopeContent lets an operator or a gateway read conversations.
const ScopeContent = "content"

// Token is one secret and what its bearer may do.
type Token struct {
	// Name is what audit lines call the bearer.
	Name string `json:"name"`
	// SHA256 is the secret's digest in hexadecimal, Token the secret itself: one of the two.
	SHA256 string `json:"sha256,omitempty"`
	Token  string `json:"token,omitempty"`

	Roles   []Role   `json:"roles"`
	Scopes  []string `json:"scopes,omitempty"`
	Tenants []string `json:"tenants,omitempty"` // the first is the default; "*" is any; empty: default
	Pools   []string `json:"pools,omitempty"`   // empty: all
	// Instances and Networks bind a worker: ids (a trailing * matches the rest)
	// and address ranges it may register. Empty: any.
	Instances []string `json:"instances,omitempty"`
	Networks  []string `json:"networks,omitempty"`
}

// principal is a verified token.
type principal struct {
	name     string
	roles    []Role
	scopes   []string
	tenants  []string
	pools    []string
	ids      []string
	networks []netip.Prefix
}

// anyone is who calls when no tokens are configured: loopback, or --insecure.
var anyone = &principal{
	name:    "anyone",
	roles:   []Role{RoleGateway, RoleWorker, RoleOperator},
	scopes:  []string{ScopeContent},
	tenants: []string{statestore.DefaultName, "*"},
}

// Tokens is the set of accepted tokens; empty accepts everybody.
type Tokens struct {
	byDigest map[[sha256.Size]byte]*principal
}

// LoadTokens reads a file: a JSON array of tokens.
func LoadTokens(path string) (*Tokens, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open tokens: %w", err)
	}
	defer f.Close() //nolint:errcheck // opened to read
	var list []Token
	dec := json.NewDecoder(io.LimitReader(f, 1<<20))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&list); err != nil {
		return nil, fmt.Errorf("read tokens from %s: %w", path, err)
	}
	if len(list) == 0 || dec.More() {
		// An empty set of tokens would accept everybody.
		return nil, fmt.Errorf("read tokens from %s: want one array with at least one token", path)
	}
	t, err := NewTokens(list)
	if err != nil {
		return nil, fmt.Errorf("tokens in %s: %w", path, err)
	}
	return t, nil
}

// NewTokens checks a list of tokens.
func NewTokens(list []Token) (*Tokens, error) {
	t := &Tokens{byDigest: make(map[[sha256.Size]byte]*principal, len(list))}
	for i, tok := range list {
		digest, err := tok.digest()
		if err != nil {
			return nil, fmt.Errorf("token %d: %w", i+1, err)
		}
		p, err := tok.principal()
		if err != nil {
			return nil, fmt.Errorf("token %q: %w", tok.Name, err)
		}
		if other := t.byDigest[digest]; other != nil {
			return nil, fmt.Errorf("tokens %q and %q have the same secret", other.name, tok.Name)
		}
		t.byDigest[digest] = p
	}
	return t, nil
}

// Empty reports whether everybody is accepted.
func (t *Tokens) Empty() bool { return t == nil || len(t.byDigest) == 0 }

func (t Token) digest() (d [sha256.Size]byte, err error) {
	if (t.Token == "") == (t.SHA256 == "") {
		return d, errors.New("give exactly one of token and sha256")
	}
	if t.Token != "" {
		if len(t.Token) < 8 {
			return d, errors.New("a token has at least 8 characters")
		}
		return sha256.Sum256([]byte(t.Token)), nil
	}
	raw, err := hex.DecodeString(t.SHA256)
	if err != nil || len(raw) != sha256.Size {
		return d, errors.New("sha256 has 64 hexadecimal characters")
	}
	return [sha256.Size]byte(raw), nil
}

func (t Token) principal() (*principal, error) {
	p := &principal{name: t.Name, roles: t.Roles, scopes: t.Scopes, tenants: t.Tenants, pools: t.Pools, ids: t.Instances}
	if t.Name == "" || len(t.Roles) == 0 {
		return nil, errors.New("needs a name and at least one role")
	}
	for _, r := range t.Roles {
		if !slices.Contains(anyone.roles, r) {
			return nil, fmt.Errorf("unknown role %q", r)
		}
	}
	if len(p.tenants) == 0 {
		p.tenants = []string{statestore.DefaultName}
	}
	for _, s := range p.scopes {
		if s != ScopeContent {
			return nil, fmt.Errorf("unknown scope %q", s)
		}
	}
	if err := checkNames(p); err != nil {
		return nil, err
	}
	for _, n := range t.Networks {
		prefix, err := netip.ParsePrefix(n)
		if err != nil {
			return nil, fmt.Errorf("network: %w", err)
		}
		p.networks = append(p.networks, prefix)
	}
	return p, nil
}

// checkNames refuses names that no tenant, pool or instance can have: they are
// mistakes that would lock the bearer out, or in.
func checkNames(p *principal) error {
	for _, t := range p.tenants {
		if err := statestore.ValidateName("tenant", t); t != "*" && err != nil {
			return err
		}
	}
	for _, pool := range p.pools {
		if err := statestore.ValidateName("pool", pool); err != nil {
			return err
		}
	}
	for _, id := range p.ids {
		stem := strings.TrimSuffix(id, "*")
		if err := statestore.ValidateInstanceID(stem); id != "*" && err != nil {
			return err
		}
	}
	return nil
}

// identify finds the bearer. X-Berth-Token wins over Authorization, which may be
// the end user's.
func (t *Tokens) identify(r *http.Request) (*principal, error) {
	if t.Empty() {
		return anyone, nil
	}
	secret := r.Header.Get(hdrToken)
	if secret == "" {
		scheme, rest, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if strings.EqualFold(scheme, "Bearer") {
			secret = strings.TrimSpace(rest)
		}
	}
	// A map keyed by digest: looking up compares digests of secrets, whose
	// bytes tell a guesser nothing about the secret.
	if p := t.byDigest[sha256.Sum256([]byte(secret))]; p != nil && secret != "" {
		return p, nil
	}
	return nil, newProblem("unauthorized", "the token is missing or unknown")
}

func (p *principal) may(role Role) bool { return slices.Contains(p.roles, role) }

// reads reports whether the bearer may see what a conversation says.
func (p *principal) reads() bool { return p.may(RoleWorker) || slices.Contains(p.scopes, ScopeContent) }

// tenant is the tenant of a call that asked for want; empty takes the token's. A
// tenant that the token is not for looks like one without sessions.
func (p *principal) tenant(want string) (string, error) {
	if want == "" {
		if p.tenants[0] == "*" {
			return statestore.DefaultName, nil
		}
		return p.tenants[0], nil
	}
	if err := statestore.ValidateName("tenant", want); err != nil {
		return "", err
	}
	if !slices.Contains(p.tenants, "*") && !slices.Contains(p.tenants, want) {
		return "", newProblem("not_found", "the token's tenants have no such session")
	}
	return want, nil
}

func (p *principal) allowPool(pool string) error {
	if len(p.pools) > 0 && !slices.Contains(p.pools, pool) {
		return newProblem("forbidden", "the token is not for this pool")
	}
	return nil
}

// allowInstance reports whether the bearer may speak for the instance.
func (p *principal) allowInstance(id string) error {
	if len(p.ids) == 0 {
		return nil
	}
	for _, pattern := range p.ids {
		prefix, open := strings.CutSuffix(pattern, "*")
		if pattern == id || open && strings.HasPrefix(id, prefix) {
			return nil
		}
	}
	return newProblem("forbidden", "the token is not for this instance")
}

// allowAddress reports whether the bearer may register the address.
func (p *principal) allowAddress(address string) error {
	if len(p.networks) == 0 {
		return nil
	}
	if ap, err := netip.ParseAddrPort(address); err == nil {
		for _, n := range p.networks {
			if n.Contains(ap.Addr().Unmap()) {
				return nil
			}
		}
	}
	return newProblem("forbidden", "the token is not for this address range")
}

// require refuses callers without any of the roles.
func require(ctx context.Context, roles ...Role) (*principal, error) {
	p := caller(ctx)
	if p == nil {
		return nil, newProblem("unauthorized", "the token is missing or unknown")
	}
	if slices.ContainsFunc(roles, p.may) {
		return p, nil
	}
	return nil, newProblem("forbidden", fmt.Sprintf("the token needs one of the roles %v", roles))
}
