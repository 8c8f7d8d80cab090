package rules

import (
	"errors"

	"berth/statestore"
)

// Claim judges a claim; fenced says that the claimant is. On a slot without a
// record it changes nothing and there is nothing to claim.
func (s *Slot) Claim(c statestore.Claim, fenced bool, now statestore.Millis) (changed bool, lost *statestore.Loss, err error) {
	if err := s.checkEnded(c.Handle, c.Have); err != nil {
		lost, err := accepted(c, err)
		return false, lost, err
	}
	if s.Record == nil {
		return false, nil, nil
	}
	r := s.Record
	lost, err = accepted(c, claimLineage(r, c))
	if err != nil {
		return false, nil, err
	}
	if c.By == r.Owner && lost == nil {
		return false, nil, nil
	}
	if fenced && c.By != r.Owner {
		e := notOwner(r, c.By).(*statestore.NotOwnerError) //nolint:errorlint // made one line above
		e.Why = statestore.WhyFenced
		return false, nil, e
	}
	if !mayClaim(r, c) {
		return false, nil, &statestore.StaleHandleError{Owner: r.Owner, Epoch: r.Epoch}
	}
	why := statestore.ChangeClaimed
	switch {
	case lost != nil:
		why = statestore.ChangeLost
	case r.Owner.Instance == c.By.Instance:
		why = statestore.ChangeReplaced
	}
	rebind(r, c.By, why, now)
	renew(r, c.Lifetimes, now)
	r.Tail = nil
	if lost != nil {
		r.Lost = &statestore.AcceptedLoss{Epoch: r.Epoch, Want: lost.WantVersion}
	}
	return true, lost, nil
}

// accepted turns the refusal of a store that lost something into the loss that
// the claimant accepts, if it does.
func accepted(c statestore.Claim, err error) (*statestore.Loss, error) {
	var behind *statestore.StoreBehindError
	if !c.AcceptLost || !errors.As(err, &behind) {
		return nil, err
	}
	return &statestore.Loss{
		HaveVersion: behind.HaveVersion, HaveTurns: behind.HaveTurns, WantVersion: behind.WantVersion,
	}, nil
}

// claimLineage holds all that a claimant was told against the record.
func claimLineage(r *statestore.Record, c statestore.Claim) error {
	if c.Handle == nil {
		return r.CheckLineage(c.Have)
	}
	return r.CheckLineage(c.Have, &c.Handle.Floor, c.Handle.Second)
}

// mayClaim reports whether the claimant may take a session that is another's.
func mayClaim(r *statestore.Record, c statestore.Claim) bool {
	if c.By == r.Owner || r.Owner.IsZero() || r.Owner == c.Gone {
		return true
	}
	return c.Handle != nil && c.Handle.Named && c.Handle.Epoch == r.Epoch
}

// Fences is what a partition's fence says about a job's write.
type Fences struct {
	TargetFenced bool
	Token        uint64 // highest seen of the job
}

// Move commits a planned change of owner. The last owner before a row of moves
// stays as the tail.
func (s *Slot) Move(m statestore.Move, f Fences, now statestore.Millis) error {
	r, err := s.planned(m.Job, f)
	if err != nil {
		return err
	}
	if f.TargetFenced {
		return &statestore.FencedTargetError{Target: m.To}
	}
	if r.Epoch != m.Epoch || r.Owner != m.From {
		return &statestore.StaleHandleError{Owner: r.Owner, Epoch: r.Epoch}
	}
	if err := reserved(r, m.Job.ID, m.Over, now); err != nil {
		return err
	}
	if r.Tail == nil && !r.Owner.IsZero() {
		r.Tail = &statestore.Tail{Owner: r.Owner, Epoch: r.Epoch}
	}
	why := statestore.ChangeMoved
	if m.To.IsZero() {
		why = statestore.ChangeDetached
	}
	rebind(r, m.To, why, now)
	return nil
}

// Reserve notes or drops a job's plan for the session.
func (s *Slot) Reserve(v statestore.Reserve, f Fences, now statestore.Millis) error {
	r, err := s.planned(v.Job, f)
	if err != nil {
		return err
	}
	if v.For <= 0 {
		if r.Reserved != nil && r.Reserved.Job.ID == v.Job.ID {
			r.Reserved = nil
		}
		return nil
	}
	if f.TargetFenced {
		return &statestore.FencedTargetError{Target: v.Target}
	}
	if r.Epoch != v.Epoch {
		return &statestore.StaleHandleError{Owner: r.Owner, Epoch: r.Epoch}
	}
	if err := reserved(r, v.Job.ID, v.Over, now); err != nil {
		return err
	}
	r.Reserved = &statestore.Reservation{Job: v.Job, Target: v.Target, Until: now.Add(v.For)}
	return nil
}

// reserved refuses a job while another one, which it may not pass over, has plans
// for the session.
func reserved(r *statestore.Record, job, over string, now statestore.Millis) error {
	q := r.Reserved
	if q == nil || now >= q.Until || q.Job.ID == job || q.Job.ID == over {
		return nil
	}
	return &statestore.LeaseHeldError{Name: "reservation", Holder: q.Job.ID, Token: q.Job.Token}
}

// planned is the record that a job may act on: it is there, and no other holder
// of the job has been seen.
func (s *Slot) planned(job statestore.JobRef, f Fences) (*statestore.Record, error) {
	if s.Record == nil {
		return nil, s.absent()
	}
	if job.Token < f.Token {
		return nil, &statestore.LeaseHeldError{Name: job.ID, Token: f.Token}
	}
	return s.Record, nil
}

// absent says how the session that is not here ended; one that nobody remembers
// has outlived its tombstone.
func (s *Slot) absent() error {
	if s.Tombstone.Reason == "" {
		return &statestore.EndedError{Reason: statestore.Expired, Epoch: s.Tombstone.Epoch}
	}
	return &statestore.EndedError{Reason: s.Tombstone.Reason, Epoch: s.Tombstone.Epoch}
}

// Finish releases the session of its owner.
func (s *Slot) Finish(f statestore.Finish, now statestore.Millis) error {
	r, err := s.named(&f.Handle)
	if err != nil {
		return err
	}
	if r.Owner != f.By || r.Owner.IsZero() {
		return &statestore.StaleHandleError{Owner: r.Owner, Epoch: r.Epoch}
	}
	rebind(r, statestore.Owner{}, statestore.ChangeFinished, now)
	r.Tail, r.AffinityUntil = nil, now
	return nil
}

// Delete ends the session. A nil handle is an operator's, who may end any epoch.
// A slot without a record is already what was asked for: an operator gets no
// error, a handle gets what its floor deserves.
func (s *Slot) Delete(d statestore.Delete, now statestore.Millis) error {
	if d.Handle == nil {
		if s.Record != nil {
			s.end(statestore.Deleted, now)
		}
		return nil
	}
	if _, err := s.named(d.Handle); err != nil {
		return err
	}
	s.end(statestore.Deleted, now)
	return nil
}

// named is the record whose present epoch the handle names.
func (s *Slot) named(p *statestore.Presented) (*statestore.Record, error) {
	if err := s.checkEnded(p, nil); err != nil {
		return nil, err
	}
	if s.Record == nil {
		return nil, s.absent()
	}
	r := s.Record
	if err := r.CheckLineage(&p.Floor, p.Second); err != nil {
		return nil, err
	}
	if p.Epoch != r.Epoch {
		return nil, &statestore.StaleHandleError{Owner: r.Owner, Epoch: r.Epoch}
	}
	return r, nil
}

// Bind gives a session without stored turns to the instance that served it, and
// reports whether it did.
func (s *Slot) Bind(b statestore.Bind, fenced bool, now statestore.Millis) bool {
	if fenced || s.checkEnded(&b.Handle, nil) != nil || b.Handle.Version != 0 {
		return false
	}
	r := s.Record
	switch {
	case r == nil:
		if s.Tombstone.Reason == statestore.Deleted {
			return false
		}
		r = &statestore.Record{
			Key: b.Key, AffinityKey: b.Handle.AffinityKey,
			Epoch: s.Tombstone.Epoch, Before: s.Tombstone, Created: now,
		}
	case r.Version != 0 || r.Epoch != b.Handle.Epoch:
		return false
	}
	rebind(r, b.Owner, statestore.ChangeReported, now)
	// Nothing is stored, so nothing is worth keeping longer than the affinity.
	r.AffinityUntil = now.Add(b.Affinity)
	r.Expires = r.AffinityUntil
	s.Record, s.Tombstone = r, statestore.Tombstone{}
	return true
}
