package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strconv"
	"time"

	"berth/cmd/berth/internal/simulate"
	"berth/routing"
	"berth/services"
)

// fleetAnswer is GET /v1/snapshot, as far as a simulation needs it.
type fleetAnswer struct {
	Policy    services.PoolPolicy `json:"policy"`
	Instances []struct {
		ID          string        `json:"id"`
		State       routing.State `json:"state"`
		Weight      int           `json:"weight"`
		RampPercent int           `json:"ramp_percent"`
		Zone        string        `json:"zone"`
		MaxRunning  int           `json:"max_running"`
	} `json:"instances"`
	Sessions []struct {
		Ring   string `json:"ring"`
		Owner  string `json:"owner"`
		Live   bool   `json:"live"`
		Turns  int    `json:"turns"`
		Tokens int    `json:"tokens"`
		Age    millis `json:"age_ms"`
		Idle   millis `json:"idle_ms"`
		Bound  millis `json:"bound_ms"`
	} `json:"sessions"`
	Cursor string `json:"cursor"`
}

// millis is a duration as the API writes it.
type millis int64

func (m millis) duration() time.Duration { return time.Duration(m) * time.Millisecond }

func (c *simulateCmd) remote() *RemoteFlags {
	return &RemoteFlags{URL: c.From, Token: c.Token, TLSFlags: c.TLSFlags}
}

// loadFleet reads the live fleet, page by page.
func (c *simulateCmd) loadFleet(ctx context.Context, s *simulation) error {
	s.fleet = new(simulate.Fleet)
	remote := c.remote()
	query := url.Values{"sessions": {"hash"}}
	if c.Pool != "" {
		query.Set("pool", c.Pool)
	}
	for first := true; ; first = false {
		body, err := remote.call(ctx, "GET", "/v1/snapshot?"+query.Encode(), nil)
		if err != nil {
			return fmt.Errorf("read the live fleet: %w", err)
		}
		var page fleetAnswer
		if err := json.Unmarshal(body, &page); err != nil {
			return fmt.Errorf("read the live fleet: %w", err)
		}
		if first {
			if err := s.adopt(&page); err != nil {
				return err
			}
		}
		if err := addSessions(s.fleet, &page); err != nil {
			return fmt.Errorf("read the live fleet: %w", err)
		}
		if page.Cursor == "" {
			return nil
		}
		query.Set("cursor", page.Cursor)
	}
}

// adopt takes policy and instances over.
func (s *simulation) adopt(page *fleetAnswer) (err error) {
	s.policy = page.Policy
	if s.scenario.Policy, s.scenario.Affinity, err = page.Policy.InForce(); err != nil {
		return fmt.Errorf("policy of the live fleet: %w", err)
	}
	for _, in := range page.Instances {
		percent := in.RampPercent
		if percent == 0 {
			percent = routing.RampQueued
		}
		s.fleet.Replicas = append(s.fleet.Replicas, simulate.Replica{
			ID: in.ID, Zone: in.Zone, Weight: in.Weight, State: in.State, RampPercent: percent, MaxRunning: in.MaxRunning,
		})
	}
	return nil
}

func addSessions(f *simulate.Fleet, page *fleetAnswer) error {
	for _, x := range page.Sessions {
		hash, err := strconv.ParseUint(x.Ring, 16, 64)
		if err != nil {
			return fmt.Errorf("a session stands at %q on the ring: %w", x.Ring, err)
		}
		f.Sessions = append(f.Sessions, simulate.Stored{
			Hash: hash, Owner: x.Owner, Live: x.Live, Turns: x.Turns, Tokens: x.Tokens,
			Age: x.Age.duration(), Idle: x.Idle.duration(), Bound: x.Bound.duration(),
		})
	}
	return nil
}

// check prints what a drain expected beside what it did.
func (c *simulateCmd) check(ctx context.Context, std *streams) error {
	if c.From == "" {
		return errors.New("--check needs --from: the job is read there")
	}
	if !reflect.DeepEqual(*c, simulateCmd{From: c.From, Token: c.Token, TLSFlags: c.TLSFlags, Check: c.Check, JSON: c.JSON}) {
		return errors.New("--check plays nothing: want it with --from, what that needs to get through, and --json alone")
	}
	body, err := c.remote().call(ctx, "GET", "/v1/jobs/"+url.PathEscape(c.Check), nil)
	if err != nil {
		return fmt.Errorf("read job %s: %w", c.Check, err)
	}
	var job jobAnswer
	if err := json.Unmarshal(body, &job); err != nil {
		return fmt.Errorf("read job %s: %w", c.Check, err)
	}
	checked, err := simulate.CheckDrain(&simulate.Job{
		ID: job.ID, Kind: job.Kind, State: job.State, Instances: job.Instances, Attempts: job.Attempts,
		Spec: job.Spec, Progress: job.Progress.Progress,
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(std, checked)
	}
	return checked.WriteTable(std.out)
}
