package services

import (
	"testing"
	"testing/synctest"
	"time"

	"berth/statestore"
)

// A heartbeat looks for tasks only when there may be some.
func TestWhenAHeartbeatLooksForTasks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newTaskLooks(time.Minute)
		boot, next := statestore.Owner{Instance: "i1", Incarnation: "x"}, statestore.Owner{Instance: "i1", Incarnation: "y"}
		looks := func(what string, by statestore.Owner, want bool) *taskLook {
			t.Helper()
			look := l.begin(by)
			if (look != nil) != want {
				t.Fatalf("%s: looks %v, want %v", what, look != nil, want)
			}
			return look
		}
		look := looks("the first time", boot, true)
		l.nothing(look)
		looks("after it found nothing", boot, false)
		l.event("i2")
		looks("after another's event", boot, false)
		l.event("i1")
		looks("after an event", boot, true)
		look = looks("after it found some", boot, true)
		l.event("i1")
		l.nothing(look)
		look = looks("after an event that came while it looked", boot, true)
		l.nothing(look)
		look = looks("another boot", next, true)
		l.gap()
		l.nothing(look)
		look = looks("after events were lost while it looked", next, true)
		l.nothing(look)
		l.gap()
		l.nothing(looks("after events were lost", next, true))
		time.Sleep(time.Minute - 1)
		looks("within the lease of a task", next, false)
		time.Sleep(time.Nanosecond)
		looks("after the lease of a task", next, true)
	})
}
