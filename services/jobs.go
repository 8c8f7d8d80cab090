package services

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"berth/migrations"
	"berth/statestore"
)

// maxJobWait bounds a long poll for a job's progress.
const maxJobWait = 55 * time.Second

type jobOutput struct {
	Status   int
	Location string `header:"Location"`
	Body     jobDocument
}

// jobDocument is a job as the API shows it.
type jobDocument struct {
	ID         string                `json:"id" doc:"for /v1/jobs/{id}"`
	Kind       string                `json:"kind" doc:"drain, rebalance or erase"`
	Mode       migrations.Mode       `json:"mode,omitempty" doc:"of a drain, as it was asked: migrate, linger or detach"`
	Pool       string                `json:"pool" doc:"that it is about"`
	Instances  []string              `json:"instances" doc:"that it empties or relieves; empty: a whole pool"`
	Spec       *migrations.DrainSpec `json:"spec,omitempty" doc:"of a drain: its request, with the defaults filled in"`
	State      string                `json:"state" enum:"pending,planning,running,paused,cancelling,succeeded,partial,failed,cancelled" doc:"the last four are ends; partial: some sessions stayed"`
	Attempts   int                   `json:"attempts" doc:"processes that have worked on it"`
	AgeMS      int64                 `json:"age_ms" doc:"time since it was created"`
	DeadlineMS int64                 `json:"deadline_ms" doc:"time left"`
	TimeMS     int64                 `json:"time_ms" doc:"time it was asked to take at most, from its creation"`
	Progress   migrations.Progress   `json:"progress" doc:"what it has done so far"`
}

func (p *principal) jobBody(j *statestore.Job, now statestore.Millis) (jobDocument, error) {
	progress, err := migrations.ParseProgress(j.Progress)
	if err != nil {
		return jobDocument{}, fmt.Errorf("read the progress of job %s: %w", j.ID, err)
	}
	doc := jobDocument{
		ID: j.ID, Kind: j.Kind, Spec: migrations.DrainOf(j), Pool: j.Pool, State: string(j.State), Attempts: j.Attempts, Instances: []string{},
		AgeMS: max(0, now.Sub(j.Created).Milliseconds()), DeadlineMS: max(0, j.Deadline.Sub(now).Milliseconds()),
		TimeMS: j.Deadline.Sub(j.Created).Milliseconds(), Progress: progress,
	}
	if doc.Spec != nil {
		doc.Mode = doc.Spec.Mode
	}
	for _, o := range j.Sources {
		doc.Instances = append(doc.Instances, o.Instance)
	}
	// A job is about everybody's sessions; their names are for whom they concern.
	doc.Progress.Left = slices.DeleteFunc(doc.Progress.Left, func(l migrations.Leftover) bool { return l.Session != "" && !p.sees(l.Tenant) })
	return doc, nil
}

// sees reports whether the bearer may be told of a tenant's sessions.
func (p *principal) sees(tenant string) bool {
	return slices.Contains(p.tenants, "*") || slices.Contains(p.tenants, tenant)
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
	body, err := p.jobBody(&job, now)
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
	out, err := s.readJob(ctx, p, in.ID)
	if err != nil || wait == 0 {
		return out, err
	}
	return s.awaitJob(ctx, p, out, wait)
}

// awaitJob waits until a job says something else than it was seen to say, or has
// ended, and reads it.
func (s *Server) awaitJob(ctx context.Context, p *principal, seen *jobOutput, wait time.Duration) (out *jobOutput, err error) {
	err = s.await(ctx, jobTopic(seen.Body.ID), wait, func() (bool, error) {
		if out, err = s.readJob(ctx, p, seen.Body.ID); err != nil {
			return false, err
		}
		changed := out.Body.State != seen.Body.State || !reflect.DeepEqual(out.Body.Progress, seen.Body.Progress)
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
		doc, err := p.jobBody(&jobs[i], now)
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

func (s *Server) pauseJob(ctx context.Context, in *controlInput) (*jobOutput, error) {
	return s.controlJob(ctx, in.ID, "pause", s.jobs.Pause)
}

func (s *Server) resumeJob(ctx context.Context, in *controlInput) (*jobOutput, error) {
	return s.controlJob(ctx, in.ID, "resume", s.jobs.Resume)
}

func (s *Server) cancelJob(ctx context.Context, in *controlInput) (*jobOutput, error) {
	return s.controlJob(ctx, in.ID, "cancel", s.jobs.Cancel)
}

// controlJob stores an operator's wish; the job's state says when it is done.
func (s *Server) controlJob(
	ctx context.Context, id, action string, control func(context.Context, string) (statestore.Job, error),
) (*jobOutput, error) {
	p, err := require(ctx, RoleOperator)
	if err != nil {
		return nil, err
	}
	if _, err := s.readJob(ctx, p, id); err != nil {
		return nil, err
	}
	if _, err := control(ctx, id); err != nil {
		return nil, fmt.Errorf("%s job %s: %w", action, id, err)
	}
	s.audit(p, action, "job", id)
	out, err := s.readJob(ctx, p, id)
	if out != nil {
		out.Status = http.StatusAccepted
	}
	return out, err
}

// eventsAlive is the longest silence of a stream of events: what stands between
// would take a longer one for a dead connection.
const eventsAlive = 15 * time.Second

// jobEvents sends a job whenever it says something new, as server-sent events: each
// is named progress, and the last one end.
func (s *Server) jobEvents(ctx context.Context, in *controlInput) (*huma.StreamResponse, error) {
	p, err := require(ctx, RoleOperator, RoleWorker)
	if err != nil {
		return nil, err
	}
	job, err := s.readJob(ctx, p, in.ID)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		c.SetHeader("Content-Type", mediaEvents)
		c.SetHeader("Cache-Control", "no-store")
		c.SetHeader("X-Accel-Buffering", "no") // nginx holds answers back otherwise
		_, w := humachi.Unwrap(c)
		flusher := http.NewResponseController(w)
		for err := writeJob(w, job); err == nil && flusher.Flush() == nil; {
			if statestore.JobState(job.Body.State).Ended() || s.stopping.Load() {
				return
			}
			seen := job
			if job, err = s.awaitJob(c.Context(), p, seen, eventsAlive); err != nil {
				return // the client is gone, or asks again and is told
			}
			if job.Body.State == seen.Body.State && reflect.DeepEqual(job.Body.Progress, seen.Body.Progress) {
				_, err = io.WriteString(w, ": alive\n\n")
				continue
			}
			err = writeJob(w, job)
		}
	}}, nil
}

func writeJob(w io.Writer, job *jobOutput) error {
	name := "progress"
	if statestore.JobState(job.Body.State).Ended() {
		name = "end"
	}
	data, err := json.Marshal(job.Body)
	if err != nil {
		return fmt.Errorf("render job %s: %w", job.Body.ID, err)
	}
	_, err = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, data)
	return err //nolint:wrapcheck // only tells that the client is gone
}
