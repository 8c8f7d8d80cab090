package services

import (
	"context"
	"time"

	"berth/statestore"
)

// Calls about the fleet, jobs, tasks and the store itself, each passed on and
// measured.

func (m *storeMeter) Register(ctx context.Context, spec statestore.InstanceSpec, others ...statestore.Owner) (in statestore.Instance, err error) {
	defer m.took(callRegister, time.Now(), &err)
	return m.store.Register(ctx, spec, others...)
}

func (m *storeMeter) Heartbeats(ctx context.Context, beats []statestore.Beat) (answers []statestore.BeatAnswer, err error) {
	defer m.took(callHeartbeats, time.Now(), &err)
	return m.store.Heartbeats(ctx, beats)
}

func (m *storeMeter) Heartbeat(ctx context.Context, by statestore.Owner, beat statestore.Heartbeat) (in statestore.Instance, err error) {
	defer m.took(callHeartbeat, time.Now(), &err)
	return m.store.Heartbeat(ctx, by, beat)
}

func (m *storeMeter) Deregister(ctx context.Context, who statestore.Owner) (err error) {
	defer m.took(callDeregister, time.Now(), &err)
	return m.store.Deregister(ctx, who)
}

func (m *storeMeter) SetLifecycle(ctx context.Context, who statestore.Owner, change statestore.LifecycleChange) (in statestore.Instance, err error) {
	defer m.took(callSetLifecycle, time.Now(), &err)
	return m.store.SetLifecycle(ctx, who, change)
}

func (m *storeMeter) SetVerdicts(ctx context.Context, l statestore.Lease, verdicts map[statestore.Owner]statestore.Verdict) (err error) {
	defer m.took(callSetVerdicts, time.Now(), &err)
	return m.store.SetVerdicts(ctx, l, verdicts)
}

func (m *storeMeter) RemoveGone(ctx context.Context, l statestore.Lease, boots []statestore.Owner, after time.Duration) (removed []statestore.Owner, err error) {
	defer m.took(callRemoveGone, time.Now(), &err)
	return m.store.RemoveGone(ctx, l, boots, after)
}

func (m *storeMeter) SetOverride(ctx context.Context, id string, o statestore.OverrideChange) (in statestore.Instance, err error) {
	defer m.took(callSetOverride, time.Now(), &err)
	return m.store.SetOverride(ctx, id, o)
}

func (m *storeMeter) FleetView(ctx context.Context) (view statestore.FleetView, err error) {
	began := time.Now()
	defer func() { m.away.took(began, time.Now(), err) }()
	defer m.took(callFleetView, began, &err)
	return m.store.FleetView(ctx)
}

func (m *storeMeter) Fence(ctx context.Context, f statestore.Fence) (err error) {
	defer m.took(callFence, time.Now(), &err)
	return m.store.Fence(ctx, f)
}

func (m *storeMeter) AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (l statestore.Lease, err error) {
	defer m.took(callAcquireLease, time.Now(), &err)
	return m.store.AcquireLease(ctx, name, holder, ttl)
}

func (m *storeMeter) ReleaseLease(ctx context.Context, l statestore.Lease) (err error) {
	defer m.took(callReleaseLease, time.Now(), &err)
	return m.store.ReleaseLease(ctx, l)
}

func (m *storeMeter) PutPolicy(ctx context.Context, pool string, doc []byte) (p statestore.Policy, err error) {
	defer m.took(callPutPolicy, time.Now(), &err)
	return m.store.PutPolicy(ctx, pool, doc)
}

func (m *storeMeter) DeletePool(ctx context.Context, pool string) (err error) {
	defer m.took(callDeletePool, time.Now(), &err)
	return m.store.DeletePool(ctx, pool)
}

func (m *storeMeter) SigningKeys(ctx context.Context) (keys []statestore.SigningKey, err error) {
	defer m.took(callSigningKeys, time.Now(), &err)
	return m.store.SigningKeys(ctx)
}

func (m *storeMeter) PutNote(ctx context.Context, process string, note []byte, ttl time.Duration) (err error) {
	defer m.took(callPutNote, time.Now(), &err)
	return m.store.PutNote(ctx, process, note, ttl)
}

func (m *storeMeter) Notes(ctx context.Context) (notes map[string][]byte, err error) {
	defer m.took(callNotes, time.Now(), &err)
	return m.store.Notes(ctx)
}

func (m *storeMeter) Watch(ctx context.Context) (events <-chan statestore.Event, err error) {
	defer m.took(callWatch, time.Now(), &err)
	return m.store.Watch(ctx)
}

func (m *storeMeter) Describe(ctx context.Context) (d statestore.Description, err error) {
	defer m.took(callDescribe, time.Now(), &err)
	return m.store.Describe(ctx)
}

func (m *storeMeter) CreateJob(ctx context.Context, j statestore.Job, deadline time.Duration) (job statestore.Job, existed bool, err error) {
	defer m.took(callCreateJob, time.Now(), &err)
	return m.store.CreateJob(ctx, j, deadline)
}

func (m *storeMeter) AcquireJob(ctx context.Context, id, holder string, ttl time.Duration) (job statestore.Job, err error) {
	defer m.took(callAcquireJob, time.Now(), &err)
	return m.store.AcquireJob(ctx, id, holder, ttl)
}

func (m *storeMeter) SaveJob(ctx context.Context, ref statestore.JobRef, state statestore.JobState, progress []byte, ttl time.Duration) (job statestore.Job, err error) {
	defer m.took(callSaveJob, time.Now(), &err)
	return m.store.SaveJob(ctx, ref, state, progress, ttl)
}

func (m *storeMeter) ControlJob(ctx context.Context, id string, c statestore.Control) (job statestore.Job, err error) {
	defer m.took(callControlJob, time.Now(), &err)
	return m.store.ControlJob(ctx, id, c)
}

func (m *storeMeter) Job(ctx context.Context, id string) (job statestore.Job, now statestore.Millis, err error) {
	defer m.took(callJob, time.Now(), &err)
	return m.store.Job(ctx, id)
}

func (m *storeMeter) Jobs(ctx context.Context) (jobs []statestore.Job, now statestore.Millis, err error) {
	defer m.took(callJobs, time.Now(), &err)
	return m.store.Jobs(ctx)
}

func (m *storeMeter) PurgeJobs(ctx context.Context, keep time.Duration) (n int, err error) {
	defer m.took(callPurgeJobs, time.Now(), &err)
	return m.store.PurgeJobs(ctx, keep)
}

func (m *storeMeter) PutTasks(ctx context.Context, tasks []statestore.Task, deadline time.Duration) (err error) {
	defer m.took(callPutTasks, time.Now(), &err)
	return m.store.PutTasks(ctx, tasks, deadline)
}

func (m *storeMeter) LeaseTasks(ctx context.Context, by statestore.Owner, limit int, lease time.Duration) (tasks []statestore.Task, now statestore.Millis, err error) {
	defer m.took(callLeaseTasks, time.Now(), &err)
	return m.store.LeaseTasks(ctx, by, limit, lease)
}

func (m *storeMeter) OpenTasks(ctx context.Context, by statestore.Owner, limit int) (tasks []statestore.Task, now statestore.Millis, err error) {
	defer m.took(callOpenTasks, time.Now(), &err)
	return m.store.OpenTasks(ctx, by, limit)
}

func (m *storeMeter) FinishTask(ctx context.Context, by statestore.Owner, id string, a statestore.TaskAnswer) (task statestore.Task, err error) {
	defer m.took(callFinishTask, time.Now(), &err)
	return m.store.FinishTask(ctx, by, id, a)
}

func (m *storeMeter) ReadTasks(ctx context.Context, ids []string) (tasks []statestore.Task, err error) {
	defer m.took(callReadTasks, time.Now(), &err)
	return m.store.ReadTasks(ctx, ids)
}

func (m *storeMeter) TasksOf(ctx context.Context, job string) (tasks []statestore.Task, err error) {
	defer m.took(callTasksOf, time.Now(), &err)
	return m.store.TasksOf(ctx, job)
}

func (m *storeMeter) DropTasks(ctx context.Context, job string) (err error) {
	defer m.took(callDropTasks, time.Now(), &err)
	return m.store.DropTasks(ctx, job)
}

// Close closes the store that is measured.
func (m *storeMeter) Close() error { return m.store.Close() }

var _ statestore.Store = (*storeMeter)(nil)
