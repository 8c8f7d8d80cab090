package redistest

import (
	"bytes"
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy is a TCP proxy on loopback that harms what passes. It knows no protocol: a
// fault waits for a request that contains given bytes (an op, a key), then strikes
// the connection that carried it, once. A reply fault strikes at the reply's first
// byte, so the server has by then executed the request.
//
// Everything else passes untouched and in order. Faults may be armed from any
// goroutine, also while traffic flows.
type Proxy struct {
	Addr string // host:port to use instead of the target's

	target   string
	listener net.Listener
	latency  atomic.Int64 // nanoseconds before each piece of a reply
	closed   chan struct{}
	running  sync.WaitGroup

	mu    sync.Mutex
	down  bool
	armed []*fault
	links map[*link]struct{}
}

// fault strikes once, on the first request that contains match.
type fault struct {
	match  []byte
	kind   faultKind
	delay  time.Duration
	after  int // bytes of the reply that still pass
	struck chan struct{}
}

// longestMatch is how far back in a request, in bytes, a match may begin.
const longestMatch = 1 << 10

type faultKind int

const (
	loseRequest faultKind = iota + 1
	loseReply
	delayReply
	cutReply
)

// NewProxy listens in front of target (host:port) until the test ends.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen for a fault proxy: %v", err)
	}
	p := &Proxy{
		Addr:     listener.Addr().String(),
		target:   target,
		listener: listener,
		closed:   make(chan struct{}),
		links:    map[*link]struct{}{},
	}
	p.running.Go(func() { p.accept(context.WithoutCancel(t.Context())) })
	t.Cleanup(func() {
		close(p.closed)
		_ = listener.Close()
		p.CutAll()
		p.running.Wait()
	})
	return p
}

// LoseRequest closes the connection instead of passing on the request: the server
// never sees it whole. The channel closes when that has happened.
func (p *Proxy) LoseRequest(match string) <-chan struct{} {
	return p.arm(&fault{match: []byte(match), kind: loseRequest})
}

// LoseReply swallows the reply, and all later ones of that connection, which stays
// open and silent. The channel closes when the reply has come and is gone.
func (p *Proxy) LoseReply(match string) <-chan struct{} {
	return p.arm(&fault{match: []byte(match), kind: loseReply})
}

// DelayReply holds the reply back for d. The channel closes when the reply has
// come, before the wait.
func (p *Proxy) DelayReply(match string, d time.Duration) <-chan struct{} {
	return p.arm(&fault{match: []byte(match), kind: delayReply, delay: d})
}

// CutReply lets n bytes of the reply pass and closes the connection. The channel
// closes when that has happened.
func (p *Proxy) CutReply(match string, n int) <-chan struct{} {
	return p.arm(&fault{match: []byte(match), kind: cutReply, after: n})
}

// Latency holds back each piece of every reply for d, from now on.
func (p *Proxy) Latency(d time.Duration) { p.latency.Store(int64(d)) }

// CutAll closes every connection that is open.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// Down closes every connection and refuses new ones until Up.
func (p *Proxy) Down() {
	p.mu.Lock()
	p.down = true
	p.mu.Unlock()
	p.CutAll()
}

// Up accepts connections again.
func (p *Proxy) Up() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
}

func (p *Proxy) arm(f *fault) <-chan struct{} {
	f.struck = make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = append(p.armed, f)
	return f.struck
}

// take removes and returns the oldest fault that a piece of a request calls for.
// A match may begin in what came before on the same connection, and must end in
// the piece.
func (p *Proxy) take(before, piece []byte) *fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, f := range p.armed {
		reach := min(len(before), max(0, len(f.match)-1))
		window := append(append([]byte(nil), before[len(before)-reach:]...), piece...)
		if bytes.Contains(window, f.match) {
			p.armed = slices.Delete(p.armed, i, i+1)
			return f
		}
	}
	return nil
}

func (p *Proxy) accept(ctx context.Context) {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(ctx, near) })
	}
}

// serve joins one client to the target until either side ends.
func (p *Proxy) serve(ctx context.Context, near net.Conn) {
	far, err := new(net.Dialer).DialContext(ctx, "tcp", p.target)
	if err != nil {
		_ = near.Close()
		return
	}
	l := &link{proxy: p, near: near, far: far, gone: make(chan struct{})}
	if !p.join(l) {
		l.close()
		return
	}
	replies := make(chan struct{})
	go func() {
		defer close(replies)
		defer l.close()
		l.copyReplies()
	}()
	l.copyRequests()
	l.close()
	<-replies
	p.leave(l)
}

func (p *Proxy) join(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return false
	}
	select {
	case <-p.closed:
		return false
	default:
		p.links[l] = struct{}{}
		return true
	}
}

func (p *Proxy) leave(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// link is one client's connection and its other half.
type link struct {
	proxy *Proxy
	near  net.Conn // to the client
	far   net.Conn // to the target
	fault atomic.Pointer[fault]
	once  sync.Once
	gone  chan struct{}
}

func (l *link) close() {
	l.once.Do(func() {
		close(l.gone)
		_ = l.near.Close()
		_ = l.far.Close()
	})
}

// copyRequests sets a fault before the request that calls for it is passed on, so
// that its reply cannot slip through.
func (l *link) copyRequests() {
	buf := make([]byte, 64<<10)
	var before []byte
	for {
		n, err := l.near.Read(buf)
		if n > 0 && !l.request(before, buf[:n]) {
			return
		}
		if err != nil {
			return
		}
		before = append(before, buf[:n]...)
		before = before[max(0, len(before)-longestMatch):]
	}
}

// request passes one piece on, unless it is to be lost; false ends the link.
func (l *link) request(before, piece []byte) bool {
	if f := l.proxy.take(before, piece); f != nil {
		if f.kind == loseRequest {
			l.close()
			f.strike()
			return false
		}
		l.fault.Store(f)
	}
	_, err := l.far.Write(piece)
	return err == nil
}

func (l *link) copyReplies() {
	buf := make([]byte, 64<<10)
	for {
		n, err := l.far.Read(buf)
		if n > 0 && !l.reply(buf[:n]) {
			return
		}
		if err != nil {
			return
		}
	}
}

// reply passes one piece on, or does to it what the fault says; false ends the link.
func (l *link) reply(piece []byte) bool {
	if !l.wait(time.Duration(l.proxy.latency.Load())) {
		return false
	}
	f := l.fault.Load()
	if f == nil {
		_, err := l.near.Write(piece)
		return err == nil
	}
	switch f.kind {
	case loseReply:
		f.strike()
		return true
	case delayReply:
		l.fault.CompareAndSwap(f, nil)
		f.strike()
		if !l.wait(f.delay) {
			return false
		}
		_, err := l.near.Write(piece)
		return err == nil
	default: // cutReply
		return l.cut(f, piece)
	}
}

func (l *link) cut(f *fault, piece []byte) bool {
	pass := min(f.after, len(piece))
	if _, err := l.near.Write(piece[:pass]); err != nil {
		return false
	}
	f.after -= pass
	if f.after > 0 {
		return true
	}
	l.close()
	f.strike()
	return false
}

// strike says that the fault has happened; later replies of a silent link strike again.
func (f *fault) strike() {
	select {
	case <-f.struck:
	default:
		close(f.struck)
	}
}

// wait holds the link for d; false when it ended meanwhile.
func (l *link) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.gone:
		return false
	}
}
