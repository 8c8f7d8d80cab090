package boltstore

import (
	"encoding/binary"
	"slices"

	"berth/statestore"
)

// Buckets of the file; doc.go says what is in them.
var (
	bMeta       = []byte("meta")
	bSessions   = []byte("sessions")
	bTurns      = []byte("turns")
	bContexts   = []byte("contexts")
	bParked     = []byte("parked")
	bPlacements = []byte("placements")
	bOwned      = []byte("owned")
	bCounts     = []byte("counts")
	bDue        = []byte("due")
	bFences     = []byte("fences")
	bJobFences  = []byte("jobfences")
	bInstances  = []byte("instances") // without their heartbeats
	bBeats      = []byte("beats")     // id: row of heartbeats
	bLeases     = []byte("leases")
	bJobs       = []byte("jobs")
	bTasks      = []byte("tasks")
	bTaskQueue  = []byte("taskqueue") // instance NUL incarnation NUL, sequence: id of an open task
	bTaskJobs   = []byte("taskjobs")  // job NUL, sequence: id of a task
	bTaskDue    = []byte("taskdue")   // ms, id: tasks that belong to no job
	bPolicies   = []byte("policies")
	bKeys       = []byte("keys") // sequence: signing key
)

var buckets = [][]byte{
	bMeta, bSessions, bTurns, bContexts, bParked, bPlacements, bOwned, bCounts, bDue, bFences, bJobFences,
	bInstances, bBeats, bLeases, bJobs, bTasks, bTaskQueue, bTaskJobs, bTaskDue, bPolicies, bKeys,
}

// Keys in the meta bucket.
var (
	kFormat  = []byte("format")
	kClock   = []byte("clock")
	kVersion = []byte("fleet version")
	kMembers = []byte("fleet members")
	// kHealth, followed by a lease's name, is the highest token that wrote health.
	kHealth = "health token "
)

// format is the version of the layout; a file of a later one is refused.
const format = 1

func be64(v uint64) []byte { return binary.BigEndian.AppendUint64(nil, v) }

// fromBE64 reads a counter; absent is 0.
func fromBE64(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

func turnKey(d statestore.SessionDigest, n uint64) []byte {
	return binary.BigEndian.AppendUint64(d[:len(d):len(d)], n)
}

func parkedKey(d statestore.SessionDigest, op statestore.OpDigest) []byte {
	return slices.Concat(d[:], op[:])
}

func placementKey(d statestore.SessionDigest, by statestore.Owner) []byte {
	return slices.Concat(d[:], joined(by.Instance, by.Incarnation))
}

func dueKey(at statestore.Millis, id []byte) []byte {
	return append(be64(uint64(at)), id...) //nolint:gosec // the clock is past 1970
}

func dueAt(key []byte) statestore.Millis {
	return statestore.Millis(binary.BigEndian.Uint64(key)) //nolint:gosec // as in dueKey
}

// joined separates names by NUL, which no name may hold.
func joined(names ...string) []byte {
	var b []byte
	for i, n := range names {
		if i > 0 {
			b = append(b, 0)
		}
		b = append(b, n...)
	}
	return b
}

// prefixed is joined with a NUL at the end, so that it is a prefix of nothing else.
func prefixed(names ...string) []byte { return append(joined(names...), 0) }

func ownedKey(pool, instance string, d statestore.SessionDigest) []byte {
	return append(prefixed(pool, instance), d[:]...)
}
