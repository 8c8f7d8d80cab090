package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Fleet is the operator's view of a server.
type Fleet struct{ URL string }

// States are the instances of a pool with their states.
func (f Fleet) States(ctx context.Context, pool string) (map[string]string, error) {
	var list struct {
		Instances []struct {
			ID    string `json:"id"`
			State string `json:"state"`
		} `json:"instances"`
	}
	if err := f.call(ctx, http.MethodGet, "/v1/instances?pool="+url.QueryEscape(pool), nil, &list); err != nil {
		return nil, err
	}
	states := make(map[string]string, len(list.Instances))
	for _, i := range list.Instances {
		states[i.ID] = i.State
	}
	return states, nil
}

// Ramp sets how long instances of a pool take to come to their whole share, however
// many join.
func (f Fleet) Ramp(ctx context.Context, pool string, over time.Duration) error {
	policy := map[string]any{"ramp": map[string]any{"over_ms": over.Milliseconds(), "max_churn_percent": 0}}
	return f.call(ctx, http.MethodPut, "/v1/pools/"+url.PathEscape(pool)+"/policy", policy, new(json.RawMessage))
}

// Job is what the demo reads of a drain.
type Job struct {
	ID       string `json:"id"`
	State    string `json:"state"`
	Progress struct {
		Phase     string         `json:"phase"`
		Total     int            `json:"total"`
		Moved     int            `json:"moved"`
		Prewarmed int            `json:"prewarmed"`
		Skipped   map[string]int `json:"skipped"`
		Blocked   map[string]int `json:"blocked"`
	} `json:"progress"`
}

// Drain asks for a drain.
func (f Fleet) Drain(ctx context.Context, instance string, idleBelow, grace time.Duration) (Job, error) {
	var job Job
	err := f.call(ctx, http.MethodPost, "/v1/drains", map[string]any{
		"instances":          []string{instance},
		"in_flight_grace_ms": grace.Milliseconds(),
		"prewarm":            map[string]any{"idle_below_ms": idleBelow.Milliseconds()},
	}, &job)
	return job, err
}

// Job reads a job.
func (f Fleet) Job(ctx context.Context, id string) (Job, error) {
	var job Job
	err := f.call(ctx, http.MethodGet, "/v1/jobs/"+id, nil, &job)
	return job, err
}

// AwaitJob waits until the job has ended.
func (f Fleet) AwaitJob(ctx context.Context, id string) (Job, error) {
	var job Job
	err := until(ctx, func() (done bool, err error) {
		job, err = f.Job(ctx, id)
		switch job.State {
		case "succeeded":
			return true, err
		case "partial", "failed", "cancelled":
			return true, fmt.Errorf("drain ended %s", job.State)
		}
		return false, err
	})
	return job, err
}

func (f Fleet) call(ctx context.Context, method, path string, body, answer any) error {
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("render the request: %w", err)
		}
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, f.URL+path, content)
	if err != nil {
		return fmt.Errorf("make the request: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, data)
	}
	return json.Unmarshal(data, answer)
}

// until polls a condition of a running server, several times a second.
func until(ctx context.Context, met func() (bool, error)) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if done, err := met(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
