package redisstore

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"berth/integration/redistest"
	"berth/statestore"
)

// Appends that come together are one call of Redis, and each has its own end: it is
// stored, refused, answered as before, or told that its session is damaged.
func TestAppendsThatComeTogether(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, client := open(t, server.URL), server.Client(t)
	const sessions = 64
	writers := make([]*writer, sessions)
	for i := range writers {
		writers[i] = newWriter(s, fmt.Sprint(i))
		writers[i].append(t, []byte("first"))
	}
	broken := s.keys.session(writers[13].key.Digest())[keyRecord]
	if err := client.Set(t.Context(), broken, "\x01 no record", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for round := range 20 {
		var all sync.WaitGroup
		for i, w := range writers {
			all.Go(func() {
				req := statestore.Append{
					Key: w.key, By: w.by, Handle: w.handle, Op: fmt.Sprintf("round-%d", round), Lifetimes: lives,
					Turns: []statestore.Turn{{Type: statestore.TurnBytes, Value: noise(1 + 100*i)}},
				}
				switch i % 4 {
				case 1: // it says again what it said before
					req.Op, req.Turns[0].Value = "op-1", []byte("first")
				case 2: // a stranger
					req.By.Instance, req.Op = "i2", "op-of-a-stranger"
				}
				r, err := s.Append(t.Context(), req)
				var refused *statestore.NotOwnerError
				switch {
				case i == 13:
					if err == nil || !strings.Contains(err.Error(), "user_function") {
						t.Errorf("a damaged session: %v", err)
					}
				case i%4 == 1:
					if err != nil || !r.Duplicate || r.Version != 1 {
						t.Errorf("session %d, repeated: %+v, %v", i, r, err)
					}
				case i%4 == 2:
					if !errors.As(err, &refused) || !refused.Parked {
						t.Errorf("session %d, a stranger: %v", i, err)
					}
				case err != nil || r.Version != uint64(round)+2:
					t.Errorf("session %d: version %d in round %d, %v", i, r.Version, round, err)
				default:
					w.handle.Floor = r.Floor
				}
			})
		}
		all.Wait()
	}
	for i, w := range writers {
		if i%4 == 0 || i%4 == 3 {
			if got := allTexts(t, s, w.key); len(got) != 21 || len(got[20]) != 1+100*i {
				t.Errorf("session %d holds %d turns", i, len(got))
			}
		}
	}
	stats, err := client.InfoMap(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	calls, _, _ := strings.Cut(stats["Commandstats"]["cmdstat_fcall"], ",")
	var n int
	if _, err := fmt.Sscanf(calls, "calls=%d", &n); err != nil || n == 0 || n > sessions*20/2 {
		t.Errorf("%d calls of functions (%v) for %d appends, want half as many at most", n, err, sessions*20)
	}
}
