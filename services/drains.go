package services

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"berth/migrations"
	"berth/statestore"
)

// maxJobWait bounds a long poll for a job's progress.
const maxJobWait = 55 * time.Second

func (s *Server) migrationOptions() migrations.Options {
	return migrations.Options{
		Holder: s.options.Process, Lease: s.options.JobLease, Logger: s.log,
		LongestHint: s.options.HintValid + s.options.CacheTTL,
		Snapshot:    s.snapshotOf,
		Lifetimes:   func(pool string) statestore.Lifetimes { return s.policyOf(pool).lifetimes },
		Require:     func(pool string) statestore.Requirement { return s.policyOf(pool).require },
	}
}

type createDrainInput struct {
	Body migrations.DrainSpec
}

type jobOutput struct {
	Status   int
	Location string `header:"Location"`
	Body     jobDocument
}

// jobDocument is a job as the API shows it.
type jobDocument struct {
	ID         string              `json:"id"`
	Kind       string              `json:"kind"`
	Pool       string              `json:"pool"`
	Instances  []string            `json:"instances"`
	State      string              `json:"state" enum:"pending,planning,running,paused,cancelling,succeeded,partial,failed,cancelled"`
	Attempts   int                 `json:"attempts" doc:"processes that have worked on it"`
	AgeMS      int64               `json:"age_ms"`
	DeadlineMS int64               `json:"deadline_ms" doc:"time left"`
	Progress   migrations.Progress `json:"progress"`
}

func jobBody(j *statestore.Job, now statestore.Millis) (jobDocument, error) {
	progress, err := migrations.ParseProgress(j.Progress)
	if err != nil {
		return jobDocument{}, fmt.Errorf("read the progress of job %s: %w", j.ID, err)
	}
	doc := jobDocument{
		ID: j.ID, Kind: j.Kind, Pool: j.Pool, State: string(j.State), Attempts: j.Attempts, Instances: []string{},
		AgeMS: max(0, now.Sub(j.Created).Milliseconds()), DeadlineMS: max(0, j.Deadline.Sub(now).Milliseconds()), Progress: progress,
	}
	for _, o := range j.Sources {
		doc.Instances = append(doc.Instances, o.Instance)
	}
	return doc, nil
}

func (s *Server) createDrain(ctx context.Context, in *createDrainInput) (*jobOutput, error) {
	p, err := require(ctx, RoleOperator)
	if err != nil {
		return nil, err
	}
	s.seeFleet(ctx)
	if err := s.fleet.now().allowInstances(p, in.Body.Instances); err != nil {
		return nil, err
	}
	job, existed, err := s.jobs.CreateDrain(ctx, in.Body)
	var none *migrations.NoTargetError
	if errors.As(err, &none) {
		p := newProblem("no_target", none.Error())
		p.Candidates, p.Sessions = none.Candidates, &none.Sessions
		return nil, p
	}
	if err != nil {
		return nil, fmt.Errorf("create drain: %w", err)
	}
	s.audit(p, "drain", "job", job.ID, "existed", existed)
	s.seeFleet(ctx)
	out, err := s.readJob(ctx, p, job.ID)
	if err != nil {
		return nil, err
	}
	out.Status, out.Location = http.StatusAccepted, "/v1/jobs/"+job.ID
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
			return statestore.ErrUnknownInstance
		}
		if err := p.allowPool(in.Pool); err != nil {
			return err
		}
	}
	return nil
}

// readJob reads a job that the bearer may see.
func (s *Server) readJob(ctx context.Context, p *principal, id string) (*jobOutput, error) {
	job, now, err := s.store.Job(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read job %s: %w", id, err)
	}
	if err := p.allowPool(job.Pool); err != nil {
		return nil, err
	}
	body, err := jobBody(&job, now)
	return &jobOutput{Status: http.StatusOK, Body: body}, err
}

type jobInput struct {
	ID   string `path:"id"`
	Wait string `query:"wait" doc:"how long to wait for progress, like 30s"`
}

func (s *Server) getJob(ctx context.Context, in *jobInput) (*jobOutput, error) {
	p, err := require(ctx, RoleOperator, RoleWorker)
	if err != nil {
		return nil, err
	}
	wait, err := parseWait(in.Wait, maxJobWait)
	if err != nil {
		return nil, err
	}
	var out *jobOutput
	var seen []byte
	err = s.await(ctx, jobTopic(in.ID), wait, func() (bool, error) {
		if out, err = s.readJob(ctx, p, in.ID); err != nil {
			return false, err
		}
		now, err := json.Marshal(struct {
			State    string
			Progress migrations.Progress
		}{out.Body.State, out.Body.Progress})
		if err != nil {
			return false, fmt.Errorf("render job %s: %w", in.ID, err)
		}
		changed := seen != nil && string(now) != string(seen)
		seen = now
		return changed || statestore.JobState(out.Body.State).Ended(), nil
	})
	return out, err
}

type listJobsOutput struct {
	Body struct {
		Jobs []jobDocument `json:"jobs" doc:"newest first"`
	}
}

func (s *Server) listJobs(ctx context.Context, _ *struct{}) (*listJobsOutput, error) {
	p, err := require(ctx, RoleOperator)
	if err != nil {
		return nil, err
	}
	jobs, now, err := s.store.Jobs(ctx)
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	out := new(listJobsOutput)
	out.Body.Jobs = []jobDocument{}
	for i := range jobs {
		if p.allowPool(jobs[i].Pool) != nil {
			continue
		}
		doc, err := jobBody(&jobs[i], now)
		if err != nil {
			return nil, err
		}
		out.Body.Jobs = append(out.Body.Jobs, doc)
	}
	return out, nil
}

type controlInput struct {
	ID string `path:"id"`
}

func (s *Server) cancelJob(ctx context.Context, in *controlInput) (*jobOutput, error) {
	p, err := require(ctx, RoleOperator)
	if err != nil {
		return nil, err
	}
	if _, err := s.readJob(ctx, p, in.ID); err != nil {
		return nil, err
	}
	if _, err := s.store.ControlJob(ctx, in.ID, statestore.ControlCancel); err != nil {
		return nil, fmt.Errorf("cancel job %s: %w", in.ID, err)
	}
	s.audit(p, "cancel", "job", in.ID)
	out, err := s.readJob(ctx, p, in.ID)
	if out != nil {
		out.Status = http.StatusAccepted
	}
	return out, err
}
