package services

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"
)

// plainCalls answers heartbeats and appends as workers send them: a fleet does little
// else, and huma takes longer over a heartbeat than everything below it. What is not
// plain, or is a wrong heartbeat, huma answers as it does every other call; what both
// take they answer alike (TestPlainHeartbeatsAreAnsweredAsOthersAre, FuzzPlainBeat,
// TestPlainAppendsAreAnsweredAsOthersAre).
func (s *Server) plainCalls(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id, ok := appendOf(r); ok {
			s.plainAppend(w, r, id)
			return
		}
		id, ok := beatOf(r)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		buf := beatBodies.Get().(*[maxPlainBeat]byte) //nolint:errcheck,forcetypeassert // only they are in it
		defer beatBodies.Put(buf)
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.options.BodyTimeout)) // as huma; net/http lifts it
		body := buf[:r.ContentLength]
		n, err := io.ReadFull(r.Body, body)
		in := heartbeatInput{ID: id}
		if err != nil || !in.scan(body) {
			r.Body = &rereadBody{Reader: io.MultiReader(bytes.NewReader(bytes.Clone(body[:n])), r.Body), Closer: r.Body}
			next.ServeHTTP(w, r)
			return
		}
		out, err := s.heartbeat(r.Context(), &in)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		sendPlain(w, out.CacheControl, &out.Body)
	})
}

// plainAppend answers an append. Its body is read by readContext in either case.
func (s *Server) plainAppend(w http.ResponseWriter, r *http.Request, id string) {
	h := r.Header
	out, err := s.appendTurns(r.Context(), &writeInput{
		ID: id, ContentType: h.Get("Content-Type"), Op: h.Get(hdrOp), Handle: h.Get(hdrHandle),
		Instance: h.Get(hdrInstance), Incarnation: h.Get(hdrIncarnation),
	})
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	sendPlain(w, out.CacheControl, &out.Body)
}

// sendPlain answers as huma would.
func sendPlain(w http.ResponseWriter, cacheControl string, body any) {
	h := w.Header()
	h.Set("Cache-Control", cacheControl)
	h.Set("Content-Type", mediaJSON)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(body) // the worker is gone if this fails
}

// appendOf is the session that a request appends to, if it is a plain one.
func appendOf(r *http.Request) (id string, ok bool) {
	if r.Method != http.MethodPost || r.URL.RawPath != "" {
		return "", false
	}
	return part(r, "/v1/sessions/", "/turns")
}

// beatOf is the instance whose heartbeat a request is, if it is a plain one.
func beatOf(r *http.Request) (id string, ok bool) {
	if r.Method != http.MethodPost || r.ContentLength <= 0 || r.ContentLength > maxPlainBeat || r.URL.RawPath != "" {
		return "", false
	}
	id, ok = part(r, "/v1/instances/", "/heartbeat")
	if !ok || r.Header["Content-Encoding"] != nil {
		return "", false
	}
	types := r.Header["Content-Type"]
	return id, len(types) == 0 || len(types) == 1 && (types[0] == "" || types[0] == mediaJSON)
}

// part is what stands in a path between two ends, if it is one part of the path, and
// the caller takes JSON.
func part(r *http.Request, before, after string) (id string, ok bool) {
	if id, ok = strings.CutPrefix(r.URL.Path, before); !ok {
		return "", false
	}
	id, ok = strings.CutSuffix(id, after)
	if !ok || id == "" || strings.ContainsAny(id, "/%") {
		return "", false
	}
	accept := r.Header["Accept"]
	return id, accept == nil || len(accept) == 1 && (accept[0] == "*/*" || accept[0] == mediaJSON)
}
