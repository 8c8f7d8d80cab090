package services

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"berth/migrations"
	"berth/statestore"
)

// InstanceDocument is an instance as the API shows it.
type InstanceDocument struct {
	ID           string            `json:"id"`
	Pool         string            `json:"pool"`
	Address      string            `json:"address"`
	Scheme       string            `json:"scheme,omitempty"`
	Incarnation  string            `json:"incarnation" doc:"digest of the present boot's secret"`
	State        string            `json:"state"`
	Breaker      string            `json:"breaker,omitempty" doc:"open, trial or saturated; absent: closed"`
	Weight       int               `json:"weight"`
	RampPercent  int               `json:"ramp_percent" doc:"part of the weight that is in force"`
	Zone         string            `json:"zone,omitempty"`
	Rank         *int              `json:"rank,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Running      int               `json:"running"`
	Waiting      int               `json:"waiting"`
	KVUsage      float64           `json:"kv_usage"`
	BeatMS       *int64            `json:"last_heartbeat_ms,omitempty" doc:"since the last heartbeat; absent: never"`
	RegisteredMS *int64            `json:"registered_ms,omitempty"`
	Job          string            `json:"job,omitempty" doc:"that drains it, or closed it and has ended; absent once it is open again"`
	Sessions     *int              `json:"sessions,omitempty" doc:"bound to it"`
}

func instanceBody(in *statestore.Instance, image *fleetImage) InstanceDocument {
	r := routingInstance(in)
	job := in.Job
	if in.Lifecycle != statestore.Draining && in.Lifecycle != statestore.Drained {
		job = "" // the last one that closed it, or opened it again
	}
	return InstanceDocument{
		ID: in.ID, Pool: in.Pool, Address: in.Address, Scheme: in.Scheme, Incarnation: in.Incarnation, State: stateName(in),
		Breaker: string(in.Breaker), Weight: r.Weight, RampPercent: percentInForce(&r), Zone: in.Zone, Rank: in.Rank, Labels: r.Labels,
		Running: in.LastBeat.Running, Waiting: in.LastBeat.Waiting, KVUsage: in.LastBeat.KVUsage,
		BeatMS: image.millisSince(in.BeatAt), RegisteredMS: image.millisSince(in.Registered), Job: job,
	}
}

type listInstancesInput struct {
	Pool string `query:"pool" doc:"only of this pool"`
}

type listInstancesOutput struct {
	Body struct {
		Instances       []InstanceDocument `json:"instances"`
		SnapshotVersion uint64             `json:"snapshot_version"`
	}
}

func (s *Server) listInstances(ctx context.Context, in *listInstancesInput) (*listInstancesOutput, error) {
	p, err := require(ctx, RoleOperator)
	if err != nil {
		return nil, err
	}
	counts, err := s.store.CountSessions(ctx)
	if err != nil {
		return nil, fmt.Errorf("count sessions: %w", err)
	}
	s.seeFleet(ctx)
	image := s.fleet.now()
	out := new(listInstancesOutput)
	out.Body.Instances, out.Body.SnapshotVersion = []InstanceDocument{}, image.view.Version
	for i := range image.view.Instances {
		instance := &image.view.Instances[i]
		if in.Pool != "" && instance.Pool != in.Pool || p.allowPool(instance.Pool) != nil {
			continue
		}
		doc := instanceBody(instance, image)
		n := counts[statestore.InstanceName{Pool: instance.Pool, Instance: instance.ID}]
		doc.Sessions = &n
		out.Body.Instances = append(out.Body.Instances, doc)
	}
	return out, nil
}

type instanceInput struct {
	ID string `path:"id"`
}

type getInstanceOutput struct {
	Body struct {
		InstanceDocument
		SafeToStop bool      `json:"safe_to_stop" doc:"it is drained"`
		Because    []because `json:"because" doc:"what stands against it"`
		DrainCost  drainCost `json:"drain_cost" doc:"what moving its sessions means"`
	}
}

type because struct {
	Reason string `json:"reason" enum:"sessions,in_flight,job,unknown_in_flight"`
	Count  int    `json:"count" doc:"of job: 1 while a job drains it, 0 if none does: it may be given sessions at any time, or, if it is draining, its job has ended and it waits for another drain or an uncordon"`
}

type drainCost struct {
	Sessions int    `json:"sessions"`
	Tokens   uint64 `json:"tokens"`
}

// getInstance reads an instance and says whether stopping it would hurt: only
// `drained` is safe, and what is missing is named.
func (s *Server) getInstance(ctx context.Context, in *instanceInput) (*getInstanceOutput, error) {
	p, err := require(ctx, RoleOperator, RoleWorker)
	if err != nil {
		return nil, err
	}
	if !p.may(RoleOperator) {
		if err := p.allowInstance(in.ID); err != nil {
			return nil, err
		}
	}
	instance, err := s.instanceFor(ctx, p, in.ID)
	if err != nil {
		return nil, err
	}
	out := new(getInstanceOutput)
	out.Body.InstanceDocument = instanceBody(instance, s.fleet.now())
	for v, err := range s.store.SessionsOf(ctx, instance.Pool, instance.ID) {
		if err != nil {
			return nil, fmt.Errorf("read the sessions of instance %s: %w", in.ID, err)
		}
		if v.Live() {
			out.Body.DrainCost.Sessions++
			out.Body.DrainCost.Tokens += migrations.Prefill(&v)
		}
	}
	out.Body.Sessions = &out.Body.DrainCost.Sessions
	out.Body.SafeToStop = instance.Lifecycle == statestore.Drained
	jobs, err := s.drainsOf(ctx, instance)
	if err != nil {
		return nil, err
	}
	out.Body.Because = s.reasonsAgainst(instance, out.Body.DrainCost.Sessions, jobs)
	return out, nil
}

// drainsOf counts the jobs that drain an instance: 1, or 0 when it is none, or the one
// that closed it has ended.
func (s *Server) drainsOf(ctx context.Context, in *statestore.Instance) (int, error) {
	if in.Lifecycle != statestore.Draining || in.Job == "" {
		return 0, nil
	}
	job, _, err := s.store.Job(ctx, in.Job)
	switch {
	case errors.Is(err, statestore.ErrNotFound), err == nil && job.State.Ended():
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("read job %s: %w", in.Job, err)
	}
	return 1, nil
}

// reasonsAgainst says why an instance is not safe to stop that so many sessions and
// jobs are at. One that is not drained always has a reason: that nothing is there at
// this moment promises nothing.
func (s *Server) reasonsAgainst(in *statestore.Instance, sessions, jobs int) []because {
	list := []because{}
	if in.Lifecycle == statestore.Drained {
		return list
	}
	if sessions > 0 {
		list = append(list, because{"sessions", sessions})
	}
	age := s.fleet.now().millisSince(in.BeatAt)
	switch flying := in.LastBeat.Running + in.LastBeat.Waiting; {
	case age == nil || *age > s.options.DownAfter.Milliseconds():
		list = append(list, because{"unknown_in_flight", 1})
	case flying > 0:
		list = append(list, because{"in_flight", flying})
	}
	return append(list, because{"job", jobs})
}

// instanceFor finds an instance that the bearer may see and change.
func (s *Server) instanceFor(ctx context.Context, p *principal, id string) (*statestore.Instance, error) {
	if err := s.freshFleet(ctx); err != nil {
		return nil, err
	}
	instance := s.fleet.now().instances[id]
	if instance == nil {
		return nil, &migrations.UnknownInstanceError{Instance: id}
	}
	return instance, p.allowPool(instance.Pool)
}

type stateOutput struct {
	Body struct {
		State string `json:"state"`
	}
}

func (s *Server) cordon(ctx context.Context, in *instanceInput) (*stateOutput, error) {
	return s.changeLifecycle(ctx, in.ID, "cordon", statestore.LifecycleChange{
		// One that is warming takes no session anyway, and uncordoning it later would
		// call it ready although it never said so.
		From: []statestore.Lifecycle{statestore.Ready, statestore.Cordoned}, To: statestore.Cordoned,
	})
}

func (s *Server) uncordon(ctx context.Context, in *instanceInput) (*stateOutput, error) {
	return s.changeLifecycle(ctx, in.ID, "uncordon", statestore.LifecycleChange{
		From: []statestore.Lifecycle{statestore.Cordoned, statestore.Ready}, To: statestore.Ready,
	})
}

func (s *Server) changeLifecycle(ctx context.Context, id, action string, change statestore.LifecycleChange) (*stateOutput, error) {
	p, err := require(ctx, RoleOperator)
	if err != nil {
		return nil, err
	}
	instance, err := s.instanceFor(ctx, p, id)
	if err != nil {
		return nil, err
	}
	var changed statestore.Instance
	if change.To == statestore.Ready && closedByDrain(instance) {
		changed, err = s.jobs.Reopen(ctx, instance)
	} else {
		changed, err = s.store.SetLifecycle(ctx, instance.Owner(), change)
	}
	if err != nil {
		return nil, fmt.Errorf("%s instance %s: %w", action, id, err)
	}
	s.audit(p, action, "instance", id)
	s.seeFleet(ctx)
	out := new(stateOutput)
	out.Body.State = stateName(&changed)
	return out, nil
}

// closedByDrain reports whether a drain, over or under way, keeps sessions off the
// instance.
func closedByDrain(in *statestore.Instance) bool {
	return in.Lifecycle == statestore.Draining || in.Lifecycle == statestore.Drained
}

type overrideInput struct {
	ID   string `path:"id"`
	Body struct {
		Weight *int              `json:"weight,omitempty" nullable:"true" minimum:"0" maximum:"10000" doc:"wins over the worker's; null gives it back"`
		Labels map[string]string `json:"labels,omitempty" nullable:"true" doc:"replace the worker's, with {} by none; null gives them back"`
	}
	RawBody []byte
}

// overrideInstance replaces the members that are given; null gives the word back
// to the worker.
func (s *Server) overrideInstance(ctx context.Context, in *overrideInput) (*stateOutput, error) {
	p, err := require(ctx, RoleOperator)
	if err != nil {
		return nil, err
	}
	if _, err := s.instanceFor(ctx, p, in.ID); err != nil {
		return nil, err
	}
	if err := checkLabels(in.Body.Labels); err != nil {
		return nil, err
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(in.RawBody, &given); err != nil {
		return nil, newProblem("malformed", "the body is not a JSON object")
	}
	change := statestore.OverrideChange{Override: statestore.Override{Weight: in.Body.Weight, Labels: in.Body.Labels}}
	_, change.SetWeight = given["weight"]
	_, change.SetLabels = given["labels"]
	changed, err := s.store.SetOverride(ctx, in.ID, change)
	if err != nil {
		return nil, fmt.Errorf("override instance %s: %w", in.ID, err)
	}
	s.audit(p, "override", "instance", in.ID)
	s.seeFleet(ctx)
	out := new(stateOutput)
	out.Body.State = stateName(&changed)
	return out, nil
}
