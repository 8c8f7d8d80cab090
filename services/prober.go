package services

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"berth/routing"
	"berth/statestore"
)

// probesAtOnce bounds how many probes are under way.
const probesAtOnce = 64

// prober asks instances how they are, at the address that they registered and
// nowhere else: it follows no redirect and uses no proxy. Only the holder of the
// health lease has one at work.
type prober struct {
	client *http.Client
	slots  chan struct{}

	mu    sync.Mutex
	due   map[statestore.Owner]time.Time // the next probe; zero while one is under way
	ended []probed
}

// probed is a probe that ended.
type probed struct {
	who statestore.Owner
	end routing.Probe
}

func newProber() *prober {
	return &prober{
		client: &http.Client{
			// Every probe connects: that is half of what it is to find out.
			Transport:     &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		slots: make(chan struct{}, probesAtOnce),
		due:   map[statestore.Owner]time.Time{},
	}
}

// probes reports whether an instance is probed under a policy.
func probes(in *statestore.Instance, p *routing.ProbePolicy) bool { return p.On || in.Probe }

// start begins the probes that are due. Those that find no slot wait for the next
// round.
func (p *prober) start(ctx context.Context, instances []statestore.Instance, policy func(pool string) routing.ProbePolicy) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	next := make(map[statestore.Owner]time.Time, len(p.due))
	for i := range instances {
		in := &instances[i]
		how := policy(in.Pool)
		if !probes(in, &how) {
			continue
		}
		who := in.Owner()
		due, known := p.due[who]
		switch {
		case !known && !urgent(in):
			due = now.Add(time.Duration(rand.Int64N(int64(how.Every)))) //nolint:gosec // spreads the first probes
		case !known || !due.IsZero() && !now.Before(due):
			select {
			case p.slots <- struct{}{}:
				due = time.Time{}
				go p.probe(ctx, who, probeURL(in, &how), how)
			default:
				due = now
			}
		}
		next[who] = due
	}
	p.due = next
}

// urgent is an instance that a good probe brings into service.
func urgent(in *statestore.Instance) bool { return in.Lifecycle == statestore.Warming }

func probeURL(in *statestore.Instance, how *routing.ProbePolicy) string {
	scheme := in.Scheme
	if scheme != "https" {
		scheme = "http"
	}
	return scheme + "://" + in.Address + how.Path
}

// probe makes one probe and notes how it ended.
func (p *prober) probe(ctx context.Context, who statestore.Owner, url string, how routing.ProbePolicy) {
	end := p.ask(ctx, url, how.Timeout)
	<-p.slots
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil {
		return // it says nothing of the instance
	}
	if _, still := p.due[who]; still {
		p.due[who] = time.Now().Add(how.Wait(rand.Uint64())) //nolint:gosec // spreads probes
		p.ended = append(p.ended, probed{who: who, end: end})
	}
}

func (p *prober) ask(ctx context.Context, url string, timeout time.Duration) routing.Probe {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return routing.ProbeFailed
	}
	resp, err := p.client.Do(req)
	if err != nil {
		var network net.Error
		if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout() {
			return routing.ProbeTimedOut
		}
		return routing.ProbeFailed
	}
	_ = resp.Body.Close() // what it says beside its status is nobody's business
	return routing.ProbeOfStatus(resp.StatusCode)
}

// take returns the probes that ended since the last time.
func (p *prober) take() []probed {
	p.mu.Lock()
	defer p.mu.Unlock()
	ended := p.ended
	p.ended = nil
	return ended
}
