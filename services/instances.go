package services

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode"

	"berth/routing"
	"berth/statestore"
)

// Bounds of what an instance may say of itself.
const (
	maxLabels      = 64
	maxLabelBytes  = 256
	maxCompatBytes = 16 << 10
	maxInstances   = 10_000 // of all pools
	maxPools       = 10_000 // of a fleet; policies may found more
)

type registerInput struct {
	ID   string `path:"id" doc:"1 to 63 of A-Z a-z 0-9 . _ -; unique across pools"`
	Body struct {
		Pool          string            `json:"pool,omitempty" doc:"default: default"`
		Address       string            `json:"address" doc:"ip:port, IPv6 in brackets"`
		Scheme        string            `json:"scheme,omitempty" enum:"http,https,h2c,grpc,grpcs" doc:"that gateways are told to speak to it"`
		Incarnation   string            `json:"incarnation,omitempty" maxLength:"128" doc:"the present one updates; otherwise a new one begins"`
		Weight        *int              `json:"weight,omitempty" minimum:"0" maximum:"10000" doc:"100 is ordinary, 0 takes no new sessions"`
		Zone          string            `json:"zone,omitempty" maxLength:"128" doc:"where it runs: shown to operators, no input of routing"`
		Rank          *int              `json:"rank,omitempty" minimum:"0" maximum:"1000000" doc:"data-parallel rank"`
		Labels        map[string]string `json:"labels,omitempty" doc:"up to 64, each of at most 256 bytes with its name; a drain avoids by them"`
		Compat        compat            `json:"compat,omitempty" doc:"what its KV cache is compatible with; see kv/1"`
		MaxRunning    int               `json:"max_running,omitempty" minimum:"0" maximum:"1000000" doc:"requests that it runs at once; 0: unknown"`
		Probe         bool              `json:"probe,omitempty" doc:"probe its health although it sends no heartbeats"`
		ReportsCached bool              `json:"reports_cached,omitempty" doc:"a missing cached count in usage means 0"`
	}
}

type registerOutput struct {
	CacheControl string `header:"Cache-Control"`
	Body         struct {
		State       string `json:"state" doc:"warming until its first ready: true or good probe"`
		Incarnation string `json:"incarnation" doc:"secret of this boot; later calls of the instance carry it"`
		NextMS      int64  `json:"next_ms" doc:"time from now to the next heartbeat: it differs a little, so that those of many instances come in bunches"`
		LeaseMS     int64  `json:"lease_ms" doc:"silence after which the instance is down"`
	}
}

func (s *Server) registerInstance(ctx context.Context, in *registerInput) (*registerOutput, error) {
	p, err := require(ctx, RoleWorker, RoleOperator)
	if err != nil {
		return nil, err
	}
	spec, err := s.instanceSpec(in, p)
	if err != nil {
		return nil, err
	}
	secret, err := s.incarnationFor(ctx, in.ID, in.Body.Incarnation)
	if err != nil {
		return nil, err
	}
	spec.Incarnation = statestore.IncarnationDigest(secret)
	stored, err := s.store.Register(ctx, spec, s.fleet.now().inPlaceOf(&spec)...)
	if err != nil {
		return nil, fmt.Errorf("register instance %s: %w", in.ID, err)
	}
	if !p.may(RoleWorker) {
		s.audit(p, "register", "instance", in.ID)
	}
	s.seeFleet(ctx)
	out := &registerOutput{CacheControl: "no-store"}
	out.Body.State, out.Body.Incarnation = stateName(&stored), secret
	out.Body.NextMS, out.Body.LeaseMS = s.slots.next(in.ID, time.Now()).Milliseconds(), s.options.DownAfter.Milliseconds()
	return out, nil
}

// inPlaceOf are the other instances that are said to be where spec is. An address
// is reused sooner than the silence of who had it before is noticed.
func (i *fleetImage) inPlaceOf(spec *statestore.InstanceSpec) []statestore.Owner {
	var others []statestore.Owner
	for _, in := range i.instances {
		if in.ID != spec.ID && in.SamePlace(spec) {
			others = append(others, in.Owner())
		}
	}
	return others
}

// seeFleet lets this process's own routes see a change at once; others poll.
func (s *Server) seeFleet(ctx context.Context) {
	if err := s.fleet.refresh(ctx); err != nil {
		s.fleetNotRead(err)
	}
}

// freshFleet reads the fleet for a call that asks the store for more after it. If the
// store does not answer this, nothing else is asked: the caller would wait for it once
// more with every question.
func (s *Server) freshFleet(ctx context.Context) error { return s.fleet.refresh(ctx) }

// instanceSpec checks what a worker says of itself.
func (s *Server) instanceSpec(in *registerInput, p *principal) (statestore.InstanceSpec, error) {
	b := &in.Body
	spec := statestore.InstanceSpec{
		ID: in.ID, Pool: b.Pool, Address: b.Address, Scheme: b.Scheme, Weight: 100, Zone: b.Zone, Rank: b.Rank,
		Labels: b.Labels, MaxRunning: b.MaxRunning, Probe: b.Probe, ReportsCached: b.ReportsCached,
	}
	if spec.Pool == "" {
		spec.Pool = statestore.DefaultName
	}
	if b.Weight != nil {
		spec.Weight = *b.Weight
	}
	if err := statestore.ValidateInstanceID(in.ID); err != nil {
		return spec, err
	}
	if err := statestore.ValidateName("pool", spec.Pool); err != nil {
		return spec, inBody("pool", err)
	}
	if err := p.allowPool(spec.Pool); err != nil {
		return spec, err
	}
	if err := p.allowInstance(in.ID); err != nil {
		return spec, err
	}
	if err := s.mayJoin(in.ID, spec.Pool, p); err != nil {
		return spec, err
	}
	if err := checkLabels(b.Labels); err != nil {
		return spec, err
	}
	if !printable(b.Zone) {
		return spec, invalid("body.zone", "must not hold control characters")
	}
	var err error
	if spec.Compat, err = b.Compat.stored(); err != nil {
		return spec, err
	}
	if spec.Address, err = s.checkAddress(spec.Pool, b.Address); err != nil {
		return spec, err
	}
	return spec, p.allowAddress(spec.Address)
}

// mayJoin refuses one more instance or pool than a fleet holds, and moving an instance
// out of a pool that the token is not for.
func (s *Server) mayJoin(id, pool string, p *principal) error {
	image := s.fleet.now()
	if n := uint64(len(image.pools)); n >= maxPools && image.pools[pool] == nil {
		return &statestore.TooLargeError{What: "pools", Limit: maxPools, Size: n + 1}
	}
	if known := image.instances[id]; known != nil {
		return p.allowPool(known.Pool)
	}
	if n := uint64(len(image.instances)); n >= maxInstances {
		return &statestore.TooLargeError{What: "fleet", Limit: maxInstances, Size: n + 1}
	}
	return nil
}

// checkAddress wants ip:port, or a name where the pool's policy allows names.
func (s *Server) checkAddress(pool, address string) (string, error) {
	canonical, err := routing.CanonicalAddress(address)
	if err == nil {
		return canonical, reachable(canonical)
	}
	host, port, splitErr := net.SplitHostPort(address)
	_, portErr := strconv.ParseUint(port, 10, 16)
	if pl := s.fleet.now().pools[pool]; pl == nil || !pl.policy.AllowNames || splitErr != nil || portErr != nil || port == "0" {
		return "", invalid("body.address", err.Error())
	}
	if err := statestore.ValidateName("host name", host); err != nil {
		return "", invalid("body.address", "the host name may hold only letters, digits, '.', '_' and '-'")
	}
	return address, nil
}

// reachable refuses an address that means something else on every machine, or
// nothing: a zone, whose name may hold any character, the unspecified address, and
// port 0.
func reachable(canonical string) error {
	ap, err := netip.ParseAddrPort(canonical)
	if err != nil || ap.Addr().Zone() != "" || ap.Addr().IsUnspecified() || ap.Addr().IsMulticast() || ap.Port() == 0 {
		return invalid("body.address", "must be one that others can reach: no zone, not unspecified, a port")
	}
	return nil
}

func checkLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return invalid("body.labels", fmt.Sprintf("at most %d labels", maxLabels))
	}
	for k, v := range labels {
		if len(k)+len(v) > maxLabelBytes {
			return invalid("body.labels", fmt.Sprintf("a label has at most %d bytes", maxLabelBytes))
		}
		if k == "" || !printable(k) || !printable(v) {
			return invalid("body.labels", "a label needs a name, and neither name nor value may hold control characters")
		}
	}
	return nil
}

// printable reports whether a terminal shows a text as it is.
func printable(text string) bool { return !strings.ContainsFunc(text, unicode.IsControl) }

// incarnationFor is the given secret if it is that of the present boot, else a
// new one: a new boot begins.
func (s *Server) incarnationFor(ctx context.Context, id, given string) (string, error) {
	if given != "" {
		_, err := s.fleet.instance(ctx, statestore.Owner{Instance: id, Incarnation: statestore.IncarnationDigest(given)})
		if err == nil {
			return given, nil
		}
		if p := s.problem(err); p.Status >= http.StatusInternalServerError {
			return "", err
		}
	}
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand crashes the program instead
	return hex.EncodeToString(b[:]), nil
}

type heartbeatInput struct {
	ID   string `path:"id"`
	Body struct {
		Incarnation   string  `json:"incarnation" minLength:"1" maxLength:"128" doc:"from the registration"`
		Ready         bool    `json:"ready,omitempty" doc:"true ends warming"`
		Running       int     `json:"running" minimum:"0" maximum:"1000000" doc:"requests that run"`
		Waiting       int     `json:"waiting" minimum:"0" maximum:"1000000" doc:"requests that wait in its queue"`
		MaxRunning    int     `json:"max_running,omitempty" minimum:"0" maximum:"1000000" doc:"requests that it runs at once; 0: as registered"`
		KVUsage       float64 `json:"kv_usage,omitempty" minimum:"0" maximum:"1" doc:"part of the KV cache in use, 0 to 1"`
		KVGeneration  uint64  `json:"kv_generation,omitempty" doc:"growing voids the instance's own placements"`
		PrefixQueries uint64  `json:"prefix_queries,omitempty" doc:"tokens, cumulative"`
		PrefixHits    uint64  `json:"prefix_hits,omitempty" doc:"tokens, cumulative"`
	}
}

type heartbeatOutput struct {
	CacheControl string `header:"Cache-Control"`
	Body         struct {
		State   string     `json:"state" doc:"as GET /v1/instances/{id} says it"`
		Drain   *drainNote `json:"drain,omitempty" doc:"the drain that empties it"`
		Tasks   []taskBody `json:"tasks" doc:"up to 8 that wait; named, not handed out: ask for them, or answer them"`
		NextMS  int64      `json:"next_ms" doc:"time from now to the next heartbeat: it differs a little, so that those of many instances come in bunches"`
		LeaseMS int64      `json:"lease_ms" doc:"silence after which the instance is down"`
	}
}

type drainNote struct {
	Job        string `json:"job" doc:"id of the job"`
	DeadlineMS int64  `json:"deadline_ms" doc:"time left"`
}

func (s *Server) heartbeat(ctx context.Context, in *heartbeatInput) (*heartbeatOutput, error) {
	by, err := s.speaker(ctx, in.ID, in.Body.Incarnation)
	if err != nil {
		return nil, err
	}
	b := &in.Body
	stored, err := s.beats.count(ctx, statestore.Beat{By: by, Heartbeat: statestore.Heartbeat{
		Ready: b.Ready, Running: b.Running, Waiting: b.Waiting, MaxRunning: b.MaxRunning, KVUsage: b.KVUsage,
		KVGeneration: b.KVGeneration, PrefixQueries: b.PrefixQueries, PrefixHits: b.PrefixHits,
	}})
	if err != nil {
		return nil, fmt.Errorf("heartbeat of instance %s: %w", in.ID, err)
	}
	if known := s.fleet.now().instances[in.ID]; known == nil || known.Lifecycle != stored.Lifecycle {
		s.seeFleet(ctx)
	}
	out := &heartbeatOutput{CacheControl: "no-store"}
	out.Body.State, out.Body.Tasks = stateName(&stored), s.waitingTasks(ctx, by)
	out.Body.NextMS, out.Body.LeaseMS = s.slots.next(in.ID, time.Now()).Milliseconds(), s.options.DownAfter.Milliseconds()
	if stored.Job != "" && stored.Lifecycle == statestore.Draining {
		if job, now, err := s.store.Job(ctx, stored.Job); err == nil && !job.State.Ended() {
			out.Body.Drain = &drainNote{Job: job.ID, DeadlineMS: max(0, job.Deadline.Sub(now).Milliseconds())}
		}
	}
	return out, nil
}

// speaker is the boot of an instance that a worker speaks for.
func (s *Server) speaker(ctx context.Context, id, incarnation string) (statestore.Owner, error) {
	p, err := require(ctx, RoleWorker)
	if err != nil {
		return statestore.Owner{}, err
	}
	if err := statestore.ValidateInstanceID(id); err != nil {
		return statestore.Owner{}, err
	}
	if err := p.allowInstance(id); err != nil {
		return statestore.Owner{}, err
	}
	if in := s.fleet.now().instances[id]; in != nil {
		if err := p.allowPool(in.Pool); err != nil {
			return statestore.Owner{}, err
		}
	}
	if incarnation == "" {
		return statestore.Owner{}, invalid("incarnation", "is needed: it comes from the registration")
	}
	return statestore.Owner{Instance: id, Incarnation: statestore.IncarnationDigest(incarnation)}, nil
}

// speakerIn is speaker for calls that name the instance in their body.
func (s *Server) speakerIn(ctx context.Context, id, incarnation string) (statestore.Owner, error) {
	by, err := s.speaker(ctx, id, incarnation)
	return by, inBody("instance", err)
}

type deregisterInput struct {
	ID          string `path:"id"`
	Incarnation string `header:"X-Berth-Incarnation" doc:"a worker's own; operators leave it out"`
	Force       bool   `query:"force" doc:"operators: although sessions live there"`
}

func (s *Server) deregisterInstance(ctx context.Context, in *deregisterInput) (*struct{}, error) {
	who := statestore.Owner{Instance: in.ID}
	if in.Incarnation != "" {
		by, err := s.speaker(ctx, in.ID, in.Incarnation)
		if err != nil {
			return nil, err
		}
		who = by
	} else if err := s.operatorMayRemove(ctx, in); err != nil {
		return nil, err
	}
	if err := s.store.Deregister(ctx, who); err != nil {
		return nil, fmt.Errorf("deregister instance %s: %w", in.ID, err)
	}
	s.seeFleet(ctx)
	return nil, nil
}

// operatorMayRemove refuses to remove an instance that sessions live on.
func (s *Server) operatorMayRemove(ctx context.Context, in *deregisterInput) error {
	p, err := require(ctx, RoleOperator)
	if err != nil {
		return err
	}
	if _, err := s.instanceFor(ctx, p, in.ID); err != nil {
		return err
	}
	s.audit(p, "deregister", "instance", in.ID, "force", in.Force)
	if in.Force {
		return nil
	}
	counts, err := s.store.CountSessions(ctx)
	if err != nil {
		return fmt.Errorf("count sessions: %w", err)
	}
	for name, n := range counts {
		if name.Instance == in.ID && n > 0 {
			p := newProblem("has_sessions", fmt.Sprintf("%d sessions are bound to the instance", n))
			p.Sessions = &n
			return p
		}
	}
	return nil
}

// stateName is the one state that the API shows of an instance.
func stateName(in *statestore.Instance) string {
	if in.Standing() == statestore.Healthy {
		return string(in.Lifecycle)
	}
	return routingState(in).String()
}

// audit writes the one line that every change by an operator leaves.
func (s *Server) audit(p *principal, action string, attrs ...any) {
	s.log.Info("audit", append([]any{"by", p.name, "action", action}, attrs...)...)
}

// millisSince is the age of a moment on the store's clock, nil for never.
func (i *fleetImage) millisSince(m statestore.Millis) *int64 {
	if m == 0 {
		return nil
	}
	ms := max(0, i.storeTime().Sub(m)/time.Millisecond).Nanoseconds()
	return &ms
}
