package routing

import (
	"fmt"
	"net/http"
)

// Outcome is how a request to an instance ended, as a gateway reports it. The
// zero value says nothing of the instance.
type Outcome uint8

// Outcomes, by the words of the API.
const (
	OutcomeUnknown Outcome = iota
	OutcomeOK              // served
	OutcomeConnect         // no connection came about
	OutcomeReset           // the connection broke
	OutcomeServer          // 5xx: it answered that it failed
	OutcomeTimeout         // no answer in time
	OutcomeBusy            // it answered that it has too much to do
	OutcomeClient          // 4xx: the request was at fault
)

var outcomeNames = [...]string{"unknown", "ok", "connect", "reset", "5xx", "timeout", "busy", "client"}

// String is the outcome's word in the API.
func (o Outcome) String() string { return nameOf(outcomeNames[:], uint8(o)) }

// ParseOutcome reads the word of a report: the result of an outcome, or what
// follows an excluded instance. Nothing is connect, the default of the latter.
func ParseOutcome(word string) (Outcome, error) {
	if word == "" {
		return OutcomeConnect, nil
	}
	for i, n := range outcomeNames[1:] {
		if n == word {
			return Outcome(i + 1), nil
		}
	}
	return OutcomeUnknown, fmt.Errorf("outcome %q is not known", word)
}

// statusOverloaded is what some engines answer instead of 503.
const statusOverloaded = 529

// OutcomeOfStatus is what an HTTP status says of the instance that answered it:
// 429 and 503 that it is busy and not that it fails, since engines shed load with
// both.
func OutcomeOfStatus(status int) Outcome {
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable, status == statusOverloaded:
		return OutcomeBusy
	case status == http.StatusRequestTimeout, status == http.StatusGatewayTimeout:
		return OutcomeTimeout
	case status >= 500 && status < 600:
		return OutcomeServer
	case status >= 400 && status < 500:
		return OutcomeClient
	case status >= 200 && status < 400:
		return OutcomeOK
	}
	return OutcomeUnknown
}

// WithStatus is the outcome in the light of the status that came with it, 0 for
// none. Where an answer came the status knows best: gateways report a 503 as 5xx.
// Where none came there is no status to believe.
func (o Outcome) WithStatus(status int) Outcome {
	switch o {
	case OutcomeOK, OutcomeServer, OutcomeBusy, OutcomeClient:
		if by := OutcomeOfStatus(status); by != OutcomeUnknown {
			return by
		}
	}
	return o
}

// Failed reports whether the instance is at fault: what opens a breaker.
func (o Outcome) Failed() bool { return o == OutcomeServer || o.Unreached() }

// Unreached reports whether the transport failed: what counts against an
// instance's health.
func (o Outcome) Unreached() bool { return o == OutcomeConnect || o == OutcomeReset }

// Loaded reports whether the instance had too much to do, which is no failure.
func (o Outcome) Loaded() bool { return o == OutcomeTimeout || o == OutcomeBusy }
