package services

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"berth/migrations"
	"berth/statestore"
)

func (s *Server) migrationOptions() migrations.Options {
	return migrations.Options{
		Holder: s.options.Process, Lease: s.options.JobLease, Logger: s.log,
		LongestHint: s.options.HintValid + s.options.CacheTTL,
		Snapshot:    s.snapshotOf,
		Silent:      s.silent,
		Erase:       s.erase,
		Lifetimes:   func(pool string) statestore.Lifetimes { return s.policyOf(pool).lifetimes },
		Require:     func(pool string) statestore.Requirement { return s.policyOf(pool).require },

		Pools:         func() []string { return slices.Collect(maps.Keys(s.fleet.now().pools)) },
		AutoRebalance: func(pool string) time.Duration { return s.policyOf(pool).autoRebalance() },
	}
}

type createDrainInput struct {
	Body struct {
		migrations.DrainSpec
		DryRun bool `json:"dry_run,omitempty" doc:"answer the plan, and begin nothing"`
	}
}

// startedOutput answers the request for a job: with the job, or with what it would
// do (a [migrations.Preview]) where the caller only wants to know.
type startedOutput struct {
	Status   int
	Location string `header:"Location"`
	Body     any
}

func (s *Server) createDrain(ctx context.Context, in *createDrainInput) (*startedOutput, error) {
	p, err := require(ctx, RoleOperator)
	if err != nil {
		return nil, err
	}
	if err := s.freshFleet(ctx); err != nil {
		return nil, err
	}
	if err := s.fleet.now().allowInstances(p, in.Body.Instances); err != nil {
		return nil, err
	}
	if in.Body.DryRun {
		plan, err := s.jobs.PreviewDrain(ctx, in.Body.DrainSpec)
		return p.foreseen(plan, err)
	}
	job, existed, err := s.jobs.CreateDrain(ctx, in.Body.DrainSpec)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what was to be created
	}
	s.audit(p, "drain", "job", job.ID, "existed", existed)
	s.seeFleet(ctx)
	return s.started(ctx, p, job.ID, existed)
}

// foreseen answers a dry run. Its counts are whole; the sessions that it names are
// those that the bearer may be told of.
func (p *principal) foreseen(plan migrations.Preview, err error) (*startedOutput, error) {
	if err != nil {
		return nil, err
	}
	plan.Moves = slices.DeleteFunc(plan.Moves, func(m migrations.PlannedMove) bool { return !p.sees(m.Tenant) })
	return &startedOutput{Status: http.StatusOK, Body: plan}, nil
}

// started answers with a job that was just created, or existed.
func (s *Server) started(ctx context.Context, p *principal, id string, existed bool) (*startedOutput, error) {
	job, err := s.readJob(ctx, p, id)
	if err != nil {
		return nil, err
	}
	out := &startedOutput{Status: http.StatusAccepted, Location: "/v1/jobs/" + id, Body: job.Body}
	if existed {
		out.Status = http.StatusOK
	}
	return out, nil
}

// allowInstances refuses instances that are in pools which the token is not for.
func (i *fleetImage) allowInstances(p *principal, ids []string) error {
	if len(p.pools) == 0 {
		return nil
	}
	for _, id := range ids {
		in := i.instances[id]
		if in == nil {
			return &migrations.UnknownInstanceError{Instance: id}
		}
		if err := p.allowPool(in.Pool); err != nil {
			return err
		}
	}
	return nil
}

type createRebalanceInput struct {
	Body struct {
		migrations.RebalanceSpec
		DryRun bool `json:"dry_run,omitempty" doc:"answer the plan, and begin nothing"`
	}
}

func (s *Server) createRebalance(ctx context.Context, in *createRebalanceInput) (*startedOutput, error) {
	p, err := require(ctx, RoleOperator)
	if err != nil {
		return nil, err
	}
	if err := s.freshFleet(ctx); err != nil {
		return nil, err
	}
	pool, tenant, err := s.rebalanced(ctx, p, in.Body.Instance)
	if err != nil {
		return nil, err
	}
	if in.Body.DryRun {
		plan, err := s.jobs.PreviewRebalance(ctx, pool, tenant, in.Body.RebalanceSpec)
		return p.foreseen(plan, err)
	}
	job, existed, err := s.jobs.CreateRebalance(ctx, pool, tenant, in.Body.RebalanceSpec)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what was to be created
	}
	s.audit(p, "rebalance", "job", job.ID, "existed", existed)
	return s.started(ctx, p, job.ID, existed)
}

// rebalanced is the pool that a rebalance is about, that of its instance if it names
// one, and the tenant whose sessions it may name.
func (s *Server) rebalanced(ctx context.Context, p *principal, instance string) (pool, tenant string, err error) {
	r := request(ctx)
	if tenant, err = p.tenant(r.Header.Get(hdrTenant)); err != nil {
		return "", "", err
	}
	if instance != "" {
		in, err := s.instanceFor(ctx, p, instance)
		if err != nil {
			return "", "", err
		}
		return in.Pool, tenant, nil
	}
	if pool, err = s.poolName(queryOf(ctx), r.Header); err != nil {
		return "", "", err
	}
	found, err := s.poolFor(ctx, pool)
	if err != nil {
		return "", "", err
	}
	return found.name, tenant, nil
}
