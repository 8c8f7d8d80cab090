package rules

import "berth/statestore"

// Claim judges a claim; fenced says that the claimant is. On a slot without a
// record it changes nothing and there is nothing to claim.
func (s *Slot) Claim(c statestore.Claim, fenced bool, now statestore.Millis) (changed bool, lost *statestore.Loss, err error) {
	if err := s.checkEnded(c.Handle); err != nil {
		return false, acceptedTotal(c, err), refuseUnlessAccepted(c, err)
	}
	if s.Record == nil {
		if c.Have != nil && c.Have.Version > 0 && c.Have.Epoch >= s.Tombstone.Epoch && !c.AcceptLost {
			return false, nil, &statestore.StoreBehindError{WantVersion: c.Have.Version}
		}
		return false, nil, nil
	}
	r := s.Record
	lost, err = claimLineage(r, c)
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

// acceptedTotal is the loss of a whole session that the claimant accepts.
func acceptedTotal(c statestore.Claim, err error) *statestore.Loss {
	behind, ok := err.(*statestore.StoreBehindError) //nolint:errorlint // made by checkEnded, unwrapped
	if !ok || !c.AcceptLost {
		return nil
	}
	return &statestore.Loss{WantVersion: behind.WantVersion}
}

func refuseUnlessAccepted(c statestore.Claim, err error) error {
	if acceptedTotal(c, err) != nil {
		return nil
	}
	return err
}

// claimLineage returns the loss that the claimant accepts, nil if none.
func claimLineage(r *statestore.Record, c statestore.Claim) (*statestore.Loss, error) {
	floors := []*statestore.Floor{c.Have}
	if c.Handle != nil {
		floors = append(floors, &c.Handle.Floor, c.Handle.Second)
	}
	err := checkLineage(r, floors...)
	if err == nil {
		return nil, nil
	}
	if _, ok := err.(*statestore.StoreBehindError); !ok || !c.AcceptLost { //nolint:errorlint // made by checkLineage
		return nil, err
	}
	lost := &statestore.Loss{HaveVersion: r.Version, HaveTurns: r.Turns}
	for _, f := range floors {
		if f != nil && !r.Holds(*f) {
			lost.WantVersion = max(lost.WantVersion, f.Version)
		}
	}
	if r.Lost != nil {
		lost.WantVersion = max(lost.WantVersion, r.Lost.Want)
	}
	return lost, nil
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
	if r.Tail == nil {
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
	if q := r.Reserved; q != nil && q.Job.ID != v.Job.ID && now < q.Until {
		return &statestore.LeaseHeldError{Name: "reservation", Holder: q.Job.ID, Token: q.Job.Token}
	}
	r.Reserved = &statestore.Reservation{Job: v.Job, Target: v.Target, Until: now.Add(v.For)}
	return nil
}

// planned is the record that a job may act on: it is there, and no other holder
// of the job has been seen.
func (s *Slot) planned(job statestore.JobRef, f Fences) (*statestore.Record, error) {
	if s.Record == nil {
		e := &statestore.EndedError{Reason: s.Tombstone.Reason, Epoch: s.Tombstone.Epoch}
		if e.Reason == "" {
			e.Reason = statestore.Expired
		}
		return nil, e
	}
	if job.Token < f.Token {
		return nil, &statestore.LeaseHeldError{Name: job.ID, Token: f.Token}
	}
	return s.Record, nil
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
	if err := s.checkEnded(p); err != nil {
		return nil, err
	}
	if s.Record == nil {
		return nil, &statestore.EndedError{Reason: statestore.Expired, Epoch: s.Tombstone.Epoch}
	}
	r := s.Record
	if err := checkLineage(r, &p.Floor, p.Second); err != nil {
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
	if fenced || s.checkEnded(&b.Handle) != nil || b.Handle.Version != 0 {
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
