package services

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"time"
)

// maxRequestID bounds a caller's own request id.
const maxRequestID = 128

// newRequestID is 128 random bits in hexadecimal. It is no secret.
func newRequestID() string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], rand.Uint64()) //nolint:gosec // see above
	binary.BigEndian.PutUint64(b[8:], rand.Uint64()) //nolint:gosec // see above
	return hex.EncodeToString(b[:])
}

// validRequestID accepts a caller's id of printable ASCII.
func validRequestID(id string) bool {
	if id == "" || len(id) > maxRequestID {
		return false
	}
	for _, c := range []byte(id) {
		if c < 0x21 || c > 0x7e || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// requestContext is what handlers below the middleware find in their context.
type requestContext struct {
	server    *Server
	request   *http.Request
	writer    http.ResponseWriter
	principal *principal
	id        string
	query     parameters
}

type requestContextKey struct{}

func contextOf(ctx context.Context) *requestContext {
	c, _ := ctx.Value(requestContextKey{}).(*requestContext)
	return c
}

// request is the HTTP request of a typed handler's context.
func request(ctx context.Context) *http.Request { return contextOf(ctx).request }

// caller is who makes the call; nil for calls that need no token.
func caller(ctx context.Context) *principal { return contextOf(ctx).principal }

// queryOf is the query of a call, in which each name comes once.
func queryOf(ctx context.Context) parameters { return contextOf(ctx).query }

func requestID(ctx context.Context) string {
	if c := contextOf(ctx); c != nil {
		return c.id
	}
	return ""
}

// MaxHeaderBytes bounds the request line and the headers. A server that lets twice
// as many pass has those in between answered whole: what is more, or is no HTTP,
// net/http refuses by itself and hangs up; see [Server.Listener].
const MaxHeaderBytes = 64 << 10

// checkHeaders refuses a request line and headers that are too large together, and two
// values where one is to say what the call is about.
func (s *Server) checkHeaders(r *http.Request) error {
	size, twice := len(r.RequestURI), ""
	for name, values := range r.Header {
		for _, v := range values {
			size += len(name) + len(v)
		}
		if len(values) > 1 && (twice == "" || name < twice) && s.comesOnce(name) && differ(values) {
			twice = name
		}
	}
	if size > MaxHeaderBytes {
		p := newProblem("headers_too_large", "the request line and the headers are larger than the limit")
		p.Limit, p.Size = MaxHeaderBytes, uint64(size) //nolint:gosec // not negative
		return p
	}
	if twice != "" {
		return badID("header."+twice, errors.New("is given twice, with different values"))
	}
	return nil
}

// readQuery reads the query of a call that is no route.
func readQuery(r *http.Request) (parameters, error) {
	values, err := query(r)
	if err == nil {
		err = values.once(onceInCall)
	}
	return values, err
}

// withRequest gives every request its id and the typed handlers their request.
func (s *Server) withRequest(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &requestContext{server: s, id: r.Header.Get(hdrRequestID), writer: w}
		if !validRequestID(c.id) {
			c.id = newRequestID()
		}
		w.Header().Set(hdrRequestID, c.id)
		r = r.WithContext(context.WithValue(r.Context(), requestContextKey{}, c))
		c.request = r
		err := s.checkHeaders(r)
		if err == nil {
			c.query, err = readQuery(r)
		}
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// withToken lets only bearers of a known token pass.
func (s *Server) withToken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := s.tokens.identify(r)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		contextOf(r.Context()).principal = p
		next.ServeHTTP(w, r)
	})
}

// recovered turns a panic into a 500 that says nothing but the request id.
func (s *Server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			err := recover()
			if err == nil {
				return
			}
			if err == http.ErrAbortHandler { //nolint:errorlint // the sentinel itself is what is panicked with
				panic(err)
			}
			p := newProblem("internal", "")
			p.Instance = w.Header().Get(hdrRequestID)
			s.metrics.refused(p.Code)
			s.log.Error("handler panicked", "request", p.Instance, "panic", err, "stack", string(debug.Stack()))
			sendProblem(w, p)
		}()
		next.ServeHTTP(w, r)
	})
}

// timed measures every call but the routes, which measure themselves.
func (s *Server) timed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		started := time.Now()
		next.ServeHTTP(w, r)
		s.metrics.answered(r, time.Since(started))
	})
}

// refuse answers a plain handler's error.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	sendProblem(w, s.refused(r.Context(), err))
}

// refused is the problem for an error, counted, and logged if it is ours.
func (s *Server) refused(ctx context.Context, err error) *Problem {
	p := s.problem(err)
	p.Instance = requestID(ctx)
	s.metrics.refused(p.Code)
	gone := errors.Is(err, context.Canceled) // the caller is, so nobody is told
	if p.Status >= http.StatusInternalServerError && p.Code != "not_eligible" && !gone {
		if left, ok := s.failures.say(p.Code); ok {
			s.log.Warn("call failed", "code", p.Code, "request", p.Instance, "error", p.cause, "left_out", left)
		}
	}
	return p
}
