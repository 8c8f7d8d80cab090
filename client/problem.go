package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"
)

// Code is the stable name of a refusal, the last part of its problem type. Each
// code is an error, so that callers branch with
// errors.Is(err, client.ErrNotOwner); errors.As to a [*Problem] has the rest.
type Code string

func (c Code) Error() string { return string(c) }

// Codes that callers branch on. The list is not closed: a code that is missing
// here still arrives as Problem.Code.
const (
	ErrNotOwner         Code = "not_owner"
	ErrVersionConflict  Code = "version_conflict"
	ErrOpForgotten      Code = "op_forgotten"
	ErrOpReused         Code = "op_reused"
	ErrStaleHandle      Code = "stale_handle"
	ErrStoreBehind      Code = "store_behind"
	ErrNotFound         Code = "not_found"
	ErrExpired          Code = "expired"
	ErrDeleted          Code = "deleted"
	ErrTooLarge         Code = "too_large"
	ErrOutcomeUnknown   Code = "outcome_unknown"
	ErrNotDurable       Code = "not_durable"
	ErrStoreUnavailable Code = "store_unavailable"
	ErrStoreFull        Code = "store_full"
	ErrStaleIncarnation Code = "stale_incarnation"
	ErrUnknownInstance  Code = "unknown_instance"
	ErrBadHandle        Code = "bad_handle"
	ErrHasSessions      Code = "has_sessions"
	ErrNotEligible      Code = "not_eligible"
	ErrChanged          Code = "changed"
	ErrUnauthorized     Code = "unauthorized"
	ErrForbidden        Code = "forbidden"
	ErrInvalid          Code = "invalid"
)

// Problem is a refusal by Berth, application/problem+json. Members that the
// code does not have are zero.
type Problem struct {
	Code   Code   `json:"code"`
	Status int    `json:"status"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
	// Request is the id of the refused request, for the operator's logs.
	Request string `json:"instance"`

	Why    string `json:"why"`    // not_owner, bad_handle
	Owner  *Owner `json:"owner"`  // not_owner, stale_handle; nil or without an instance: nobody
	Parked bool   `json:"parked"` // not_owner: the owner will find the write

	Version uint64 `json:"version"` // version_conflict, op_forgotten, op_reused, not_durable
	Turns   int    `json:"turns"`   // version_conflict
	Have    *Have  `json:"have"`    // store_behind
	Want    *Want  `json:"want"`    // store_behind

	What  string `json:"what"`  // too_large
	Limit int64  `json:"limit"` // too_large, in bytes
	Size  int64  `json:"size"`  // too_large, in bytes

	Op         string      `json:"op"`
	Stored     bool        `json:"stored"`     // not_durable
	Durability *Durability `json:"durability"` // not_durable: the level reached

	// RetryAfter is how long the server asks to wait; 0 when it does not say.
	RetryAfter time.Duration `json:"-"`
}

// Have is what the store holds of a session that it should hold more of.
type Have struct {
	Version uint64 `json:"version"`
	Turns   int    `json:"turns"`
}

// Want is what was promised.
type Want struct {
	Version uint64 `json:"version"`
}

// Owner is an inference instance and the epoch at which it owns a session.
type Owner struct {
	Instance string `json:"instance"`
	Address  string `json:"address"` // ip:port
	Epoch    uint64 `json:"epoch"`
}

func (p *Problem) Error() string {
	switch {
	case p.Detail != "":
		return string(p.Code) + ": " + p.Detail
	case p.Title != "":
		return string(p.Code) + ": " + p.Title
	}
	return fmt.Sprintf("%s (status %d)", p.Code, p.Status)
}

// Is lets errors.Is compare a problem with a [Code].
func (p *Problem) Is(target error) bool {
	c, ok := target.(Code)
	return ok && p.Code == c
}

// refusal is the problem that settled this call; nil if there was an answer, none
// at all, an error of the caller's own while it read one, or a repair that
// another call's refusal stopped.
func refusal(err error) *Problem {
	var own *permanentError
	var p *Problem
	var silent *UnansweredError
	var stopped *RepairError
	if errors.As(err, &own) || errors.As(err, &silent) || errors.As(err, &stopped) || !errors.As(err, &p) {
		return nil
	}
	return p
}

// codeUnspecified stands for answers that are no problem of Berth's, such as
// those of a proxy on the way.
const codeUnspecified Code = "unspecified"

// maxProblemBytes bounds what is read of a refusal.
const maxProblemBytes = 64 << 10

// readProblem turns a response that is not 2xx into a problem.
func readProblem(res *http.Response) *Problem {
	p := &Problem{}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if kind == "application/problem+json" || kind == "application/json" {
		body, err := io.ReadAll(io.LimitReader(res.Body, maxProblemBytes))
		// A member of another type than expected must not hide the code.
		if err != nil || (json.Unmarshal(body, p) != nil && p.Code == "") {
			p = &Problem{}
		}
	}
	p.Status = res.StatusCode
	if p.Code == "" {
		p.Code = codeUnspecified
	}
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s > 0 {
		p.RetryAfter = time.Duration(s) * time.Second
	}
	return p
}

// isAnswer reports whether the refusal settles the call. The others say that
// nobody knows or that the server could not look: the same call again will.
func (p *Problem) isAnswer() bool {
	switch p.Status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return false
	}
	return true
}

// elsewhere reports whether another process may answer better than this one:
// the refusal is the process's own or a proxy's, not the shared store's.
func (p *Problem) elsewhere() bool {
	switch p.Code {
	case ErrOutcomeUnknown, ErrNotDurable, ErrStoreUnavailable, ErrNotEligible, "busy":
		return false
	}
	return !p.isAnswer()
}
