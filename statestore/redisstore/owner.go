package redisstore

import (
	"context"

	"berth/statestore"
)

// Claim judges a take-over.
func (s *Store) Claim(ctx context.Context, c statestore.Claim) (statestore.Claimed, error) {
	if err := c.Key.Validate(); err != nil {
		return statestore.Claimed{}, err
	}
	if err := checkOwner(c.By); err != nil {
		return statestore.Claimed{}, err
	}
	on := s.newCall(c.Key)
	named := c.Handle != nil && c.Handle.Named
	args := on.args(packOwner(c.By), packHandle(c.Handle), bit(named), packFloor(c.Have), packOwner(c.Gone), bit(c.AcceptLost),
		millis(c.Affinity), millis(c.Retention), millis(c.Tombstone))
	a, d, err := s.change(ctx, c.Require, claimFn, on.keys, args)
	if err == nil {
		err = a.refusal()
	}
	if err != nil {
		return statestore.Claimed{}, err
	}
	out := statestore.Claimed{Changed: a.flag(2), Durability: d}
	out.Now = a.millis(1)
	if want := a.uint(8); want > 0 {
		out.Lost = &statestore.Loss{HaveVersion: a.uint(6), HaveTurns: a.uint(7), WantVersion: want}
	}
	if a.text(3) == "" {
		out.Tombstone = statestore.Tombstone{Epoch: a.uint(4), Reason: a.endReason(5)}
		return out, nil
	}
	r, _, err := decodeRecord(a.text(3))
	if err != nil {
		return statestore.Claimed{}, err
	}
	out.Record, out.Exists = *r, true
	return out, met(c.Require, statestore.Receipt{
		Epoch: r.Epoch, Version: r.Version, Turns: r.Turns, Bytes: r.Bytes, Owner: r.Owner, Floor: r.Floor(),
		Durability: d, Affinity: out.AffinityLeft(),
	})
}

// Move commits a planned change of owner.
func (s *Store) Move(ctx context.Context, m statestore.Move) (statestore.Moved, error) {
	if err := m.Key.Validate(); err != nil {
		return statestore.Moved{}, err
	}
	c := s.newCall(m.Key)
	args := c.args(packOwner(m.From), m.Epoch, packOwner(m.To), m.Job.ID, m.Job.Token, m.Over)
	a, d, err := s.change(ctx, m.Require, moveFn, c.keys, args)
	if err != nil {
		return statestore.Moved{}, err
	}
	if a.text(0) == "fenced_target" {
		return statestore.Moved{}, &statestore.FencedTargetError{Target: m.To}
	}
	if err := a.refusal(); err != nil {
		return statestore.Moved{}, err
	}
	receipt, err := a.receipt(d)
	if err != nil {
		return statestore.Moved{}, err
	}
	return statestore.Moved{Epoch: receipt.Epoch, Version: receipt.Version, Durability: d}, met(m.Require, receipt)
}

// Reserve notes or drops a job's plan for a session.
func (s *Store) Reserve(ctx context.Context, v statestore.Reserve) error {
	if err := v.Key.Validate(); err != nil {
		return err
	}
	var hold any = ""
	if v.For > 0 {
		hold = millis(v.For)
	}
	c := s.newCall(v.Key)
	args := c.args(v.Epoch, packOwner(v.Target), v.Job.ID, v.Job.Token, hold, v.Over)
	a, _, err := s.change(ctx, statestore.Requirement{}, reserveFn, c.keys, args)
	if err != nil {
		return err
	}
	if a.text(0) == "fenced_target" {
		return &statestore.FencedTargetError{Target: v.Target}
	}
	return a.refusal()
}

// Finish releases a session.
func (s *Store) Finish(ctx context.Context, f statestore.Finish) (statestore.Receipt, error) {
	if err := f.Key.Validate(); err != nil {
		return statestore.Receipt{}, err
	}
	c := s.newCall(f.Key)
	args := c.args(packOwner(f.By), packHandle(&f.Handle), millis(f.Tombstone))
	a, d, err := s.change(ctx, f.Require, finishFn, c.keys, args)
	if err == nil {
		err = a.refusal()
	}
	if err != nil {
		return statestore.Receipt{}, err
	}
	receipt, err := a.receipt(d)
	if err != nil {
		return statestore.Receipt{}, err
	}
	return receipt, met(f.Require, receipt)
}

// Delete ends a session. What its placements were is read before: an answer that
// was lost cannot be given again once they are gone.
func (s *Store) Delete(ctx context.Context, del statestore.Delete) (statestore.Ended, error) {
	if err := del.Key.Validate(); err != nil {
		return statestore.Ended{}, err
	}
	c := s.newCall(del.Key)
	var before map[string]string
	err := s.ask(ctx, func() (err error) {
		before, err = s.client.HGetAll(ctx, c.keys[keyPlaced]).Result()
		return err
	})
	if err != nil {
		return statestore.Ended{}, err
	}
	a, d, err := s.change(ctx, del.Require, deleteFn, c.keys, c.args(packHandle(del.Handle), millis(del.Tombstone)))
	if err == nil {
		err = a.refusal()
	}
	if err != nil {
		return statestore.Ended{}, err
	}
	out := statestore.Ended{Existed: a.flag(2), Epoch: a.uint(3), Durability: d}
	placed := before
	if done := a.flag(4); !done {
		placed = pairs(a.list(5))
	}
	if out.Placements, err = decodePlacements(placed, a.millis(1)); err != nil {
		return statestore.Ended{}, err
	}
	return out, met(del.Require, statestore.Receipt{Epoch: out.Epoch, Durability: d})
}

// Bind gives a session without stored turns to the instance that served it.
func (s *Store) Bind(ctx context.Context, b statestore.Bind) (bool, error) {
	if err := b.Key.Validate(); err != nil {
		return false, err
	}
	if err := checkOwner(b.Owner); err != nil {
		return false, err
	}
	c := s.newCall(b.Key)
	args := c.args(packOwner(b.Owner), packHandle(&b.Handle), b.Handle.AffinityKey[:], packNames(b.Key),
		millis(b.Affinity), millis(b.Tombstone))
	a, _, err := s.change(ctx, statestore.Requirement{}, bindFn, c.keys, args)
	if err == nil {
		err = a.refusal()
	}
	return err == nil && a.flag(2), err
}

// pairs makes a map of names and values in turn.
func pairs(list []any) map[string]string {
	m := make(map[string]string, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		name, _ := list[i].(string)
		value, _ := list[i+1].(string)
		m[name] = value
	}
	return m
}
