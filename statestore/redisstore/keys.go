package redisstore

import (
	"encoding/hex"
	"fmt"

	"berth/statestore"
)

// keyspace builds every key of the store. What changes in one call shares a
// hash tag, and so a slot of a Cluster:
//
//	P:{p0123}:r:<digest>   record                    string
//	P:{p0123}:t:<digest>   tombstone                 string, ends by itself
//	P:{p0123}:o:<digest>   open tail of the log      list
//	P:{p0123}:l:<digest>   log: chunks and meta      hash
//	P:{p0123}:d:<digest>   directory of the log      list
//	P:{p0123}:k:<digest>   placements                hash
//	P:{p0123}:w:<digest>   parked writes             hash
//	P:{p0123}:due          ms, digest                sorted set
//	P:{p0123}:index        pool, instance, digest    sorted set, by name
//	P:{p0123}:fences       instances, jobs           hash
//	P:{p0123}:staged       ms, staged write          sorted set
//
//	P:{fleet}:…            one hash or sorted set each, see fleetKey
//	P:events               the channel of the feed
//
// P is the prefix, and p0123 the partition of the session's digest.
type keyspace struct {
	prefix     string
	partitions int
	shared     []partitionKeys // of each partition
}

// partitionKeys are the keys that the sessions of a partition share, and the
// beginning of all others.
type partitionKeys struct{ tag, due, index, fences, staged string }

func newKeyspace(prefix string, partitions int) keyspace {
	k := keyspace{prefix: prefix, partitions: partitions}
	for p := range partitions {
		tag := fmt.Sprintf("%s:{p%04d}:", prefix, p)
		k.shared = append(k.shared, partitionKeys{tag, tag + "due", tag + "index", tag + "fences", tag + "staged"})
	}
	return k
}

// kinds are the keys of one session, in the order of KEYS.
const kinds = "rtoldkw"

// session is the KEYS of every transition of a session, in the order that
// lua/session.lua names them.
func (k *keyspace) session(d statestore.SessionDigest) []string {
	p := &k.shared[d.Partition(k.partitions)]
	size := len(p.tag) + len("r:") + 2*len(d)
	// All of them share one piece of memory.
	b := make([]byte, 0, size*len(kinds))
	for _, kind := range []byte(kinds) {
		b = append(append(b, p.tag...), kind, ':')
		b = hex.AppendEncode(b, d[:])
	}
	all := string(b)
	keys := make([]string, 0, len(kinds)+4)
	for i := range len(kinds) {
		keys = append(keys, all[i*size:(i+1)*size])
	}
	return append(keys, p.due, p.index, p.fences, p.staged)
}

// Places in what session returns.
const (
	keyRecord = iota
	keyTombstone
	keyOpen
	keyLog
	keyDirectory
	keyPlaced
	keyParked
	keyDue
	keyIndex
	keyFences
	keyStaged
)

func (k *keyspace) record(partition int, d statestore.SessionDigest) string {
	return k.shared[partition].tag + "r:" + d.String()
}

func (k *keyspace) due(partition int) string    { return k.shared[partition].due }
func (k *keyspace) index(partition int) string  { return k.shared[partition].index }
func (k *keyspace) fences(partition int) string { return k.shared[partition].fences }
func (k *keyspace) staged(partition int) string { return k.shared[partition].staged }

// fleet is a key of what belongs to no session: all of it shares one slot, so
// that an instance moves between pools, and a version with its table, in one
// call.
func (k *keyspace) fleet(name string) string { return k.prefix + ":{fleet}:" + name }

func (k *keyspace) channel() string { return k.prefix + ":events" }
