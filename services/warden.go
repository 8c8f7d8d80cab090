package services

import (
	"context"
	"errors"
	"slices"
	"time"

	"berth/routing"
	"berth/statestore"
)

// The health lease: its holder alone judges instances.
const (
	healthLease = "health"
	healthEvery = time.Second
	healthTTL   = 5 * time.Second
)

// warden is what the holder of the health lease knows of the fleet: who is silent
// or fails, whose breaker is open, and who is still being let in. The decisions are
// made in package routing; the warden brings them what was seen, and writes down
// what they concluded, as one version of the fleet for all replicas.
type warden struct {
	server *Server
	began  time.Time
	token  uint64 // of the holding that everything below was seen in

	watch    *routing.Watch
	prober   *prober
	ledger   ledger
	circuits map[statestore.Owner]*circuit
	ramps    map[string]*routing.Ramp // by pool
	trials   int                      // granted so far: replicas take turns

	displaced map[statestore.Owner]time.Duration // since when it is known of these
}

// circuit is a breaker, and how many heartbeats it was told of.
type circuit struct {
	*routing.Circuit
	beats uint64
}

func (s *Server) newWarden() *warden {
	policy := routing.DefaultHealthPolicy()
	policy.SuspectAfter, policy.DownAfter, policy.Every = s.options.SuspectAfter, s.options.DownAfter, healthEvery
	return &warden{server: s, began: time.Now(), watch: routing.NewWatch(policy), prober: newProber()}
}

// watchHealth judges the fleet while this process holds the health lease.
func (s *Server) watchHealth(ctx context.Context) error {
	w := s.newWarden()
	for pause(ctx, healthEvery) {
		err := w.round(ctx)
		s.holdsHealth.Store(err == nil)
		if err != nil && ctx.Err() == nil {
			w.watch.Miss(w.now())
			var held *statestore.LeaseHeldError
			if !errors.As(err, &held) {
				s.log.Warn("health not judged", "error", err)
			}
		}
	}
	return nil
}

// now is the warden's monotonic clock.
func (w *warden) now() time.Duration { return time.Since(w.began) }

// round looks at the fleet once and writes down what changed.
func (w *warden) round(ctx context.Context) error {
	s := w.server
	lease, err := s.store.AcquireLease(ctx, healthLease, s.options.Process, healthTTL)
	if err != nil {
		return err
	}
	w.holds(lease.Token)
	view, err := s.store.FleetView(ctx)
	if err != nil {
		return err
	}
	notes, err := s.store.Notes(ctx)
	if err != nil {
		return err
	}
	if err := s.removeGone(ctx, lease, &view); err != nil {
		return err
	}
	policies := w.policies(&view)
	news, processes := w.ledger.read(notes)
	verdicts := w.judgeHealth(ctx, &view, policies, news)
	w.hear(&view, news, verdicts)
	w.judgeBreakers(&view, policies, news, processes, verdicts)
	w.pace(&view, policies, verdicts)
	return w.publish(ctx, lease, &view, verdicts)
}

// holds begins anew with every holding of the lease: what was seen before says
// nothing about what another holder found in between.
func (w *warden) holds(token uint64) {
	w.watch.Holds(token)
	if token == w.token {
		return
	}
	w.token, w.ledger = token, ledger{}
	w.circuits, w.ramps = map[statestore.Owner]*circuit{}, map[string]*routing.Ramp{}
	w.displaced = nil
}

// policies are those in force for the pools of a view: as the fleet's image has them
// parsed, where it has seen what is stored. One that cannot be read leaves the last
// one that could.
func (w *warden) policies(view *statestore.FleetView) map[string]*poolPolicy {
	out, image := map[string]*poolPolicy{}, w.server.fleet.now()
	for i := range view.Instances {
		name := view.Instances[i].Pool
		if out[name] != nil {
			continue
		}
		if known := image.pools[name]; known.follows(view.Policies[name]) {
			out[name] = known.policy
			continue
		}
		policy, err := parsePolicy(view.Policies[name].Doc)
		if err != nil {
			policy = w.server.policyOf(name)
		}
		out[name] = policy
	}
	return out
}

func bootOf(who statestore.Owner) routing.Boot {
	return routing.Boot{ID: who.Instance, Incarnation: who.Incarnation}
}

// judgeHealth begins verdicts with the health of every instance.
func (w *warden) judgeHealth(
	ctx context.Context, view *statestore.FleetView, policies map[string]*poolPolicy, news map[statestore.Owner]tally,
) map[statestore.Owner]statestore.Verdict {
	w.probe(ctx, view, policies)
	for who, counts := range news {
		for word, n := range counts {
			w.observe(bootOf(who), word, n)
		}
	}
	fleet := make([]routing.Sighting, len(view.Instances))
	for i := range view.Instances {
		in := &view.Instances[i]
		fleet[i] = routing.Sighting{Boot: bootOf(in.Owner()), Pool: in.Pool, Beats: in.Beats, Stored: routingHealth(in.Health), Flaps: in.Flaps}
		if how := &policies[in.Pool].routing.Probe; probes(in, how) {
			fleet[i].Fall, fleet[i].Rise = how.Fall, how.Rise
		}
	}
	found := w.watch.Round(w.now(), time.Duration(view.Now)*time.Millisecond, fleet)
	if found.SelfStall {
		w.server.metrics.stalls.Inc()
		w.server.log.Warn("this process or the store was stalled, or most leases lapsed at once: silence convicts nobody for now", "event", "self_stall")
	}
	verdicts := make(map[statestore.Owner]statestore.Verdict, len(view.Instances))
	for i := range view.Instances {
		in := &view.Instances[i]
		v := in.Verdict
		v.Flaps = w.watch.Flaps(bootOf(in.Owner()))
		if health, changed := found.Verdicts[bootOf(in.Owner())]; changed {
			v.Health = storedHealth(health)
			w.server.log.Info("health changed", "instance", in.ID, "health", health.String())
		}
		verdicts[in.Owner()] = v
	}
	return verdicts
}

// hear ends the displacement of those whose writes are accepted: that is the boot
// itself, where a good probe or a request served may be the other at its address.
// Writes of before are not counted: notes tell of them a little late.
func (w *warden) hear(
	view *statestore.FleetView, news map[statestore.Owner]tally, verdicts map[statestore.Owner]statestore.Verdict,
) {
	before, now := w.displaced, w.now()
	w.displaced = map[statestore.Owner]time.Duration{}
	for i := range view.Instances {
		if !view.Instances[i].Displaced {
			continue
		}
		who := view.Instances[i].Owner()
		since, known := before[who]
		if !known {
			since = now
		}
		if w.displaced[who] = since; now-since >= tallyLife && news[who][tallyWrites] > 0 {
			v := verdicts[who]
			v.Heard = true
			verdicts[who] = v
			delete(w.displaced, who)
		}
	}
}

// mostTold bounds how often one report is repeated to a state machine: a storm of
// failures says no more than some of them.
const mostTold = 16

// observe tells the watch what was counted.
func (w *warden) observe(who routing.Boot, word string, n uint64) {
	if word == tallyWrites {
		w.watch.Wrote(who)
		return
	}
	for range min(n, mostTold) {
		w.watch.Observe(who, outcomeOf(word))
	}
}

// probe starts the probes that are due, and takes note of those that ended.
// A good one ends warming, as a heartbeat that says ready does.
func (w *warden) probe(ctx context.Context, view *statestore.FleetView, policies map[string]*poolPolicy) {
	for _, p := range w.prober.take() {
		w.watch.Probed(bootOf(p.who), p.end)
		i := slices.IndexFunc(view.Instances, func(in statestore.Instance) bool { return in.Owner() == p.who })
		if i < 0 || p.end != routing.ProbePassed || view.Instances[i].Lifecycle != statestore.Warming {
			continue
		}
		change := statestore.LifecycleChange{From: []statestore.Lifecycle{statestore.Warming}, To: statestore.Ready}
		if _, err := w.server.store.SetLifecycle(ctx, p.who, change); err != nil {
			w.server.log.Warn("instance that answers its probe not made ready", "instance", p.who.Instance, "error", err)
			continue
		}
		view.Instances[i].Lifecycle = statestore.Ready
	}
	w.prober.start(ctx, view.Instances, func(pool string) routing.ProbePolicy { return policies[pool].routing.Probe })
}

// judgeBreakers joins verdicts with the breaker of every instance.
func (w *warden) judgeBreakers(
	view *statestore.FleetView, policies map[string]*poolPolicy, news map[statestore.Owner]tally, processes []string,
	verdicts map[statestore.Owner]statestore.Verdict,
) {
	slices.Sort(processes)
	now, present := w.now(), make(map[statestore.Owner]*circuit, len(view.Instances))
	for i := range view.Instances {
		in := &view.Instances[i]
		who := in.Owner()
		c := w.circuits[who]
		if c == nil {
			c = &circuit{Circuit: routing.NewCircuit(policies[in.Pool].routing.Breaker, breakerStatus(&in.Verdict), now), beats: in.Beats}
		}
		present[who] = c
		c.SetPolicy(policies[in.Pool].routing.Breaker)
		c.told(now, news[who])
		if in.Beats != c.beats {
			c.beats = in.Beats
			c.Report(now, routing.Report{
				Running: in.LastBeat.Running, MaxRunning: max(in.LastBeat.MaxRunning, in.MaxRunning), KVUsage: in.LastBeat.KVUsage,
			})
		}
		if len(processes) > 0 {
			if _, granted := c.Grant(now, processes[w.trials%len(processes)]); granted {
				w.trials++
			}
		}
		status := c.Status(now)
		if before := routingBreaker(in.Breaker); before != status.State {
			w.server.log.Info("breaker changed", "instance", in.ID, "from", before.String(), "to", status.State.String())
		}
		verdicts[who] = withBreaker(verdicts[who], status)
	}
	w.circuits = present
}

// told counts outcomes, failures last: what was served before says nothing about
// an instance that fails now, and an accepted write is a request served.
func (c *circuit) told(now time.Duration, counts tally) {
	for _, o := range []routing.Outcome{routing.OutcomeOK, routing.OutcomeServer, routing.OutcomeReset, routing.OutcomeConnect} {
		n := counts[o.String()]
		if o == routing.OutcomeOK {
			n += counts[tallyWrites]
		}
		for range min(n, mostTold) {
			c.Observe(now, o)
		}
	}
}

// pace joins verdicts with the part of its weight that every instance has in force.
func (w *warden) pace(view *statestore.FleetView, policies map[string]*poolPolicy, verdicts map[statestore.Owner]statestore.Verdict) {
	members := map[string][]routing.RampMember{}
	for i := range view.Instances {
		in := &view.Instances[i]
		after := *in
		after.Verdict = verdicts[in.Owner()]
		members[in.Pool] = append(members[in.Pool], routing.RampMember{
			Boot: bootOf(in.Owner()), Weight: in.EffectiveWeight(), Percent: rampPercent(in), State: routingState(&after),
			Gained: in.Gained, Out: in.Out, Returns: in.Returns,
		})
	}
	now := w.now()
	for name, list := range members {
		r := w.ramps[name]
		if r == nil {
			r = routing.NewRamp(policies[name].routing.Ramp)
			w.ramps[name] = r
		}
		r.SetPolicy(policies[name].routing.Ramp)
		step := r.Step(now, list)
		for _, m := range list {
			who := statestore.Owner{Instance: m.ID, Incarnation: m.Incarnation}
			v := withPace(verdicts[who], step.Percents[m.ID], step.Gained[m.ID])
			v.Out, v.Returns, v.Weighed = step.Out[m.ID], step.Returns[m.ID], m.Weight
			verdicts[who] = v
		}
	}
}

// publish writes the verdicts that differ from what is stored.
func (w *warden) publish(
	ctx context.Context, lease statestore.Lease, view *statestore.FleetView, verdicts map[statestore.Owner]statestore.Verdict,
) error {
	for i := range view.Instances {
		if who := view.Instances[i].Owner(); verdicts[who] == view.Instances[i].Verdict {
			delete(verdicts, who)
		}
	}
	if len(verdicts) == 0 {
		return nil
	}
	if err := w.server.store.SetVerdicts(ctx, lease, verdicts); err != nil {
		return err
	}
	w.server.fleet.nudge()
	return nil
}
