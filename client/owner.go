package client

import (
	"errors"
	"net/http"
	"net/http/httputil"
	"net/url"
)

// OwnerOf is the instance that a refusal names as the session's owner.
func OwnerOf(err error) (Owner, bool) {
	var p *Problem
	if !errors.As(err, &p) || (p.Code != ErrNotOwner && p.Code != ErrStaleHandle) || p.Owner.nobody() {
		return Owner{}, false
	}
	return *p.Owner, true
}

// AnswerNotOwner is what a worker answers that learns before its first byte that
// another instance owns the session: 503, to be tried again at once, at the
// owner if there is one. It reports whether err was such a refusal; otherwise
// nothing is written.
func AnswerNotOwner(w http.ResponseWriter, err error) bool {
	if !errors.Is(err, ErrNotOwner) && !errors.Is(err, ErrStaleHandle) {
		return false
	}
	h := w.Header()
	if owner, ok := OwnerOf(err); ok {
		h.Set(headerInstance, owner.Instance)
		if owner.Address != "" {
			h.Set(headerEndpoint, owner.Address)
		}
	}
	h.Set("Retry-After", "0")
	http.Error(w, "another instance owns the session", http.StatusServiceUnavailable)
	return true
}

// ErrForwarded is a request that was forwarded before: there is one hop, and
// then the gateway has to ask again.
var ErrForwarded = errors.New("the request was forwarded already")

// ErrOwnedHere is a refusal that names the forwarding worker itself: it owns the
// session, at a later epoch than the refused handle's. What it refused is to be
// called again with the newest handle; see [Forwarder.Forward].
var ErrOwnedHere = errors.New("this instance owns the session itself, at another epoch")

// Forwarder passes requests on to the owner of their session, for workers that
// would rather do that than send the gateway there.
type Forwarder struct {
	// Instance is the worker's own id, which marks the request.
	Instance string
	// Scheme is http when empty.
	Scheme string
	// Transport makes the calls; nil means http.DefaultTransport.
	Transport http.RoundTripper
}

// Forward passes a request on whose body has not been read, and streams the
// answer back. It returns an error, and has written nothing, where the refusal
// names no address or the request was forwarded before; [AnswerNotOwner] is
// the answer then. An owner that cannot be reached is answered with it here.
//
// A refusal that names the worker itself is [ErrOwnedHere], and nothing is written:
// the request is this worker's to serve. [Session.Recover] takes in the newest handle
// and what the session has come to, and the same write with the same op is stored
// then; a write with Write.OnConflict or at the end does both by itself.
func (f *Forwarder) Forward(w http.ResponseWriter, r *http.Request, refused error) error {
	owner, ok := OwnerOf(refused)
	switch {
	case r.Header.Get(headerForwarded) != "":
		return ErrForwarded
	case ok && owner.Instance == f.Instance:
		return ErrOwnedHere
	case !ok || owner.Address == "":
		return errors.New("the refusal names no owner to forward to")
	}
	target := &url.URL{Scheme: f.Scheme, Host: owner.Address}
	if target.Scheme == "" {
		target.Scheme = "http"
	}
	proxy := &httputil.ReverseProxy{
		Transport:     f.Transport,
		FlushInterval: -1, // tokens are passed on as they come
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(target)
			p.Out.Host = p.In.Host
			p.Out.Header.Set(headerForwarded, f.Instance)
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { AnswerNotOwner(w, refused) },
	}
	proxy.ServeHTTP(w, r)
	return nil
}
