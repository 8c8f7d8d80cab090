package boltstore

import (
	"context"
	"fmt"
	"time"

	"berth/statestore"
)

// Fence changes the fences. The file is one partition, so that one transaction
// is all it takes.
func (s *Store) Fence(ctx context.Context, f statestore.Fence) error {
	for _, o := range append(f.Add[:len(f.Add):len(f.Add)], f.Drop...) {
		if err := checkOwner(o); err != nil {
			return err
		}
	}
	return s.write(ctx, func(w *writer) error {
		for _, o := range f.Add {
			w.put(bFences, fenceKey(f.Pool, o), []byte{})
		}
		for _, o := range f.Drop {
			w.delete(bFences, fenceKey(f.Pool, o))
		}
		if f.Job.ID != "" && f.Job.Token > w.jobToken(f.Job.ID) {
			w.put(bJobFences, []byte(f.Job.ID), be64(f.Job.Token))
		}
		return nil
	})
}

func fenceKey(pool string, o statestore.Owner) []byte {
	return joined(pool, o.Instance, o.Incarnation)
}

// fenced reports whether nobody may be bound to the owner.
func (r *reader) fenced(pool string, o statestore.Owner) bool {
	return !o.IsZero() && r.get(bFences, fenceKey(pool, o)) != nil
}

// jobToken is the highest token of the job that a fence named.
func (r *reader) jobToken(job string) uint64 {
	if job == "" {
		return 0
	}
	return fromBE64(r.get(bJobFences, []byte(job)))
}

// lease is the stored form of a lease. It stays after its end: the next token
// must be higher.
type lease struct {
	Holder string            `json:"holder"`
	Token  uint64            `json:"token"`
	Until  statestore.Millis `json:"until"`
}

// AcquireLease takes or renews a lease.
func (s *Store) AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (statestore.Lease, error) {
	if err := checkID("lease", name); err != nil {
		return statestore.Lease{}, err
	}
	if holder == "" {
		return statestore.Lease{}, fmt.Errorf("a lease must have a holder: %w", statestore.ErrInvalid)
	}
	var l lease
	err := s.write(ctx, func(w *writer) error {
		l = lease{}
		if _, err := w.getJSON(bLeases, []byte(name), &l); err != nil {
			return err
		}
		running := w.now < l.Until
		if running && l.Holder != holder {
			return &statestore.LeaseHeldError{Name: name, Holder: l.Holder, Token: l.Token}
		}
		if !running {
			l.Token++
		}
		l.Holder, l.Until = holder, w.now.Add(ttl)
		w.putJSON(bLeases, []byte(name), &l)
		return nil
	})
	if err != nil {
		return statestore.Lease{}, err
	}
	return statestore.Lease{Name: name, Holder: holder, Token: l.Token}, nil
}

// ReleaseLease ends a lease, if it is still this holding.
func (s *Store) ReleaseLease(ctx context.Context, held statestore.Lease) error {
	return s.write(ctx, func(w *writer) error {
		var l lease
		if _, err := w.getJSON(bLeases, []byte(held.Name), &l); err != nil {
			return err
		}
		if l.Holder != held.Holder || l.Token != held.Token || l.Until == 0 {
			return nil
		}
		l.Until = 0
		w.putJSON(bLeases, []byte(held.Name), &l)
		return nil
	})
}
