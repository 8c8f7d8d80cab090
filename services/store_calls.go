package services

import (
	"context"
	"iter"
	"time"

	"berth/statestore"
)

// Calls about sessions, each passed on and measured.

func (m *storeMeter) Lookup(ctx context.Context, key statestore.SessionKey) (v statestore.View, err error) {
	defer m.took(callLookup, time.Now(), &err)
	return m.store.Lookup(ctx, key)
}

func (m *storeMeter) Append(ctx context.Context, a statestore.Append) (r statestore.Receipt, err error) {
	defer m.took(callAppend, time.Now(), &err)
	return m.store.Append(ctx, a)
}

func (m *storeMeter) Replace(ctx context.Context, r statestore.Replace) (receipt statestore.Receipt, err error) {
	defer m.took(callReplace, time.Now(), &err)
	return m.store.Replace(ctx, r)
}

func (m *storeMeter) Claim(ctx context.Context, c statestore.Claim) (claimed statestore.Claimed, err error) {
	defer m.took(callClaim, time.Now(), &err)
	return m.store.Claim(ctx, c)
}

func (m *storeMeter) Move(ctx context.Context, v statestore.Move) (moved statestore.Moved, err error) {
	defer m.took(callMove, time.Now(), &err)
	return m.store.Move(ctx, v)
}

func (m *storeMeter) Reserve(ctx context.Context, r statestore.Reserve) (err error) {
	defer m.took(callReserve, time.Now(), &err)
	return m.store.Reserve(ctx, r)
}

func (m *storeMeter) Finish(ctx context.Context, f statestore.Finish) (r statestore.Receipt, err error) {
	defer m.took(callFinish, time.Now(), &err)
	return m.store.Finish(ctx, f)
}

func (m *storeMeter) Delete(ctx context.Context, d statestore.Delete) (ended statestore.Ended, err error) {
	defer m.took(callDelete, time.Now(), &err)
	return m.store.Delete(ctx, d)
}

func (m *storeMeter) Bind(ctx context.Context, b statestore.Bind) (bound bool, err error) {
	defer m.took(callBind, time.Now(), &err)
	return m.store.Bind(ctx, b)
}

func (m *storeMeter) PutPlacements(ctx context.Context, key statestore.SessionKey, by statestore.Owner, descriptors []byte) (err error) {
	defer m.took(callPutPlacements, time.Now(), &err)
	return m.store.PutPlacements(ctx, key, by, descriptors)
}

func (m *storeMeter) Load(ctx context.Context, key statestore.SessionKey, from uint64) (r statestore.Reading, err error) {
	defer m.took(callLoad, time.Now(), &err)
	if r, err = m.store.Load(ctx, key, from); r.Turns != nil {
		r.Turns = measured(m, callLoadTurns, r.Turns)
	}
	return r, err
}

func (m *storeMeter) SessionsOf(ctx context.Context, pool, instance string) iter.Seq2[statestore.View, error] {
	return measured(m, callSessionsOf, m.store.SessionsOf(ctx, pool, instance))
}

func (m *storeMeter) CountSessions(ctx context.Context) (counts map[statestore.InstanceName]int, err error) {
	defer m.took(callCountSessions, time.Now(), &err)
	return m.store.CountSessions(ctx)
}

func (m *storeMeter) List(ctx context.Context, q statestore.SessionQuery) (views []statestore.View, cursor string, err error) {
	defer m.took(callList, time.Now(), &err)
	return m.store.List(ctx, q)
}

func (m *storeMeter) Sweep(ctx context.Context, limit int) (n int, err error) {
	defer m.took(callSweep, time.Now(), &err)
	return m.store.Sweep(ctx, limit)
}
