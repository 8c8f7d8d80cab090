package services

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"berth/statestore"
	"berth/statestore/handle"
)

// refusedAs fails unless the error is a refusal with that status and code.
func refusedAs(t *testing.T, err error, status int, code string) {
	t.Helper()
	var p *Problem
	if !errors.As((&Server{}).problem(err), &p) || p.Status != status || p.Code != code {
		t.Fatalf("refused as %v, want %d %s", err, status, code)
	}
}

// FuzzSessionID holds the id of a session to its definition: 1 to 256 bytes of
// UTF-8 without control characters.
func FuzzSessionID(f *testing.F) {
	for _, seed := range []string{"s", "", "a\x00b", "\x7f", "\u0085", "ü✓😀", "\xff", strings.Repeat("x", 256), strings.Repeat("x", 257), "a/b %2F", "\u2028"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, id string) {
		good := id != "" && len(id) <= 256 && utf8.ValidString(id) && !strings.ContainsFunc(id, unicode.IsControl)
		key := statestore.SessionKey{Tenant: "default", Pool: "default", ID: id}
		err := key.Validate()
		if (err == nil) != good {
			t.Fatalf("%q: %v", id, err)
		}
		if err != nil {
			refusedAs(t, err, http.StatusBadRequest, "malformed")
			return
		}
		// It survives the path, percent-encoded, and the query.
		if back, err := url.PathUnescape(url.PathEscape(id)); err != nil || back != id {
			t.Fatalf("%q comes back from the path as %q: %v", id, back, err)
		}
		r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/route?session="+url.QueryEscape(id), nil)
		values, err := query(r)
		if err != nil || values.Get("session") != id {
			t.Fatalf("%q comes back from the query as %q: %v", id, values.Get("session"), err)
		}
	})
}

// FuzzQuery holds the fast reading of a query to net/url's.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{"session=s", "session=a%20b&pool=x", "session=&session=s", "a=b;c", "=", "&&", "session", "x=1=2", "a+b=c", "%zz", "session=s#x"} {
		f.Add(seed, "session")
	}
	f.Fuzz(func(t *testing.T, raw, name string) {
		got, err := query(&http.Request{URL: &url.URL{RawQuery: raw}})
		want, wrong := url.ParseQuery(raw)
		if (err == nil) != (wrong == nil) {
			t.Fatalf("%q: %v, net/url says %v", raw, err, wrong)
		}
		if err != nil {
			refusedAs(t, err, http.StatusBadRequest, "malformed")
			return
		}
		if got.Get(name) != want.Get(name) {
			t.Fatalf("%q of %q is %q, net/url says %q", name, raw, got.Get(name), want.Get(name))
		}
		values := want[name]
		if len(values) > 1 {
			values = slices.DeleteFunc(slices.Clone(values), func(v string) bool { return v == "" })
		}
		if list := strings.Join(values, ","); got.list(name) != list {
			t.Fatalf("the list %q of %q is %q, net/url says %q", name, raw, got.list(name), list)
		}
		named := func(other string) bool { return other == name }
		if _, twice := got.twice(named); twice != (len(want[name]) > 1) {
			t.Fatalf("%q is twice in %q: %v", name, raw, twice)
		}
	})
}

// FuzzChoices reads exclude, subset and fallbacks: what is accepted names what was
// said and nothing else.
func FuzzChoices(f *testing.F) {
	f.Add("i3:connect,i4", "10.0.0.1:80,[fd00::8]:80", "2")
	f.Add(" i1:busy , ,:5xx", ",", "-1")
	f.Add("i1:maybe", "", "99999999999999999999")
	f.Add("a:b:c", "x", "")
	f.Fuzz(func(t *testing.T, exclude, subset, fallbacks string) {
		h := http.Header{hdrExclude: {exclude}, hdrSubset: {subset}}
		var q routeQuery
		err := q.parseChoices(parameters{parsed: url.Values{"fallbacks": {fallbacks}}}, h)
		if err != nil {
			refusedAs(t, err, http.StatusBadRequest, "malformed")
			return
		}
		if len(q.exclude) != len(q.reports) || q.fallbacks < 0 || q.fallbacks > handle.MaxNames-1 {
			t.Fatalf("read %+v", q)
		}
		for i, r := range q.reports {
			if r.instance != q.exclude[i] || !r.result.excludes() || !strings.Contains(exclude, r.instance) {
				t.Fatalf("%q is read as %+v", exclude, q)
			}
		}
		if (q.subset != nil) != (subset != "") {
			t.Fatalf("%q restricts: %v", subset, q.subset)
		}
		for _, s := range q.subset {
			if s == "" || s != strings.TrimSpace(s) || strings.Contains(s, ",") {
				t.Fatalf("%q is read as %q", subset, q.subset)
			}
		}
	})
}

// FuzzSessionHeader finds a session id in any spelling of a header's name, and in
// nothing else.
func FuzzSessionHeader(f *testing.F) {
	h, err := newSessionHeaders(defaultSessionHeaders)
	if err != nil {
		f.Fatal(err)
	}
	f.Add("X-Session-ID", "s")
	f.Add("x_session-id", "s")
	f.Add("X--Session-ID", "s")
	f.Add("Session-ID-", "")
	f.Fuzz(func(t *testing.T, name, value string) {
		header := http.Header{textproto.CanonicalMIMEHeaderKey(name): {value}}
		same := func(known string) bool {
			return strings.EqualFold(strings.ReplaceAll(known, "_", "-"), strings.ReplaceAll(name, "_", "-"))
		}
		want := ""
		if slices.ContainsFunc(defaultSessionHeaders, same) && isASCII(name) {
			want = value
		}
		if got := h.find(header); got != want {
			t.Fatalf("%q: found %q, want %q", name, got, want)
		}
	})
}

// isASCII leaves out letters that fold to ASCII ones, like the Kelvin sign.
func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII })
}

func TestSessionHeadersThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "-", "a-b-c-d-e-f-g"} {
		if _, err := newSessionHeaders([]string{name}); err == nil {
			t.Errorf("%q is accepted", name)
		}
	}
	h, err := newSessionHeaders([]string{"first", "a-b-c"})
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{"A_b_c": {"1"}, "A-B_c": {"2"}, "A-B-C": {"3"}}
	for range 20 {
		if got := h.find(header); got != "3" {
			t.Fatalf("found %q; the plain spelling goes first", got)
		}
	}
}
