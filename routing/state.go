package routing

import "fmt"

// State is what operators and health say of an instance. What it permits is
// told by its methods, so that no caller compares states.
type State uint8

// The states of an instance. The zero value permits nothing.
const (
	Unknown  State = iota
	Warming        // registered, not heard ready yet
	Ready          // takes everything
	Draining       // a drain moves its sessions away
	Drained        // safe to stop; no heartbeat brings it back
	Suspect        // silent or failing, not proven dead
	Down           // proven dead, which changes hints and never the right to write
	Cordoned       // an operator lets no new session in
)

var stateNames = [...]string{"unknown", "warming", "ready", "draining", "drained", "suspect", "down", "cordoned"}

// String is the state's name in the API.
func (s State) String() string { return nameOf(stateNames[:], uint8(s)) }

// ParseState reads a name that String wrote.
func ParseState(name string) (State, error) {
	for i, n := range stateNames {
		if n == name {
			return State(i), nil
		}
	}
	return Unknown, fmt.Errorf("instance state %q is not known", name)
}

// MarshalText writes the state's name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the state's name.
func (s *State) UnmarshalText(text []byte) (err error) {
	*s, err = ParseState(string(text))
	return err
}

// MayServeBound reports whether a session that is bound to the instance may
// stay there.
func (s State) MayServeBound() bool {
	return s == Ready || s == Suspect || s == Cordoned || s == Draining
}

// MayTakeNew reports whether sessions may be placed on the instance.
func (s State) MayTakeNew() bool { return s == Ready }

// MustRamp reports whether the instance begins anew with a ramp when it takes new
// sessions again. Who is suspect for a moment does not: its caches are as warm as
// before.
func (s State) MustRamp() bool { return s != Ready && s != Suspect }

// MayServeInPanic reports whether the instance is worth a try when nobody is
// eligible: it may be alive, and neither an operator nor a drain holds it back.
func (s State) MayServeInPanic() bool { return s == Ready || s == Suspect || s == Down }

// Breaker is the state of an instance's circuit breaker. The zero value is
// closed: nobody has complained yet.
type Breaker uint8

// The states of a breaker.
const (
	BreakerClosed    Breaker = iota
	BreakerOpen              // failing: takes nobody new
	BreakerTrial             // half open: takes exactly one request, granted through Request.Trials
	BreakerSaturated         // open for load alone: takes nobody new, and what is bound to it leaves by and by
)

var breakerNames = [...]string{"closed", "open", "trial", "saturated"}

// String is the breaker state's name.
func (b Breaker) String() string { return nameOf(breakerNames[:], uint8(b)) }

// ParseBreaker reads a name that String wrote.
func ParseBreaker(name string) (Breaker, error) {
	for i, n := range breakerNames {
		if n == name {
			return Breaker(i), nil
		}
	}
	return BreakerClosed, fmt.Errorf("breaker state %q is not known", name)
}

// MarshalText writes the breaker state's name.
func (b Breaker) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText reads the breaker state's name.
func (b *Breaker) UnmarshalText(text []byte) (err error) {
	*b, err = ParseBreaker(string(text))
	return err
}

// Reason says which rule made a decision.
type Reason uint8

// The reasons of a decision. The zero value is the one without an instance.
const (
	ReasonNone      Reason = iota // nobody may serve
	ReasonBound                   // the live binding holds
	ReasonNew                     // a first placement
	ReasonLapsed                  // the session exists, no binding holds it
	ReasonFailover                // its owner may not serve it
	ReasonReplaced                // its owner began a new incarnation
	ReasonOverBound               // placed past the walk's first, which is over its bound
	ReasonBreaker                 // its owner lets go of it: breaker, or age on an overloaded owner
	ReasonStateless               // no session: the less loaded of two
	ReasonPanic                   // nobody is eligible and the policy asks to try anyway
)

// Reasons is the number of reasons, for arrays indexed by them.
const Reasons = int(ReasonPanic) + 1

var reasonNames = [Reasons]string{
	"none", "bound", "new", "lapsed", "failover", "replaced", "over_bound", "breaker", "stateless", "panic",
}

// String is the reason's name in the API.
func (r Reason) String() string { return nameOf(reasonNames[:], uint8(r)) }

// MarshalText writes the reason's name.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

func nameOf(names []string, i uint8) string {
	if int(i) < len(names) {
		return names[i]
	}
	return fmt.Sprintf("invalid(%d)", i)
}
