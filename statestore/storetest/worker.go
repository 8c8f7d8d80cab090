package storetest

import "berth/statestore"

// worker is one boot of an instance. It keeps the newest handle it was given and
// presents it, as a worker's client does.
type worker struct {
	w      *world
	by     statestore.Owner
	handle statestore.Presented
}

// worker boots an instance.
func (w *world) worker(instance string) *worker {
	return &worker{w: w, by: statestore.Owner{Instance: instance, Incarnation: statestore.IncarnationDigest(instance + " boots once")}}
}

// reboot is the next boot of the same instance. It has forgotten everything.
func (a *worker) reboot() *worker {
	return &worker{w: a.w, by: statestore.Owner{Instance: a.by.Instance, Incarnation: statestore.IncarnationDigest(a.by.Incarnation)}}
}

// routed gives the worker the handle of a route that hints it.
func (a *worker) routed() *worker {
	a.w.Helper()
	a.handle = statestore.Presented{Floor: a.w.view().Floor(), Named: true}
	return a
}

// at is the worker with an older handle of its own.
func (a *worker) at(f statestore.Floor) *worker {
	return &worker{w: a.w, by: a.by, handle: statestore.Presented{Floor: f}}
}

// write prepares an append at the version of the newest handle.
func (a *worker) write(op string, texts ...string) statestore.Append {
	return statestore.Append{
		Key: a.w.key, By: a.by, Handle: a.handle, Op: op, Turns: says(texts...), Lifetimes: a.w.lives,
	}
}

// send sends an append, and keeps the handle of its answer.
func (a *worker) send(req statestore.Append) (statestore.Receipt, error) {
	r, err := a.w.store.Append(a.w.ctx, req)
	if err == nil {
		a.keep(r.Floor)
	}
	return r, err
}

// keep keeps the handle that an answer gave.
func (a *worker) keep(f statestore.Floor) { a.handle = statestore.Presented{Floor: f} }

// sent is send where it must succeed.
func (a *worker) sent(req statestore.Append) statestore.Receipt {
	a.w.Helper()
	r, err := a.send(req)
	a.w.ok("append "+req.Op+" by "+a.by.Instance, err)
	return r
}

// says appends, where it must succeed.
func (a *worker) says(op string, texts ...string) statestore.Receipt {
	a.w.Helper()
	return a.sent(a.write(op, texts...))
}

// rewrite prepares a replace of the whole context.
func (a *worker) rewrite(op string, texts ...string) statestore.Replace {
	return statestore.Replace{
		Key: a.w.key, By: a.by, Handle: a.handle, Op: op, Turns: says(texts...), Lifetimes: a.w.lives,
	}
}

// replace sends a replace, and keeps the handle of its answer.
func (a *worker) replace(req statestore.Replace) (statestore.Receipt, error) {
	r, err := a.w.store.Replace(a.w.ctx, req)
	if err == nil {
		a.keep(r.Floor)
	}
	return r, err
}

// replaced is replace where it must succeed.
func (a *worker) replaced(req statestore.Replace) statestore.Receipt {
	a.w.Helper()
	r, err := a.replace(req)
	a.w.ok("replace "+req.Op+" by "+a.by.Instance, err)
	return r
}

// take prepares a claim with the newest handle.
func (a *worker) take() statestore.Claim {
	h := a.handle
	return statestore.Claim{Key: a.w.key, By: a.by, Handle: &h, Lifetimes: a.w.lives}
}

// claim sends a claim, and keeps the handle of its answer.
func (a *worker) claim(req statestore.Claim) (statestore.Claimed, error) {
	c, err := a.w.store.Claim(a.w.ctx, req)
	if err == nil {
		a.keep(c.View.Floor())
	}
	return c, err
}

// claims is claim with the newest handle, where it must succeed.
func (a *worker) claims() statestore.Claimed {
	a.w.Helper()
	c, err := a.claim(a.take())
	a.w.ok("claim by "+a.by.Instance, err)
	return c
}

// finish releases the session.
func (a *worker) finish() (statestore.Receipt, error) {
	r, err := a.w.store.Finish(a.w.ctx, statestore.Finish{Key: a.w.key, By: a.by, Handle: a.handle, Lifetimes: a.w.lives})
	if err == nil {
		a.keep(r.Floor)
	}
	return r, err
}

// erase deletes the session by handle.
func (a *worker) erase() (statestore.Ended, error) {
	h := a.handle
	return a.w.store.Delete(a.w.ctx, statestore.Delete{Key: a.w.key, Handle: &h, Lifetimes: a.w.lives})
}

// notOwner is the refusal that tells the worker who may write instead.
func (w *world) notOwner(why statestore.NotOwnerWhy, parked bool) *statestore.NotOwnerError {
	w.Helper()
	v := w.view()
	return &statestore.NotOwnerError{Why: why, Owner: v.Owner, Epoch: v.Epoch, Parked: parked}
}

// stale is the refusal of a handle whose epoch is over.
func (w *world) stale() *statestore.StaleHandleError {
	w.Helper()
	v := w.view()
	return &statestore.StaleHandleError{Owner: v.Owner, Epoch: v.Epoch}
}

// conflict is the refusal of an append for another version.
func (w *world) conflict() *statestore.VersionConflictError {
	w.Helper()
	v := w.view()
	return &statestore.VersionConflictError{Version: v.Version, Turns: v.Turns}
}
