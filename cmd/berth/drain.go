package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/alecthomas/kong"

	"berth/migrations"
)

// Exit codes of the commands that begin or follow a job, beside 0 for success (for a
// drain: safe to stop) and 1 for errors.
const (
	exitPartial  = 3
	exitNoTarget = 4
	exitFailed   = 5
)

// drainCmd drains instances.
type drainCmd struct {
	RemoteFlags `embed:""`
	JobFlags    `embed:""`
	Instances   []string          `arg:"" help:"Instances to drain."`
	Mode        string            `default:"migrate" enum:"migrate,linger,detach" help:"migrate: move sessions to other instances; linger: wait until they lapse; detach: leave them stored, without an instance."`
	AtDeadline  string            `default:"commit" enum:"commit,leave" help:"Whether idle sessions move cold when the time runs out."`
	Avoid       map[string]string `placeholder:"LABEL=VALUE" help:"Instances with all of these labels, like those that will be drained next, get sessions only when no other has room."`
}

// JobFlags are common to the commands that begin a job.
type JobFlags struct {
	Deadline  time.Duration `default:"10m" help:"Time after which the job ends as partial."`
	Grace     time.Duration `default:"30s" help:"Time for running requests, and for workers to answer."`
	IdleBelow time.Duration `default:"10m" help:"Only sessions idle for less are prewarmed on their target."`

	SessionsPerS  float64 `name:"sessions-per-s" help:"Pace: sessions a second; 0 is no bound."`
	BytesPerS     float64 `name:"bytes-per-s" help:"Pace: bytes of stored context a second."`
	TokensPerS    float64 `name:"tokens-per-s" help:"Pace: tokens of context a second, which targets compute sooner or later."`
	Concurrency   int     `help:"Sessions under way at once; 0 is Berth's default."`
	PerTarget     int     `help:"Of those, how many on one target."`
	Retries       int     `help:"How often a session that is refused is tried again; 0 is until the deadline."`
	PrewarmTokens uint64  `help:"Tokens that may be prewarmed in all; 0 is no bound."`
	PrewarmPerS   float64 `name:"prewarm-per-s" help:"Tokens that may be prewarmed a second."`

	DryRun bool `help:"Only print who would move where, and what that costs."`
	Wait   bool `default:"true" negatable:"" help:"Wait for the end of the job."`
}

func (f *JobFlags) pace() migrations.Pace {
	return migrations.Pace{
		SessionsPerS: f.SessionsPerS, BytesPerS: f.BytesPerS, TokensPerS: f.TokensPerS,
		Concurrency: f.Concurrency, PerTarget: f.PerTarget, Retries: f.Retries,
	}
}

func (f *JobFlags) prewarm() migrations.Prewarm {
	idle := f.IdleBelow.Milliseconds()
	return migrations.Prewarm{IdleBelowMS: &idle, MaxTokens: f.PrewarmTokens, TokensPerS: f.PrewarmPerS}
}

// Run creates the drain and, unless told otherwise, waits for its end. It exits 0
// when the instances are safe to stop, 3 when the drain is partial or another boot
// serves under an instance's id by its end, 4 when no other instance can take the
// sessions, 5 when it failed or was cancelled.
func (c *drainCmd) Run(ctx context.Context, std *streams) error {
	grace := c.Grace.Milliseconds()
	advice := "add an instance, or drain with --mode detach: contexts are kept, and are rebuilt by whoever serves the sessions next"
	return c.begin(ctx, std, &c.RemoteFlags, &jobRequest{path: "/v1/drains", mode: c.Mode, advice: advice, body: struct {
		migrations.DrainSpec
		DryRun bool `json:"dry_run,omitempty"`
	}{migrations.DrainSpec{
		Instances: c.Instances, Mode: migrations.Mode(c.Mode), DeadlineMS: c.Deadline.Milliseconds(), InFlightGraceMS: &grace,
		AtDeadline: migrations.AtDeadline(c.AtDeadline), Avoid: c.Avoid, Pace: c.pace(), Prewarm: c.prewarm(),
	}, c.DryRun}})
}

// rebalanceCmd moves sessions off instances that are over their bound.
type rebalanceCmd struct {
	RemoteFlags `embed:""`
	JobFlags    `embed:""`
	Instance    string `help:"Relieve only this instance."`
	Sessions    idList `placeholder:"ID,..." help:"Move these sessions, wherever they are."`
	Target      string `help:"The only instance that may get them."`
	Pool        string `help:"Pool; an instance has its own."`
	Tenant      string `help:"Whose the sessions are, for tokens that may."`
}

// idList is a list of ids, with commas between them, that has one if it is given at
// all: an empty one, like a variable of a script that is not set, would mean all.
type idList []string

// Decode reads the value of a flag.
func (l *idList) Decode(ctx *kong.DecodeContext) error {
	var given string
	if err := ctx.Scan.PopValueInto("list of ids", &given); err != nil {
		return err
	}
	ids := kong.SplitEscaped(given, ',')
	if len(ids) == 0 || slices.Contains(ids, "") {
		return fmt.Errorf("%q has an empty id; leave the flag out for all", given)
	}
	*l = append(*l, ids...)
	return nil
}

// Run creates the rebalance and, unless told otherwise, waits for its end. It exits
// 0 when as many sessions have moved as were to, 3 when not all have, also because
// they were not there, 4 when the target may not take any, 5 when it failed or was
// cancelled.
func (c *rebalanceCmd) Run(ctx context.Context, std *streams) error {
	grace := c.Grace.Milliseconds()
	c.Headers = map[string]string{"X-Berth-Pool": c.Pool, "X-Berth-Tenant": c.Tenant}
	advice := "name a --target that takes sessions, or none; berth instances says who is ready"
	return c.begin(ctx, std, &c.RemoteFlags, &jobRequest{path: "/v1/rebalances", advice: advice, body: struct {
		migrations.RebalanceSpec
		DryRun bool `json:"dry_run,omitempty"`
	}{migrations.RebalanceSpec{
		Instance: c.Instance, Sessions: c.Sessions, Target: c.Target,
		DeadlineMS: c.Deadline.Milliseconds(), InFlightGraceMS: &grace, Pace: c.pace(), Prewarm: c.prewarm(),
	}, c.DryRun}})
}
