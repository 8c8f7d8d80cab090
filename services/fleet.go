package services

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"berth/routing"
	"berth/statestore"
)

// fleetPoll is how often the registry is read when nothing announces a change:
// loads are at most a second old in every replica.
const fleetPoll = 500 * time.Millisecond

// fleetStore is what the fleet's image is made from.
type fleetStore interface {
	FleetView(ctx context.Context) (statestore.FleetView, error)
}

// fleetTimeout bounds a read of the registry that no caller waits for.
const fleetTimeout = 5 * time.Second

// fleet keeps this process's image of all pools.
type fleet struct {
	store fleetStore
	image atomic.Pointer[fleetImage]
	turn  chan struct{} // holds a token while the registry is being read
	began atomic.Uint64 // reads that began
	wake  chan struct{}
	epoch time.Time
	ended atomic.Int64 // ns since epoch when pools were last built
	rest  atomic.Int64 // ns that should pass after that before they are built again
	vain  vainRead     // the last read that failed; whoever holds turn has it
}

// vainRead is a read of the registry that failed after a wait.
type vainRead struct {
	ended time.Time
	err   error
}

// fleetImage is everything known of the fleet at one version. It is immutable.
type fleetImage struct {
	view      statestore.FleetView
	pools     map[string]*pool
	instances map[string]*statestore.Instance
	models    map[string]string // model name → pool
	built     uint64            // the Members of the view that the pools are made of
	number    uint64            // of the read that it comes from
	read      time.Time         // monotonic, when view.Now was the store's clock
	loaded    bool
	broken    map[string]error // pools whose stored policy or members make no snapshot, or whose models are another's
}

// pool is one pool of the image.
type pool struct {
	name     string
	stored   bool // it was there in the store: without that it was deleted
	snapshot *routing.Snapshot
	hints    *routing.Hints // for requests with a key that others may have
	policy   *poolPolicy
	source   *statestore.Policy     // what the policy was read from; nil if that could not be read
	changes  []ringChange           // of its ring, the last ones
	rebuilds uint64                 // of its ring, by this process
	halfOpen []*statestore.Instance // whose breaker lets a trial through
}

func newFleet(store fleetStore) *fleet {
	f := &fleet{store: store, turn: make(chan struct{}, 1), wake: make(chan struct{}, 1), epoch: time.Now()}
	f.image.Store(&fleetImage{read: time.Now()})
	return f
}

// now is the present image.
func (f *fleet) now() *fleetImage { return f.image.Load() }

// storeTime is the store's clock, carried on from the last read.
func (i *fleetImage) storeTime() statestore.Millis {
	return i.view.Now.Add(time.Since(i.read))
}

// storeWall is the same as a time, for the expiry of handles.
func (f *fleet) storeWall() time.Time {
	i := f.now()
	if !i.loaded {
		return time.Now()
	}
	return time.UnixMilli(int64(i.storeTime()))
}

// instance finds a registered instance; one that is not known or not in its
// present boot is looked for in the store before it is refused, since another
// process may just have registered it.
func (f *fleet) instance(ctx context.Context, who statestore.Owner) (*statestore.Instance, error) {
	if in := f.now().instances[who.Instance]; in != nil && in.Incarnation == who.Incarnation {
		return in, nil
	}
	if err := f.refresh(ctx); err != nil {
		return nil, fmt.Errorf("look up instance %s: %w", who.Instance, err)
	}
	in := f.now().instances[who.Instance]
	switch {
	case in == nil:
		return nil, statestore.ErrUnknownInstance
	case in.Incarnation != who.Incarnation:
		return nil, statestore.ErrStaleIncarnation
	}
	return in, nil
}

// instanceIn is the same for an instance that has to be in the pool of a session:
// the session of the same id in another pool is another session, and one that a
// pool's instances do not own cannot be routed there.
func (s *Server) instanceIn(ctx context.Context, who statestore.Owner, pool string) (*statestore.Instance, error) {
	in, err := s.fleet.instance(ctx, who)
	if err == nil && in.Pool != pool {
		err = invalid("header.X-Berth-Pool", "the instance is registered in pool "+in.Pool+", not in "+pool)
	}
	return in, err
}

// gone reports an owner that the fleet lost: not registered, down, or another
// boot since.
func (i *fleetImage) gone(o statestore.Owner) bool {
	in := i.instances[o.Instance]
	return in == nil || in.Incarnation != o.Incarnation || in.Health == statestore.Down
}

// refresh reads the registry and swaps in a new image. Of many callers, those
// that come while another waits are served by the same read. A store that kept the
// reader before them waiting in vain keeps none of them waiting in turn.
func (f *fleet) refresh(ctx context.Context) error {
	asked, came := f.began.Load(), time.Now()
	select {
	case f.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("read fleet: %w", ctx.Err())
	}
	defer func() { <-f.turn }()
	if f.now().number > asked {
		return nil // it has all that was stored before the question
	}
	if f.vain.ended.After(came) {
		return f.vain.err
	}
	number, began := f.began.Add(1), time.Now()
	view, err := f.store.FleetView(ctx)
	if err != nil {
		err = fmt.Errorf("read fleet: %w", err)
		if time.Since(began) >= awayPause && errors.Is(err, statestore.ErrUnavailable) && !errors.Is(err, context.Canceled) {
			f.vain = vainRead{time.Now(), err}
		}
		return err
	}
	before, started := f.now(), time.Now()
	next := before.advance(number, view, f.rested())
	f.image.Store(next)
	if next.built != before.built {
		f.tire(len(view.Instances), time.Since(started))
	}
	return nil
}

// advance builds the image that follows i; what has not changed is taken over.
// Pools stay as they are for now if they may not be built and are all there.
func (i *fleetImage) advance(number uint64, view statestore.FleetView, build bool) *fleetImage {
	next := &fleetImage{view: view, number: number, read: time.Now(), loaded: true, built: i.built}
	switch {
	case i.loaded && view.Version == i.view.Version && view.Members == i.built:
		next.pools, next.instances, next.models, next.broken = i.pools, i.instances, i.models, i.broken
	case i.loaded && view.Members == i.built:
		next.models, next.broken = i.models, i.broken
		next.addLoads(i)
	case i.loaded && !build && i.hasPools(&view):
		next.pools, next.models, next.broken = i.pools, i.models, i.broken
		next.instances = byID(&next.view)
	default:
		next.built = view.Members
		next.addMembers(i)
	}
	return next
}

// hasPools reports whether all pools of a view are there.
func (i *fleetImage) hasPools(view *statestore.FleetView) bool {
	for k := range view.Instances {
		if i.pools[view.Instances[k].Pool] == nil {
			return false
		}
	}
	for name := range view.Policies {
		if i.pools[name] == nil {
			return false
		}
	}
	return true
}

// byID lists the instances of a view.
func byID(view *statestore.FleetView) map[string]*statestore.Instance {
	instances := make(map[string]*statestore.Instance, len(view.Instances))
	for k := range view.Instances {
		instances[view.Instances[k].ID] = &view.Instances[k]
	}
	return instances
}

// addLoads makes the pools of prev with other loads. Rings, policies and all else
// stay as they are.
func (i *fleetImage) addLoads(prev *fleetImage) {
	i.instances = byID(&i.view)
	loads := routing.Loads{
		Version: i.view.Version, LoadVersion: i.view.Version, ByInstance: make(map[string]routing.Load, len(i.instances)),
	}
	for id, in := range i.instances {
		loads.ByInstance[id] = routingLoad(in)
	}
	i.pools = make(map[string]*pool, len(prev.pools))
	for name, p := range prev.pools {
		next := *p
		if p.snapshot.Version() == prev.view.Version { // else it could not follow its members
			next.snapshot = p.snapshot.WithLoads(loads)
			next.hints = p.hints.After(next.snapshot)
		}
		i.pools[name] = &next
	}
}

// addMembers makes all pools anew, except for what of prev they still are.
func (i *fleetImage) addMembers(prev *fleetImage) {
	i.instances = byID(&i.view)
	byPool := map[string][]routing.Instance{}
	for k := range i.view.Instances {
		in := &i.view.Instances[k]
		byPool[in.Pool] = append(byPool[in.Pool], routingInstance(in))
	}
	for name := range i.view.Policies {
		if _, ok := byPool[name]; !ok {
			byPool[name] = nil // it is empty, not unknown: a gateway should wait for who comes
		}
	}
	lost := i.view.Members < prev.built
	for name, p := range prev.pools {
		// Nobody deleted what a store lost, or never had been told: whoever registered
		// before will do so again.
		if _, ok := byPool[name]; !ok && (lost || !p.stored) && len(byPool) < maxPools {
			byPool[name] = nil
		}
	}
	i.pools, i.models, i.broken = make(map[string]*pool, len(byPool)), map[string]string{}, map[string]error{}
	// In order, so that every process gives a model that two pools list to the same.
	for _, name := range slices.Sorted(maps.Keys(byPool)) {
		i.addPool(name, i.view.Policies[name], byPool[name], prev.pools[name])
	}
	for k := range i.view.Instances {
		if in := &i.view.Instances[k]; in.TrialTo != "" && i.pools[in.Pool] != nil {
			p := i.pools[in.Pool]
			p.halfOpen = append(p.halfOpen, in)
		}
	}
}

// addPool makes one pool of the image. What is wrong with it must not hold up the
// others: a policy that cannot be read leaves the last one in force, and one whose
// ring or bound makes no snapshot keeps its lifetimes.
func (i *fleetImage) addPool(name string, stored statestore.Policy, members []routing.Instance, prev *pool) {
	policy, source := i.readPolicy(name, stored, prev)
	spec := routing.Spec{Version: i.view.Version, LoadVersion: i.view.Version, Policy: policy.routing, Instances: members}
	var before *routing.Snapshot
	if prev != nil {
		before = prev.snapshot
	}
	snapshot, err := routing.NewSnapshot(spec, before)
	if err != nil {
		i.broken[name] = err
		spec.Policy = routing.DefaultPolicy()
		if snapshot, err = routing.NewSnapshot(spec, before); err != nil {
			snapshot = before
		}
	}
	if snapshot == nil {
		return
	}
	_, there := i.view.Policies[name]
	next := &pool{name: name, stored: there, snapshot: snapshot, policy: policy, source: source, changes: ringChanges(prev, snapshot, i.view.Now)}
	var hints *routing.Hints
	if prev != nil {
		next.rebuilds, hints = prev.rebuilds, prev.hints
	}
	next.hints = hints.After(snapshot)
	if before == nil || before.Ring() != snapshot.Ring() {
		next.rebuilds++
	}
	i.pools[name] = next
	for _, m := range policy.Models {
		switch other, taken := i.models[m]; {
		case !taken:
			i.models[m] = name
		case i.broken[name] == nil:
			i.broken[name] = errors.New(alreadyMeans(m, other))
		}
	}
}

// readPolicy parses a stored policy, unless prev has done that.
func (i *fleetImage) readPolicy(name string, stored statestore.Policy, prev *pool) (*poolPolicy, *statestore.Policy) {
	if prev.follows(stored) {
		return prev.policy, prev.source
	}
	policy, err := parsePolicy(stored.Doc)
	if err == nil {
		return policy, &stored
	}
	i.broken[name] = err
	if prev != nil {
		return prev.policy, nil
	}
	return defaultPolicy, nil
}

// follows reports whether the pool's policy is what was stored. A version alone does
// not tell: a store that lost some gives the same number again.
func (p *pool) follows(stored statestore.Policy) bool {
	return p != nil && p.source != nil && p.source.Version == stored.Version && bytes.Equal(p.source.Doc, stored.Doc)
}

// routingInstance is what a decision sees of a stored instance.
func routingInstance(in *statestore.Instance) routing.Instance {
	labels := in.Labels
	if in.Override.Labels != nil {
		labels = in.Override.Labels
	}
	percent := rampPercent(in)
	return routing.Instance{
		ID: in.ID, Incarnation: in.Incarnation, Address: in.Address, Scheme: in.Scheme,
		Rank: in.Rank, Zone: in.Zone, Labels: labels, Registered: registered(in),
		Weight: in.EffectiveWeight(), RampPercent: percent, Returns: in.Returns || percent < in.RampPercent && percent == routing.RampQueued, State: routingState(in), Breaker: routingBreaker(in.Breaker),
		Load: routingLoad(in),
	}
}

// rampPercent is the part of its weight that an instance has in force. A weight that was
// raised since the holder of the health lease looked is for its ramp to bring in force,
// and so is all of one that takes new sessions again.
func rampPercent(in *statestore.Instance) int {
	if in.Out && routingState(in).MayTakeNew() {
		return routing.RampQueued
	}
	if weight := in.EffectiveWeight(); weight != in.Weighed && in.Weighed > 0 && weight > 0 {
		return routing.Reweigh(cmp.Or(in.RampPercent, 100), in.Weighed, weight)
	}
	return in.RampPercent
}

func registered(in *statestore.Instance) time.Time {
	if in.Registered == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(in.Registered))
}

func routingLoad(in *statestore.Instance) routing.Load {
	return routing.Load{Running: in.LastBeat.Running, Waiting: in.LastBeat.Waiting, Report: in.Beats}
}

// routingState joins what was decided about an instance with how it is: down is
// down in every lifecycle, a suspect matters only where sessions are taken.
func routingState(in *statestore.Instance) routing.State {
	if in.Health == statestore.Down {
		return routing.Down
	}
	if in.Standing() == statestore.Suspect && in.Lifecycle == statestore.Ready {
		return routing.Suspect
	}
	state, err := routing.ParseState(string(in.Lifecycle))
	if err != nil {
		return routing.Unknown
	}
	return state
}

// snapshotOf is the present snapshot of a pool, nil for one never seen.
func (s *Server) snapshotOf(name string) *routing.Snapshot {
	if p := s.fleet.now().pools[name]; p != nil {
		return p.snapshot
	}
	return nil
}
