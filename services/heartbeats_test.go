package services

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"berth/statestore"
)

// counting is a store that counts heartbeats, and takes its time.
type counting struct {
	mu     sync.Mutex
	takes  time.Duration
	err    error
	calls  int
	inside int
	beats  map[string]uint64
}

func (c *counting) Heartbeats(ctx context.Context, beats []statestore.Beat) ([]statestore.BeatAnswer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	if c.inside++; c.inside > 1 {
		return nil, errors.New("two calls at a time")
	}
	c.mu.Unlock()
	select {
	case <-time.After(c.takes):
	case <-ctx.Done():
	}
	c.mu.Lock()
	c.inside--
	if c.err != nil || ctx.Err() != nil {
		return nil, errors.Join(c.err, ctx.Err())
	}
	answers := make([]statestore.BeatAnswer, len(beats))
	for i, b := range beats {
		c.beats[b.By.Instance]++
		answers[i].Instance = statestore.Instance{InstanceSpec: statestore.InstanceSpec{ID: b.By.Instance}, LastBeat: b.Heartbeat, Beats: c.beats[b.By.Instance]}
		if b.By.Instance == "ghost" {
			answers[i].Err = statestore.ErrUnknownInstance
		}
	}
	return answers, nil
}

func beat(id string, running int) statestore.Beat {
	return statestore.Beat{By: statestore.Owner{Instance: id}, Heartbeat: statestore.Heartbeat{Running: running}}
}

func TestHeartbeatsShareStoreCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &counting{beats: map[string]uint64{}}
		c := &beatCounter{store: store}
		var all sync.WaitGroup
		start := time.Now()
		for i := range 1000 {
			time.Sleep(time.Millisecond)
			all.Go(func() {
				sent := time.Now()
				id := fmt.Sprintf("i%d", i)
				in, err := c.count(t.Context(), beat(id, i))
				if err != nil || in.ID != id || in.LastBeat.Running != i {
					t.Errorf("%s: %+v, %v", id, in, err)
				}
				if waited := time.Since(sent); waited > beatEvery {
					t.Errorf("%s waited %v", id, waited)
				}
			})
		}
		all.Wait()
		if most := int(time.Since(start)/beatEvery) + 1; store.calls > most || store.calls < most/2 {
			t.Errorf("%d store calls, want about %d", store.calls, most)
		}
	})
}

func TestALoneHeartbeatWaitsForNobodyLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &beatCounter{store: &counting{beats: map[string]uint64{}}}
		for range 3 {
			sent := time.Now()
			if _, err := c.count(t.Context(), beat("i1", 0)); err != nil || time.Since(sent) > beatGather {
				t.Errorf("answered after %v: %v", time.Since(sent), err)
			}
			time.Sleep(time.Second)
		}
		var refused error
		if _, refused = c.count(t.Context(), beat("ghost", 0)); !errors.Is(refused, statestore.ErrUnknownInstance) {
			t.Errorf("an unknown one: %v", refused)
		}
	})
}

// A bunch is counted at once, whenever the bunch before it was.
func TestABunchOfHeartbeatsIsOneStoreCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &counting{beats: map[string]uint64{}}
		c := &beatCounter{store: store}
		const bunches = 10
		start := time.Now()
		for n := range bunches {
			time.Sleep(time.Until(start.Add(time.Duration(n) * beatSlot)))
			sent := time.Now()
			var all sync.WaitGroup
			for i := range 100 {
				all.Go(func() {
					time.Sleep(beatGather * time.Duration(i) / 200)
					if _, err := c.count(t.Context(), beat(fmt.Sprintf("i%d", i), 1)); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if waited := time.Since(sent); waited > beatGather {
				t.Errorf("bunch %d waited %v", n, waited)
			}
			if n == 2 { // one comes at another time
				if _, err := c.count(t.Context(), beat("late", 1)); err != nil {
					t.Error(err)
				}
			}
		}
		if store.calls != bunches+1 {
			t.Errorf("%d calls", store.calls)
		}
	})
}

// A store that is slow or away is asked once at a time, and holds up nobody who
// gives up, nor those who come later.
func TestHeartbeatsOfASlowStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &counting{beats: map[string]uint64{}, takes: time.Hour}
		c := &beatCounter{store: store}
		hasty, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.count(hasty, beat("i1", 0)); !errors.Is(err, statestore.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the hasty: %v", err)
		}
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if _, err := c.count(t.Context(), beat("i1", 0)); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the patient: %v", err)
				}
			})
		}
		all.Wait()
		if store.calls != 2 {
			t.Errorf("%d calls", store.calls)
		}
		store.mu.Lock()
		store.takes = 0
		store.mu.Unlock()
		time.Sleep(time.Second)
		if in, err := c.count(t.Context(), beat("i1", 3)); err != nil || in.Beats != 1 {
			t.Errorf("when it is back: %+v, %v", in, err)
		}
	})
}
