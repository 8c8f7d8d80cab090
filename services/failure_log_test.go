package services_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"berth/statestore"
)

// A store that is away fails every call alike: the log tells some of them, and a
// failure of another kind is told all the same.
func TestCallsThatFailAlikeDoNotFloodTheLog(t *testing.T) {
	t.Parallel()
	b, store := setupFaulty(t)
	w := b.worker("i1")
	h := b.route("s").want(200).str("handle")
	fail := func(with error) {
		store.fail(func(_ context.Context, call string) error {
			if call == "append" {
				return with
			}
			return nil
		})
	}
	fail(statestore.ErrUnavailable)
	const calls = 60
	for i := range calls {
		w.append("s", fmt.Sprint("op-", i), h, `1`).want(503)
	}
	// Five at once, and one for each second that it took.
	if n := strings.Count(b.logs.String(), "code=store_unavailable"); n < 1 || n > calls/2 {
		t.Errorf("%d lines about %d calls", n, calls)
	}
	fail(io.ErrUnexpectedEOF)
	for range 10 {
		w.append("s", "op", h, `1`).want(500)
	}
	if n := strings.Count(b.logs.String(), "code=internal"); n != 10 {
		t.Errorf("%d lines about 10 internal failures", n)
	}
}

func TestAFleetThatCannotBeReadDoesNotFloodTheLog(t *testing.T) {
	t.Parallel()
	b, store := setupFaulty(t)
	store.fail(func(ctx context.Context, call string) error {
		if call == "fleet" {
			return away(ctx, call)
		}
		return nil
	})
	const calls = 60
	for range calls {
		b.call("GET", "/v1/instances", "").want(200)
	}
	if n := strings.Count(b.logs.String(), "fleet not read"); n < 1 || n > calls/2 {
		t.Errorf("%d lines about %d calls", n, calls)
	}
}
