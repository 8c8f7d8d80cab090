package client

import "slices"

// kept is an accepted write that the store may still lose.
type kept struct {
	write     *write
	presented mark // what it was sent with
	answered  mark // where it was stored
}

// journal holds the accepted writes of a session that are not durable, within
// bounds, oldest first: each was sent after the one before it was answered. A
// write of which the store said that it is durable leaves it, and so does
// everything that it provably stands on.
type journal struct {
	maxWrites, maxBytes int

	writes []*kept
	bytes  int
}

// add takes in a write. A later answer to the same op takes the place of the
// earlier one: what is repeated stays before what followed it.
func (j *journal) add(k *kept) {
	if i := j.index(k.write.Op); i >= 0 {
		j.writes[i] = k
		return
	}
	j.writes = append(j.writes, k)
	j.bytes += k.write.size
	for len(j.writes) > j.maxWrites || (j.bytes > j.maxBytes && len(j.writes) > 0) {
		j.remove(0)
	}
}

// displaced reports whether a kept write has got another place than it had.
func (j *journal) displaced(op string, m mark) bool {
	i := j.index(op)
	return i >= 0 && !j.writes[i].answered.samePlace(m)
}

// settle drops what is durable with a durable write: the write, the one whose
// place its handle named, and so on. The store checks that place before it
// accepts a write, so it had them all; of a write beside that chain it has not
// said so.
func (j *journal) settle(w *write, presented mark) {
	j.drop(w.Op)
	for op := presented.op; op != ""; {
		i := j.index(op)
		if i < 0 {
			return
		}
		op = j.writes[i].presented.op
		j.remove(i)
	}
}

// index is where an op is kept, -1 if it is not.
func (j *journal) index(op string) int {
	return slices.IndexFunc(j.writes, func(k *kept) bool { return k.write.Op == op })
}

func (j *journal) drop(op string) {
	if i := j.index(op); i >= 0 {
		j.remove(i)
	}
}

func (j *journal) remove(i int) {
	j.bytes -= j.writes[i].write.size
	j.writes = slices.Delete(j.writes, i, i+1)
}

// beyond is the first write that a later epoch, ending at m so far, does not
// reach; -1 if there is none.
func (j *journal) beyond(m mark) int {
	return slices.IndexFunc(j.writes, func(k *kept) bool {
		return k.answered.epoch < m.epoch && k.answered.version > m.version
	})
}

// dropThrough drops what was answered up to an epoch.
func (j *journal) dropThrough(epoch uint64) {
	for i := len(j.writes) - 1; i >= 0; i-- {
		if j.writes[i].answered.epoch <= epoch {
			j.remove(i)
		}
	}
}

// takeAll empties the journal.
func (j *journal) takeAll() (lost []LostWrite) {
	for _, k := range j.writes {
		lost = append(lost, LostWrite{Write: k.write.Write, Replaces: k.write.replaces})
	}
	j.writes, j.bytes = nil, 0
	return lost
}
