package scoreboard

import (
	"slices"
	"strconv"
)

// The fleet every policy is played on.
const (
	Instances   = 8
	CacheBlocks = 16_000 // of 512 tokens, for each instance
)

// Kind is what an event does to an instance.
type Kind string

const (
	Join  Kind = "join"  // it is new and its cache is empty
	Kill  Kind = "kill"  // it is gone, with its cache and all it held in memory
	Drain Kind = "drain" // it is taken out of service in an orderly way
)

// Event changes the fleet ahead of one request of the trace.
type Event struct {
	At       int    `json:"at"` // requests that were handed out before it
	Kind     Kind   `json:"kind"`
	Instance string `json:"instance"`
}

// Fleet returns the ids of the instances in service at the start.
func Fleet() []string {
	ids := make([]string, Instances)
	for i := range ids {
		ids[i] = instanceID(i + 1)
	}
	return ids
}

// Schedule returns the events of a trace of that many requests: a ninth
// instance joins after a quarter, one is killed at half, another is drained at
// three quarters.
func Schedule(requests int) []Event {
	return []Event{
		{At: requests / 4, Kind: Join, Instance: instanceID(Instances + 1)},
		{At: requests / 2, Kind: Kill, Instance: instanceID(3)},
		{At: requests * 3 / 4, Kind: Drain, Instance: instanceID(5)},
	}
}

func instanceID(n int) string { return "i" + strconv.Itoa(n) }

// apply returns the instances in service after the event.
func (e Event) apply(inService []string) []string {
	if e.Kind == Join {
		return append(slices.Clone(inService), e.Instance)
	}
	return slices.DeleteFunc(slices.Clone(inService), func(id string) bool { return id == e.Instance })
}
