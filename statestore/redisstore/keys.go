package redisstore

import (
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
}

// session is the KEYS of every transition of a session, in the order that
// lua/session.lua names them.
func (k keyspace) session(d statestore.SessionDigest) []string {
	tag := k.tag(d.Partition(k.partitions))
	name := d.String()
	return []string{
		tag + "r:" + name, tag + "t:" + name, tag + "o:" + name, tag + "l:" + name, tag + "d:" + name, tag + "k:" + name, tag + "w:" + name,
		tag + "due", tag + "index", tag + "fences", tag + "staged",
	}
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

// tag is the beginning of all keys of a partition.
func (k keyspace) tag(partition int) string {
	return fmt.Sprintf("%s:{p%04d}:", k.prefix, partition)
}

func (k keyspace) record(partition int, d statestore.SessionDigest) string {
	return k.tag(partition) + "r:" + d.String()
}

func (k keyspace) due(partition int) string    { return k.tag(partition) + "due" }
func (k keyspace) index(partition int) string  { return k.tag(partition) + "index" }
func (k keyspace) fences(partition int) string { return k.tag(partition) + "fences" }
func (k keyspace) staged(partition int) string { return k.tag(partition) + "staged" }

// fleet is a key of what belongs to no session: all of it shares one slot, so
// that an instance moves between pools, and a version with its table, in one
// call.
func (k keyspace) fleet(name string) string { return k.prefix + ":{fleet}:" + name }

func (k keyspace) channel() string { return k.prefix + ":events" }
