package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// taskBerth registers, beats and hands out tasks; it notes the answers.
type taskBerth struct {
	mu      sync.Mutex
	polls   [][]string // tasks of each poll, JSON; then polls wait
	beats   [][]string // tasks of each heartbeat
	asked   []string   // queries
	answers []string   // "id: body"
	fail    int        // answers that are not taken at first
}

func (b *taskBerth) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	b.mu.Lock()
	next := func(list *[][]string) string {
		if len(*list) == 0 {
			return ""
		}
		tasks := strings.Join((*list)[0], ",")
		*list = (*list)[1:]
		return tasks
	}
	answer := reply(200, registered)
	rest := strings.TrimPrefix(r.URL.Path, "/v1/instances/i1")
	switch {
	case rest == "/heartbeat":
		answer = reply(200, `{"state":"ready","next_ms":2000,"lease_ms":15000,"tasks":[`+next(&b.beats)+`]}`)
	case rest == "/tasks" && len(b.polls) == 0:
		answer = func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-time.After(pollWait):
			}
			reply(200, `{"tasks":[]}`)(w, r)
		}
		b.asked = append(b.asked, r.URL.RawQuery)
	case rest == "/tasks":
		answer = reply(200, `{"tasks":[`+next(&b.polls)+`]}`)
		b.asked = append(b.asked, r.URL.RawQuery)
	case strings.HasPrefix(rest, "/tasks/"):
		b.answers = append(b.answers, strings.TrimPrefix(rest, "/tasks/")+": "+strings.TrimSpace(string(body)))
		if answer = reply(204, ""); b.fail > 0 {
			b.fail--
			answer = tear
		}
	}
	b.mu.Unlock()
	answer(w, r)
}

func taskJSON(id, kind string) string {
	return fmt.Sprintf(`{"id":%q,"kind":%q,"session":"s1","tenant":"t","pool":"p","handle":"h7.3","deadline_ms":30000,"lease_ms":60000}`, id, kind)
}

// Tasks of polls and of heartbeats are done by the handler of their kind, and
// answered once, however often they are handed out.
func TestTasksAreDoneAndAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &taskBerth{
			polls: [][]string{
				{taskJSON("a", "offload"), taskJSON("b", "prewarm")},
				{taskJSON("a", "offload"), taskJSON("c", "release"), taskJSON("d", "forget"), taskJSON("e", "dance")},
			},
			beats: [][]string{{taskJSON("f", "release")}}, fail: 1,
		}
		var mu sync.Mutex
		var seen []Task
		note := func(t Task) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, t)
		}
		err := run(t, fresh(t, b), RunConfig{Tasks: TaskHandlers{
			Offload: func(_ context.Context, t Task) (TaskAnswer, error) {
				note(t)
				time.Sleep(5 * time.Second) // handed out again meanwhile
				return TaskAnswer{KV: []Placement{{Tier: "host", Tokens: 3, Version: 3}}}, nil
			},
			Prewarm: func(_ context.Context, t Task) (TaskAnswer, error) {
				note(t)
				return TaskAnswer{Refused: true, Reason: "no room"}, nil
			},
			Release: func(_ context.Context, t Task) (TaskAnswer, error) {
				note(t)
				if t.ID == "f" {
					return TaskAnswer{}, errors.New("engine away")
				}
				return TaskAnswer{Version: 9}, nil
			},
		}}, 40*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		const head = `{"incarnation":"boot-9","result":`
		want := []string{
			`a: ` + head + `"done","kv":[{"tier":"host","tokens":3,"version":3}]}`,
			`b: ` + head + `"refused","reason":"no room"}`,
			`c: ` + head + `"done","version":9}`,
			`d: ` + head + `"refused","reason":"this worker does no such tasks"}`,
			`e: ` + head + `"refused","reason":"this worker does no such tasks"}`,
			`f: ` + head + `"failed","reason":"engine away"}`,
		}
		slices.Sort(b.answers)
		if got := slices.Compact(slices.Clone(b.answers)); !slices.Equal(got, want) || len(b.answers) != len(want)+1 {
			t.Errorf("answered\n%s", strings.Join(b.answers, "\n"))
		}
		if len(seen) != 4 || seen[0].Session != (SessionKey{ID: "s1", Tenant: "t", Pool: "p"}) || seen[0].Handle != "h7.3" || seen[0].Left != 30*time.Second {
			t.Errorf("handlers saw %+v", seen)
		}
		if !slices.Contains(b.asked, "max=64&wait=25s") {
			t.Errorf("asked with %q", b.asked)
		}
	})
}

// A handler has until the deadline of its task.
func TestTaskEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &taskBerth{polls: [][]string{{taskJSON("a", "prewarm")}}}
		err := run(t, fresh(t, b), RunConfig{Tasks: TaskHandlers{
			Prewarm: func(ctx context.Context, _ Task) (TaskAnswer, error) {
				<-ctx.Done()
				return TaskAnswer{}, ctx.Err()
			},
		}}, 40*time.Second)
		if err != nil || len(b.answers) != 1 || !strings.Contains(b.answers[0], `"failed"`) {
			t.Errorf("answers %q, error %v", b.answers, err)
		}
	})
}

// There are never more tasks under way than there are places, and no more are
// asked for.
func TestTasksAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const atOnce = 8
		b := &taskBerth{}
		for i := range 3 {
			var batch []string
			for j := range atOnce {
				batch = append(batch, taskJSON(fmt.Sprint(i, "-", j), "prewarm"))
			}
			b.polls = append(b.polls, batch)
		}
		var mu sync.Mutex
		now, most := 0, 0
		err := run(t, fresh(t, b), RunConfig{TasksAtOnce: atOnce, Tasks: TaskHandlers{
			Prewarm: func(context.Context, Task) (TaskAnswer, error) {
				mu.Lock()
				now++
				most = max(most, now)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				now--
				mu.Unlock()
				return TaskAnswer{}, nil
			},
		}}, 20*time.Second)
		if err != nil || most != atOnce || len(b.answers) != 3*atOnce {
			t.Errorf("%d at once, %d answers, error %v", most, len(b.answers), err)
		}
		if !slices.Contains(b.asked, "max=8&wait=25s") {
			t.Errorf("asked with %q", b.asked)
		}
	})
}

// A worker without handlers is passive: it does not poll, and refuses nothing that
// a heartbeat names, which would only have it asked elsewhere.
func TestPassiveWorkerDoesNotPoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &taskBerth{beats: [][]string{{taskJSON("a", "release")}}}
		if err := run(t, fresh(t, b), RunConfig{}, 20*time.Second); err != nil || len(b.asked) != 0 || len(b.answers) != 0 {
			t.Errorf("polled with %q, answered %q, error %v", b.asked, b.answers, err)
		}
	})
}

// Notices that a session has moved reach no handler that would do work for it, and
// the handler for moves where there is one. They are answered where they would be
// handed out again otherwise.
func TestNoticesOfMoves(t *testing.T) {
	t.Parallel()
	leased := strings.TrimSuffix(taskJSON("n", "prewarm"), "}") + `,"moved":{"instance":"i1","address":"10.0.0.1:80","epoch":9}}`
	once := strings.Replace(leased, `"lease_ms":60000`, `"lease_ms":0`, 1)
	for name, c := range map[string]struct {
		berth   *taskBerth
		listens bool
		answers int
	}{
		"told":                 {&taskBerth{polls: [][]string{{once}}}, true, 0},
		"passed over":          {&taskBerth{polls: [][]string{{once}}}, false, 0},
		"told for a lease":     {&taskBerth{polls: [][]string{{leased}}}, true, 1},
		"told by a heartbeat":  {&taskBerth{beats: [][]string{{once}}}, true, 1},
		"passed over, a lease": {&taskBerth{polls: [][]string{{leased}}}, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var told []Task
				handlers := TaskHandlers{Prewarm: func(context.Context, Task) (TaskAnswer, error) {
					t.Error("the session is prewarmed again")
					return TaskAnswer{}, nil
				}}
				if c.listens {
					handlers.Moved = func(_ context.Context, t Task) (TaskAnswer, error) {
						told = append(told, t)
						return TaskAnswer{}, nil
					}
				}
				err := run(t, fresh(t, c.berth), RunConfig{Tasks: handlers}, 20*time.Second)
				if got := c.berth.answers; err != nil || len(got) != c.answers || len(got) > 0 && !strings.Contains(got[0], `"done"`) {
					t.Errorf("answers %q, error %v", got, err)
				}
				if c.listens != (len(told) == 1) || c.listens && *told[0].Moved != (Owner{Instance: "i1", Address: "10.0.0.1:80", Epoch: 9}) {
					t.Errorf("told %+v", told)
				}
			})
		})
	}
}
