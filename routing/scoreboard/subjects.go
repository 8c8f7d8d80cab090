package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	authzed "github.com/authzed/consistent/hashring"
	"github.com/cespare/xxhash/v2"
	dapr "github.com/dapr/dapr/pkg/placement/hashing"
	jump "github.com/dgryski/go-jump"
	rendezvous "github.com/dgryski/go-rendezvous"
	"github.com/golang/groupcache/consistenthash"
	"github.com/kkdai/maglev"
	serialx "github.com/serialx/hashring"
	gozero "github.com/zeromicro/go-zero/core/hash"

	"berth/routing"
)

// subject is one way to place keys on members.
type subject struct {
	name   string
	module string
	points int // of a member by the documentation; 0 where there are none to choose
	// build makes the table of the members. It gives up with errTooSlow once
	// the deadline is over, where the library lets it look at the clock.
	build func(members []string, points int, deadline time.Time) (table, error)
}

// table is what a subject answers with.
type table struct {
	owner func(key string) string
	// add and remove change the table. They are nil where the library has no
	// way to, or one that panics: there a change is a new build.
	add, remove func(member string) error
	close       func()
}

// errTooSlow ends a build that takes longer than anyone would wait.
var errTooSlow = errors.New("takes too long to build")

// maglevSlots is the table size of the paper, a prime.
const maglevSlots = 65537

// subjects lists everybody, Berth first.
func subjects() []subject {
	return []subject{
		{name: "berth", module: "berth", points: routing.DefaultPoints, build: buildBerth(0)},
		{name: "berth, capped at 105 %", module: "berth", points: routing.DefaultPoints, build: buildBerth(105)},
		{name: "groupcache/consistenthash", module: "github.com/golang/groupcache", points: 100, build: buildGroupcache},
		{name: "authzed/consistent", module: "github.com/authzed/consistent", points: 100, build: buildAuthzed},
		{name: "go-zero core/hash", module: "github.com/zeromicro/go-zero", points: 100, build: buildGoZero},
		{name: "dapr placement/hashing", module: "github.com/dapr/dapr", points: 100, build: buildDapr},
		{name: "serialx/hashring", module: "github.com/serialx/hashring", points: 160, build: buildSerialx},
		{name: "grafana/dskit ring", module: "github.com/grafana/dskit", points: 128, build: buildDskit},
		{name: "kkdai/maglev", module: "github.com/kkdai/maglev", build: buildMaglev},
		{name: "dgryski/go-rendezvous", module: "github.com/dgryski/go-rendezvous", build: buildRendezvous},
		{name: "dgryski/go-jump", module: "github.com/dgryski/go-jump", build: buildJump},
	}
}

// buildBerth measures what Berth's server does: the lookup goes through the
// published snapshot and judges health, a change ends with its publication.
func buildBerth(capPercent int) func([]string, int, time.Time) (table, error) {
	return func(members []string, points int, _ time.Time) (table, error) {
		policy := routing.DefaultPolicy()
		policy.Ring.Points, policy.Ring.CapPercent = points, capPercent
		var current atomic.Pointer[routing.Snapshot]
		fleet := make([]routing.Instance, len(members))
		for i, id := range members {
			fleet[i] = berthInstance(id)
		}
		publish := func() error {
			s, err := routing.NewSnapshot(routing.Spec{Policy: policy, Instances: fleet}, current.Load())
			current.Store(s)
			return err
		}
		return table{
			owner: func(key string) string { return current.Load().Owner(key).ID },
			add: func(id string) error {
				fleet = append(slices.Clone(fleet), berthInstance(id))
				return publish()
			},
			remove: func(id string) error {
				fleet = slices.DeleteFunc(slices.Clone(fleet), func(in routing.Instance) bool { return in.ID == id })
				return publish()
			},
		}, publish()
	}
}

func berthInstance(id string) routing.Instance {
	return routing.Instance{ID: id, Weight: 100, State: routing.Ready}
}

func buildGroupcache(members []string, points int, _ time.Time) (table, error) {
	m := consistenthash.New(points, nil)
	m.Add(members...)
	return table{
		owner: m.Get,
		add:   func(id string) error { m.Add(id); return nil },
	}, nil
}

type authzedMember string

func (m authzedMember) Key() string { return string(m) }

func buildAuthzed(members []string, points int, deadline time.Time) (table, error) {
	r, err := authzed.New(xxhash.Sum64, uint16(points)) // the library asks for a hash and names this one
	if err != nil {
		return table{}, err
	}
	add := func(id string) error { return r.Add(authzedMember(id)) }
	return table{
		owner: func(key string) string {
			found, err := r.FindN([]byte(key), 1)
			if err != nil {
				return ""
			}
			return found[0].Key()
		},
		add:    add,
		remove: func(id string) error { return r.Remove(authzedMember(id)) },
	}, addEach(members, deadline, add)
}

func buildGoZero(members []string, points int, deadline time.Time) (table, error) {
	h := gozero.NewCustomConsistentHash(points, nil)
	add := func(id string) error { h.Add(id); return nil }
	return table{
		owner: func(key string) string {
			found, _ := h.Get(key)
			id, _ := found.(string)
			return id
		},
		add:    add,
		remove: func(id string) error { h.Remove(id); return nil },
	}, addEach(members, deadline, add)
}

func buildDapr(members []string, points int, deadline time.Time) (table, error) {
	c := dapr.NewConsistentHash(int64(points))
	add := func(id string) error { c.Add(id, id, 0); return nil }
	return table{
		owner: func(key string) string {
			id, _ := c.Get(key)
			return id
		},
		add: add,
		remove: func(id string) error {
			if !c.Remove(id) {
				return fmt.Errorf("dapr: %s was not there", id)
			}
			return nil
		},
	}, addEach(members, deadline, add)
}

func buildSerialx(members []string, points int, _ time.Time) (table, error) {
	weights := make(map[string]int, len(members))
	for _, id := range members {
		weights[id] = points
	}
	current := serialx.NewWithWeights(weights)
	return table{
		owner: func(key string) string {
			id, _ := current.GetNode(key)
			return id
		},
		add:    func(id string) error { current = current.AddWeightedNode(id, points); return nil },
		remove: func(id string) error { current = current.RemoveNode(id); return nil },
	}, nil
}

func buildMaglev(members []string, _ int, _ time.Time) (table, error) {
	m, err := maglev.NewMaglev(members, maglevSlots)
	if err != nil {
		return table{}, err
	}
	return table{
		owner: func(key string) string {
			id, _ := m.Get(key)
			return id
		},
		add:    m.Add,
		remove: m.Remove,
	}, nil
}

// buildRendezvous leaves Remove out: it indexes past the end of its slice.
func buildRendezvous(members []string, _ int, _ time.Time) (table, error) {
	r := rendezvous.New(slices.Clone(members), xxhash.Sum64String)
	return table{
		owner: r.Lookup,
		add:   func(id string) error { r.Add(id); return nil },
	}, nil
}

// buildJump numbers the members as they come: the library knows buckets and no
// names, so a member in the middle can only leave by renumbering the others.
func buildJump(members []string, _ int, _ time.Time) (table, error) {
	ids := slices.Clone(members)
	return table{
		owner: func(key string) string { return ids[jump.Hash(xxhash.Sum64String(key), len(ids))] },
		add:   func(id string) error { ids = append(ids, id); return nil },
		remove: func(id string) error {
			ids = slices.DeleteFunc(ids, func(x string) bool { return x == id })
			return nil
		},
	}, nil
}

// addEach builds a table the way its library offers, one member at a time.
func addEach(members []string, deadline time.Time, add func(string) error) error {
	for _, id := range members {
		if time.Now().After(deadline) {
			return errTooSlow
		}
		if err := add(id); err != nil {
			return err
		}
	}
	return nil
}

// memberNames are n names that share none with another fleet.
func memberNames(fleet, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = "f" + strconv.Itoa(fleet) + "-instance-" + strconv.Itoa(i)
	}
	return names
}
