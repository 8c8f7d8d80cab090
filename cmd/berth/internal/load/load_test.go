package load_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"berth/cmd/berth/internal/load"
)

func TestConnReadsAnswersOfAnyStatusAndSize(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100_000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/missing" {
			w.Header().Set("Content-Length", "2")
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, "no")
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(long)))
		fmt.Fprint(w, long)
	}))
	t.Cleanup(server.Close)
	address := strings.TrimPrefix(server.URL, "http://")
	c, err := load.Dial(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	for path, want := range map[string]struct {
		status int
		body   string
	}{"/": {200, long}, "/missing": {404, "no"}} {
		for range 3 {
			status, body, err := c.Do([]byte("GET " + path + " HTTP/1.1\r\nHost: " + address + "\r\n\r\n"))
			if err != nil || status != want.status || string(body) != want.body {
				t.Fatalf("%s: status %d, %d bytes, %v", path, status, len(body), err)
			}
		}
	}
}

// busy takes a fixed time of the bubble for an exchange.
type busy struct{ takes time.Duration }

func (b busy) Next() error {
	time.Sleep(b.takes)
	return nil
}
func (busy) Close() error { return nil }

func TestCompareReportsTheRatioOfTheTwo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plan := load.Plan{Rounds: 5, Round: 20 * time.Millisecond}
		r, err := load.Compare(t.Context(), plan,
			load.Target{Clients: []load.Client{busy{400 * time.Microsecond}}}, load.Target{Clients: []load.Client{busy{100 * time.Microsecond}}})
		if err != nil {
			t.Fatal(err)
		}
		const slow, fast = 400 * time.Microsecond, 100 * time.Microsecond
		want := load.Result{
			Ratio: 0.25, RatioMin: 0.25, RatioMax: 0.25,
			First: load.Figures{PerSecond: 2500, P50: slow, P99: slow}, Second: load.Figures{PerSecond: 10_000, P50: fast, P99: fast},
		}
		if r != want {
			t.Fatalf("a quarter of the speed is reported as %+v", r)
		}
	})
}

// A round that is over before a client begins counts the one exchange that it makes.
func TestCompareMakesAnExchangeInTheShortestRound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		both := []load.Client{busy{time.Second}, busy{time.Second}}
		r, err := load.Compare(t.Context(), load.Plan{Rounds: 1}, load.Target{Clients: both}, load.Target{Clients: both})
		if err != nil || r.First.PerSecond != 2 || r.Ratio != 1 {
			t.Fatalf("got %+v, %v", r, err)
		}
	})
}

type failing struct{}

var errBroken = errors.New("broken")

func (failing) Next() error  { return errBroken }
func (failing) Close() error { return nil }

func TestCompareEndsWithTheErrorOfAClient(t *testing.T) {
	t.Parallel()
	plan := load.Plan{Rounds: 1, Round: time.Minute} // ends with the error
	_, err := load.Compare(context.Background(), plan, load.Target{Name: "a", Clients: []load.Client{failing{}}}, load.Target{})
	if !errors.Is(err, errBroken) {
		t.Fatalf("got %v", err)
	}
}
