package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"berth/statestore"
)

// Who stops a command that follows a job is told that the job goes on, and how to
// follow it again or end it.
func TestAJobGoesOnWithoutItsCommand(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"drain i1", "jobs watch j1"} {
		ctx, stop := context.WithCancelCause(t.Context())
		s := &scripted{create: 202, body: jobIn(statestore.JobRunning, ""), looks: []string{jobIn(statestore.JobRunning, "")}}
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("wait") {
				stop(errors.New("interrupt signal received"))
				<-r.Context().Done()
				return
			}
			s.ServeHTTP(w, r)
		}))
		out, notes := new(output), new(output)
		err := run(ctx, append(strings.Fields(args), "--berth", web.URL), out, notes)
		web.Close()
		const want = "interrupt signal received; drain j1 goes on without this command: berth jobs watch j1 follows it again, berth jobs cancel j1 ends it"
		var code exitCode
		if err == nil || err.Error() != want || errors.As(err, &code) || out.String() != "" {
			t.Errorf("berth %s prints %q and ends with %v", args, out, err)
		}
	}
}
