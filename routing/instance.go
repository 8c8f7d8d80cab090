package routing

import (
	"time"

	"fmt"
	"net/netip"
)

// Instance is one inference replica as a snapshot holds it. Once in a
// snapshot it is shared by every reader: change nothing behind its pointers.
type Instance struct {
	ID          string
	Incarnation string // of its present boot, in the same form as Record.Incarnation
	Address     string // ip:port; snapshots bring it into the form of CanonicalAddress
	Scheme      string
	Rank        *int // data-parallel rank, nil without one
	Zone        string
	Labels      map[string]string

	Weight      int       // 100 is ordinary; 0 keeps its sessions and takes no new ones
	RampPercent int       // part of the weight in force, 1 to 100; 0 means all of it, RampQueued none
	Returns     bool      // it took new sessions before, and waits to be let in again
	Registered  time.Time // its boot, by the store's clock; zero if that is not known
	State       State
	Breaker     Breaker
	Load        Load
}

func (i *Instance) member() Member {
	return Member{ID: i.ID, Weight: i.Weight, RampPercent: i.RampPercent}
}

// Load is what an instance last reported of its work.
type Load struct {
	Running, Waiting int    // requests
	Report           uint64 // numbers the reports of one boot; 0 is none
}

// maxInFlight bounds one instance's load, so that a senseless report cannot
// overflow a pool's sums.
const maxInFlight = 1 << 20

// InFlight is the load that the bound compares: requests running and waiting.
func (l Load) InFlight() int {
	running, waiting := min(max(l.Running, 0), maxInFlight), min(max(l.Waiting, 0), maxInFlight)
	return min(running+waiting, maxInFlight)
}

// CanonicalAddress brings an ip:port into the one form that is handed out:
// IPv6 in brackets and at its shortest, IPv4 never mapped into IPv6. It
// refuses names, for which the caller needs a policy of its own.
func CanonicalAddress(addr string) (string, error) {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return "", fmt.Errorf("address %q is not ip:port, with IPv6 in brackets: %w", addr, err)
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()).String(), nil
}

// canonicalOr leaves an address alone that is a name.
func canonicalOr(addr string) string {
	if c, err := CanonicalAddress(addr); err == nil {
		return c
	}
	return addr
}
