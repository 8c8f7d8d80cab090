package redisstore

import (
	"testing"
	"time"

	"berth/integration/redistest"
	"berth/statestore"
	"berth/statestore/storetest"
)

func TestStandalone(t *testing.T) {
	storetest.Run(t, conformance(redistest.Standalone(t).URL))
}

// TestStandaloneTogether sends every append as those go that wait at the same time:
// through lua/many.lua, worked out here where that can be.
func TestStandaloneTogether(t *testing.T) {
	b := conformance(redistest.Standalone(t).URL)
	together := func(s statestore.Store) statestore.Store {
		lanes := s.(*Store).lanes
		lanes.alone, lanes.fewest = 0, 1
		return s
	}
	open, reopen, snapshot := b.Open, b.Reopen, b.Snapshot
	b.Open = func(t testing.TB) statestore.Store { return together(open(t)) }
	b.Reopen = func(t testing.TB, s statestore.Store) statestore.Store { return together(reopen(t, s)) }
	b.Snapshot = func(t testing.TB, s statestore.Store) func() statestore.Store {
		restore := snapshot(t, s)
		return func() statestore.Store { return together(restore()) }
	}
	storetest.Run(t, b)
}

func TestCluster(t *testing.T) {
	storetest.Run(t, conformance(redistest.Cluster(t).URL))
}

// conformance hands stores on a server to the suite.
func conformance(url string) storetest.Backend {
	return storetest.Backend{
		Open: func(t testing.TB) statestore.Store { return open(t, url) },
		Advance: func(_ testing.TB, s statestore.Store, d time.Duration) {
			s.(*Store).skew.Add(d.Milliseconds())
		},
		Snapshot: func(t testing.TB, s statestore.Store) func() statestore.Store {
			restore := snapshot(t, url, s.(*Store).opts.Prefix)
			return func() statestore.Store {
				restore()
				return reopen(t, url, s.(*Store))
			}
		},
		Reopen:     func(t testing.TB, s statestore.Store) statestore.Store { return reopen(t, url, s.(*Store)) },
		Concurrent: true,
	}
}
