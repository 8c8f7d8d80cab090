package redisstore

import (
	"fmt"

	"berth/statestore"
)

// refusal is the typed error that a function's answer stands for, nil for "ok".
func (a answer) refusal() error {
	switch a.text(0) {
	case "ok":
		return nil
	case "ended":
		return &statestore.EndedError{Reason: a.endReason(1), Epoch: a.uint(2)}
	case "behind":
		return &statestore.StoreBehindError{HaveVersion: a.uint(1), HaveTurns: a.uint(2), WantVersion: a.uint(3)}
	case "forgotten":
		return &statestore.OpForgottenError{Version: a.uint(1)}
	case "reused":
		return &statestore.OpReusedError{Version: a.uint(1)}
	case "not_owner":
		return &statestore.NotOwnerError{
			Why: statestore.NotOwnerWhy(a.text(1)), Owner: ownerOf(a.text(2)), Epoch: a.uint(3), Parked: a.flag(4),
		}
	case "stale":
		return &statestore.StaleHandleError{Owner: ownerOf(a.text(1)), Epoch: a.uint(2)}
	case "conflict":
		return &statestore.VersionConflictError{Version: a.uint(1), Turns: a.uint(2)}
	case "held":
		return &statestore.LeaseHeldError{Name: a.text(1), Holder: a.text(2), Token: a.uint(3)}
	case "full":
		return statestore.ErrFull
	case "none":
		return fmt.Errorf("session: %w", statestore.ErrNotFound)
	}
	return fmt.Errorf("answer %q of a function: %w", a.text(0), ErrDamaged)
}

func (a answer) endReason(i int) statestore.EndReason {
	if n := a.int(i); n > 0 && n < int64(len(endReasons)) {
		return endReasons[n]
	}
	return ""
}

// receipt reads what receipt in lua/session.lua makes.
func (a answer) receipt(d statestore.Durability) (r statestore.Receipt, err error) {
	f := &fields{s: a.text(1)}
	now := f.millis()
	r.Epoch, r.Turns, r.Bytes = f.uint(6), f.uint(6), f.uint(6)
	r.Durability, r.Affinity = d, max(0, f.millis().Sub(now))
	r.Version, r.Floor.Epoch = f.uint(6), f.uint(6)
	f.raw(r.Floor.Op[:])
	r.Floor.Version = r.Version
	r.Duplicate, r.Moved = f.uint(1) == 1, f.uint(1) == 1
	more := f.uint(1)
	r.Parked, r.Arrived = more&1 != 0, more&2 != 0
	r.Owner = f.owner()
	return r, f.end("receipt")
}
