package services

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// tornBody is what huma says, as a 500, of a body that breaks off.
const tornBody = "cannot read request body"

// humaProblem is how huma's own refusals (validation, body limits) look.
func humaProblem(status int, msg string, errs ...error) *Problem {
	if msg == tornBody {
		status = http.StatusBadRequest // the caller's connection broke, not this server
	}
	code, ok := map[int]string{
		400: "malformed", 401: "unauthorized", 403: "forbidden", 404: "not_found", 405: "method_not_allowed",
		408: "timeout", 413: "too_large", 415: "unsupported_media", 422: "invalid", 500: "internal",
	}[status]
	if !ok {
		code = "internal"
	}
	p := newProblem(code, msg)
	var details []string
	for _, err := range errs {
		var d huma.ErrorDetailer
		if errors.As(err, &d) {
			e := fieldErrors(d.ErrorDetail())
			p.Errors = append(p.Errors, e)
			details = append(details, strings.TrimPrefix(e.Location+": "+e.Message, ": "))
		}
	}
	if len(details) > 0 {
		p.Detail = strings.Join(details, "; ")
	}
	return p
}

// fieldErrors is one of huma's errors. Where a body was not decoded it has only the
// text of a typeError, which begins with the member.
func fieldErrors(e *huma.ErrorDetail) FieldErrors {
	if at, message, ok := strings.Cut(e.Message, ": "); ok && e.Location == "body" && strings.HasPrefix(at, "body.") {
		return FieldErrors{Location: at, Message: message}
	}
	return FieldErrors{Location: e.Location, Message: e.Message}
}

// typeError is a value of another type than its member has, in words of JSON.
type typeError struct {
	member  string // empty: the whole body
	message string
}

func (e *typeError) Error() string {
	if e.member == "" {
		return e.message
	}
	return "body." + e.member + ": " + e.message
}

// typed says an error of encoding/json about a type without the types of Go.
func typed(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err
	}
	var member []string
	for part := range strings.SplitSeq(wrong.Field, ".") {
		if part != "" && (part[0] < 'A' || part[0] > 'Z') { // an embedded struct is no member
			member = append(member, part)
		}
	}
	return &typeError{member: strings.Join(member, "."), message: wanted(wrong)}
}

// maxQuoted bounds what a message repeats of a value.
const maxQuoted = 40

// wanted says what should stand there, and what does.
func wanted(wrong *json.UnmarshalTypeError) string {
	got := wrong.Value
	if len(got) > maxQuoted {
		got = got[:maxQuoted] + "…"
	}
	return "want " + wordFor(wrong.Type) + ", got " + got
}

func wordFor(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return wordFor(t.Elem())
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "an integer of 64 bits"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "an integer from 0 to 2^64-1"
	case reflect.Float32, reflect.Float64:
		return "a number in the range of 64 bits"
	case reflect.String:
		return "a string"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "another type"
}
