package services

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"berth/routing"
	"berth/statestore"
)

type listPoolsOutput struct {
	Body struct {
		Pools []poolDocument `json:"pools"`
	}
}

type poolDocument struct {
	Pool            string   `json:"pool"`
	Instances       int      `json:"instances"`
	Models          []string `json:"models,omitempty"`
	PolicyVersion   uint64   `json:"policy_version"`
	SnapshotVersion uint64   `json:"snapshot_version"`
}

func (s *Server) listPools(ctx context.Context, _ *struct{}) (*listPoolsOutput, error) {
	principal, err := require(ctx, RoleOperator)
	if err != nil {
		return nil, err
	}
	s.seeFleet(ctx)
	image := s.fleet.now()
	out := new(listPoolsOutput)
	out.Body.Pools = []poolDocument{}
	for _, name := range slices.Sorted(maps.Keys(image.pools)) {
		if principal.allowPool(name) != nil {
			continue
		}
		p := image.pools[name]
		out.Body.Pools = append(out.Body.Pools, poolDocument{
			Pool: name, Instances: p.snapshot.Len(), Models: p.policy.Models,
			PolicyVersion: image.view.Policies[name].Version, SnapshotVersion: p.snapshot.Version(),
		})
	}
	return out, nil
}

// poolFor finds a pool for an operator who may see it.
func (s *Server) poolFor(ctx context.Context, name string) (*pool, error) {
	p, err := require(ctx, RoleOperator)
	if err != nil {
		return nil, err
	}
	if err := p.allowPool(name); err != nil {
		return nil, err
	}
	s.seeFleet(ctx)
	if found := s.fleet.now().pools[name]; found != nil {
		return found, nil
	}
	return nil, newProblem("unknown_pool", "no pool has this name")
}

type policyInput struct {
	Pool string `path:"pool"`
}

type policyOutput struct {
	Body struct {
		Version uint64     `json:"version" doc:"0: nobody set one, these are the defaults"`
		Policy  PoolPolicy `json:"policy"`
	}
}

func (s *Server) getPolicy(ctx context.Context, in *policyInput) (*policyOutput, error) {
	p, err := s.poolFor(ctx, in.Pool)
	if err != nil {
		return nil, err
	}
	image := s.fleet.now()
	out := new(policyOutput)
	out.Body.Version, out.Body.Policy = image.view.Policies[in.Pool].Version, p.policy.PoolPolicy
	return out, nil
}

// poolChanger is the caller, if it may change a pool and no file decides its policy.
func (s *Server) poolChanger(ctx context.Context, pool string) (*principal, error) {
	p, err := require(ctx, RoleOperator)
	if err != nil {
		return nil, err
	}
	if err := statestore.ValidateName("pool", pool); err != nil {
		return nil, err
	}
	if err := p.allowPool(pool); err != nil {
		return nil, err
	}
	return p, s.enforced(pool)
}

type putPolicyInput struct {
	Pool string `path:"pool"`
	Body PoolPolicy
}

func (s *Server) putPolicy(ctx context.Context, in *putPolicyInput) (*policyOutput, error) {
	p, err := s.poolChanger(ctx, in.Pool)
	if err != nil {
		return nil, err
	}
	doc, err := json.Marshal(in.Body)
	if err != nil {
		return nil, fmt.Errorf("render the policy: %w", err)
	}
	if _, err := parsePolicy(doc); err != nil {
		return nil, err
	}
	var stored statestore.Policy
	err = s.changePolicies(ctx, func(ctx context.Context, before map[string]statestore.Policy) error {
		if model, other := meant(in.Pool, in.Body.Models, before); other != "" {
			return invalid("body.models", alreadyMeans(model, other))
		}
		return s.unmarked(ctx, in.Pool, func() (err error) {
			if stored, err = s.store.PutPolicy(ctx, in.Pool, doc); err != nil {
				return fmt.Errorf("put the policy of pool %s: %w", in.Pool, err)
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	s.audit(p, "put policy", "pool", in.Pool, "version", stored.Version)
	s.seeFleet(ctx)
	out := new(policyOutput)
	out.Body.Version, out.Body.Policy = stored.Version, in.Body
	return out, nil
}

// policyOf is the policy in force for a pool; pools never seen have the default.
func (s *Server) policyOf(name string) *poolPolicy {
	if p := s.fleet.now().pools[name]; p != nil {
		return p.policy
	}
	return defaultPolicy
}

var defaultPolicy = mustDefaultPolicy()

func mustDefaultPolicy() *poolPolicy {
	p, err := parsePolicy(nil)
	if err != nil {
		panic(err) // the defaults are part of the program
	}
	return p
}

type ringInput struct {
	Pool string `query:"pool"`
}

type ringOutput struct {
	Body struct {
		Pool            string             `json:"pool"`
		SnapshotVersion uint64             `json:"snapshot_version"`
		Checksum        string             `json:"checksum" doc:"equal in every process with the same members"`
		MaxMean         float64            `json:"max_mean" doc:"largest share per weight over the mean, of the instances that take new sessions"`
		MinMean         float64            `json:"min_mean" doc:"smallest of them"`
		StdDev          float64            `json:"stddev" doc:"of shares per weight, over the mean"`
		Shares          map[string]float64 `json:"shares" doc:"part of the key space whose new sessions go to an instance by the ring; 0 for one that takes none"`
		Members         []ringMember       `json:"members"`
		Changes         []ringChange       `json:"changes" doc:"of where new sessions go, that this process has seen, the last ones, oldest first"`
	}
}

type ringMember struct {
	Instance    string  `json:"instance"`
	Points      int     `json:"points"`
	Share       float64 `json:"share" doc:"part of the key space whose new sessions go there"`
	Fair        float64 `json:"fair" doc:"its part of the weights in force, of the instances that take new sessions"`
	Weight      int     `json:"weight"`
	RampPercent int     `json:"ramp_percent" doc:"part of the weight in force"`
	TakesNew    bool    `json:"takes_new" doc:"new sessions may be placed on it"`
}

func (s *Server) getRing(ctx context.Context, in *ringInput) (*ringOutput, error) {
	name := in.Pool
	if name == "" {
		name = statestore.DefaultName
	}
	p, err := s.poolFor(ctx, name)
	if err != nil {
		return nil, err
	}
	out := new(ringOutput)
	out.Body.Pool, out.Body.SnapshotVersion = name, p.snapshot.Version()
	out.Body.Changes = append([]ringChange{}, p.changes...)
	describeRing(out, p.snapshot)
	return out, nil
}

// describeRing fills in who takes what part of new sessions.
func describeRing(out *ringOutput, snapshot *routing.Snapshot) {
	ring, b := snapshot.Ring(), &out.Body
	b.Checksum, b.Shares, b.Members = fmt.Sprintf("%016x", ring.Checksum()), map[string]float64{}, []ringMember{}
	if ring.Len() == 0 {
		return // of nobody there are no shares
	}
	for _, m := range snapshot.Shares() {
		b.Shares[m.ID] = m.Share
		in := snapshot.Lookup(m.ID)
		b.Members = append(b.Members, ringMember{
			Instance: m.ID, Points: ring.Points(m.ID), Share: m.Share, Fair: m.Fair, Weight: in.Weight,
			RampPercent: percentInForce(in), TakesNew: snapshot.Eligible(m.ID),
		})
	}
	spread := snapshot.Spread()
	b.MaxMean, b.MinMean, b.StdDev = spread.MaxMean, spread.MinMean, spread.StdDev
}
