package boltstore

import (
	"context"

	"berth/statestore"
	"berth/statestore/internal/rules"
)

// Claim judges a take-over.
func (s *Store) Claim(ctx context.Context, c statestore.Claim) (statestore.Claimed, error) {
	if err := checkOwner(c.By); err != nil {
		return statestore.Claimed{}, err
	}
	var out statestore.Claimed
	var receipt statestore.Receipt
	err := s.judge(ctx, c.Key, func(p *place) (err error) {
		out = statestore.Claimed{Durability: reached}
		out.Changed, out.Lost, err = p.Claim(c, p.w.fenced(c.Key.Pool, c.By), p.w.now)
		if out.Changed {
			p.tombstoneFor = c.Lifetimes.Tombstone
		}
		out.View, receipt = p.w.viewOf(p.slot), p.receipt()
		return err
	})
	if err != nil {
		return statestore.Claimed{}, err
	}
	if !out.Exists {
		return out, nil
	}
	return out, met(c.Require, receipt)
}

// checkOwner wants a whole name, of characters that may stand in a key.
func checkOwner(o statestore.Owner) error {
	if err := statestore.ValidateInstanceID(o.Instance); err != nil {
		return err
	}
	return statestore.ValidateName("incarnation", o.Incarnation)
}

// Move commits a planned change of owner.
func (s *Store) Move(ctx context.Context, m statestore.Move) (statestore.Moved, error) {
	var out statestore.Moved
	var receipt statestore.Receipt
	err := s.judge(ctx, m.Key, func(p *place) error {
		if err := p.Move(m, p.w.jobFences(m.Key.Pool, m.To, m.Job), p.w.now); err != nil {
			return err
		}
		receipt = p.receipt()
		out = statestore.Moved{Epoch: receipt.Epoch, Version: receipt.Version, Durability: reached}
		return nil
	})
	if err != nil {
		return statestore.Moved{}, err
	}
	return out, met(m.Require, receipt)
}

// Reserve notes or drops a job's plan for a session.
func (s *Store) Reserve(ctx context.Context, v statestore.Reserve) error {
	return s.judge(ctx, v.Key, func(p *place) error {
		return p.Reserve(v, p.w.jobFences(v.Key.Pool, v.Target, v.Job), p.w.now)
	})
}

// jobFences is what the fences say about a write of a job.
func (w *writer) jobFences(pool string, target statestore.Owner, job statestore.JobRef) rules.Fences {
	return rules.Fences{TargetFenced: w.fenced(pool, target), Token: w.jobToken(job.ID)}
}

// Finish releases a session.
func (s *Store) Finish(ctx context.Context, f statestore.Finish) (statestore.Receipt, error) {
	var receipt statestore.Receipt
	err := s.judge(ctx, f.Key, func(p *place) error {
		if err := p.Finish(f, p.w.now); err != nil {
			return err
		}
		p.tombstoneFor = f.Lifetimes.Tombstone
		receipt = p.receipt()
		return nil
	})
	if err != nil {
		return statestore.Receipt{}, err
	}
	return receipt, met(f.Require, receipt)
}

// Delete ends a session.
func (s *Store) Delete(ctx context.Context, d statestore.Delete) (statestore.Ended, error) {
	var out statestore.Ended
	err := s.judge(ctx, d.Key, func(p *place) (err error) {
		out = statestore.Ended{Existed: p.Record != nil, Durability: reached}
		if out.Placements, err = p.w.placements(p.digest); err != nil {
			return err
		}
		if err := p.Delete(d, p.w.now); err != nil {
			return err
		}
		if out.Existed {
			p.ended(d.Lifetimes.Tombstone)
		}
		out.Epoch = p.Tombstone.Epoch
		return nil
	})
	if err != nil {
		return statestore.Ended{}, err
	}
	return out, met(d.Require, statestore.Receipt{Epoch: out.Epoch, Durability: reached})
}

// Bind gives a session without stored turns to the instance that served it.
func (s *Store) Bind(ctx context.Context, b statestore.Bind) (bool, error) {
	if err := checkOwner(b.Owner); err != nil {
		return false, err
	}
	var bound bool
	err := s.judge(ctx, b.Key, func(p *place) error {
		bound = p.Bind(b, p.w.fenced(b.Key.Pool, b.Owner), p.w.now)
		if bound {
			p.tombstoneFor = b.Lifetimes.Tombstone
		}
		return nil
	})
	return bound && err == nil, err
}
