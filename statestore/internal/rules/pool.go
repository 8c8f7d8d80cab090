package rules

import "berth/statestore"

// PoolUnused refuses a pool of which instances are registered, or jobs have not ended,
// with a [statestore.PoolInUseError].
func PoolUnused(pool string, instances int, jobs []statestore.Job) error {
	used := statestore.PoolInUseError{Instances: instances}
	for i := range jobs {
		if jobs[i].Pool == pool && !jobs[i].State.Ended() {
			used.Jobs++
		}
	}
	if used == (statestore.PoolInUseError{}) {
		return nil
	}
	return &used
}
