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

// A job that was there before is not the one that was asked for.
func TestAJobThatWasThereBefore(t *testing.T) {
	t.Parallel()
	older := strings.Replace(jobIn(statestore.JobRunning, ""), `"kind"`, `"mode":"migrate","kind"`, 1)
	const before = "berth: drain j1 was there before, and is not changed by what is asked for by now\n"
	const other = "berth: it was asked for with --mode migrate, not detach: to have that, cancel it (berth jobs cancel j1) and drain again\n"
	for _, tt := range []struct {
		args   string
		create int
		job    string
		says   string
	}{
		{"--mode detach", http.StatusAccepted, older, ""},
		{"--mode detach", http.StatusOK, older, before + other},
		{"--mode migrate", http.StatusOK, older, before},
		{"--mode detach", http.StatusOK, jobIn(statestore.JobRunning, ""), before}, // of a Berth that does not tell
	} {
		s := &scripted{create: tt.create, body: tt.job}
		out, notes, err := runAgainst(t, s, append([]string{"drain", "i1", "--no-wait"}, strings.Fields(tt.args)...)...)
		if err != nil || notes != tt.says || out == "" {
			t.Errorf("status %d, %s: prints %q and notes %q, want %q: %v", tt.create, tt.args, out, notes, tt.says, err)
		}
	}
}
