package routing

import "testing"

// The words of the API, and what each means for breaker, health and load.
func TestOutcomesByWord(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]struct {
		outcome                   Outcome
		failed, unreached, loaded bool
	}{
		"ok":      {outcome: OutcomeOK},
		"connect": {outcome: OutcomeConnect, failed: true, unreached: true},
		"":        {outcome: OutcomeConnect, failed: true, unreached: true}, // exclude=i3
		"reset":   {outcome: OutcomeReset, failed: true, unreached: true},
		"5xx":     {outcome: OutcomeServer, failed: true},
		"timeout": {outcome: OutcomeTimeout, loaded: true},
		"busy":    {outcome: OutcomeBusy, loaded: true},
		"client":  {outcome: OutcomeClient},
	} {
		o, err := ParseOutcome(word)
		if err != nil || o != want.outcome || o.Failed() != want.failed || o.Unreached() != want.unreached || o.Loaded() != want.loaded {
			t.Errorf("%q: %v, %v: failed %v, unreached %v, loaded %v", word, o, err, o.Failed(), o.Unreached(), o.Loaded())
		}
		if word != "" && o.String() != word {
			t.Errorf("%q is written %q", word, o)
		}
	}
	for _, word := range []string{"unknown", "OK", "4xx", "503", "connect "} {
		if o, err := ParseOutcome(word); err == nil || o != OutcomeUnknown {
			t.Errorf("%q was read as %v", word, o)
		}
	}
}

// R33: 4xx and 503 opened the breaker. 429, 503 and timeouts are load, whichever
// word the gateway has for them; 4xx is the client's.
func TestR33OutcomesByStatus(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]Outcome{
		0: OutcomeUnknown, 101: OutcomeUnknown, 200: OutcomeOK, 206: OutcomeOK, 304: OutcomeOK,
		400: OutcomeClient, 401: OutcomeClient, 404: OutcomeClient, 499: OutcomeClient,
		408: OutcomeTimeout, 504: OutcomeTimeout, 429: OutcomeBusy, 503: OutcomeBusy, 529: OutcomeBusy,
		500: OutcomeServer, 501: OutcomeServer, 502: OutcomeServer, 507: OutcomeServer, 599: OutcomeServer,
		600: OutcomeUnknown, -1: OutcomeUnknown,
	} {
		if got := OutcomeOfStatus(status); got != want {
			t.Errorf("%d is %v, want %v", status, got, want)
		}
	}
	for _, tt := range []struct {
		said   Outcome
		status int
		want   Outcome
	}{
		{OutcomeServer, 503, OutcomeBusy},
		{OutcomeServer, 500, OutcomeServer},
		{OutcomeServer, 0, OutcomeServer},
		{OutcomeOK, 500, OutcomeServer},
		{OutcomeOK, 0, OutcomeOK},
		{OutcomeClient, 429, OutcomeBusy},
		{OutcomeConnect, 200, OutcomeConnect},
		{OutcomeReset, 200, OutcomeReset}, // broke after its head
		{OutcomeTimeout, 200, OutcomeTimeout},
	} {
		if got := tt.said.WithStatus(tt.status); got != tt.want {
			t.Errorf("%v with status %d is %v, want %v", tt.said, tt.status, got, tt.want)
		}
	}
}
