package redisstore

import (
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	"berth/statestore"
)

// Defaults of [Options].
const (
	DefaultPrefix     = "berth"
	DefaultPartitions = 1024
	DefaultPatience   = 5 * time.Second
	DefaultStaging    = 10 * time.Minute
)

// maxPartitions is what the four digits of a partition's tag can tell apart.
const maxPartitions = 10_000

// Options of a store. The zero value is what a server wants.
type Options struct {
	// Prefix begins every key; default "berth".
	Prefix string
	// Partitions of a new store; default 1024. A store that exists must have
	// been made with the same number. 0 takes what it has.
	Partitions int
	// AllowEviction accepts a server that may evict keys of its own accord.
	AllowEviction bool
	// Patience bounds how long one call is sent again to a store that does not
	// answer or is changing hands; its context bounds it too. Default 5 s.
	Patience time.Duration
	// Staging is how long a large write may take to arrive before a sweep
	// removes it. Default 10 min.
	Staging time.Duration
	// TLS replaces the configuration that a rediss URL implies.
	TLS *tls.Config
}

func (o Options) withDefaults() (Options, error) {
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if strings.ContainsAny(o.Prefix, "{}") {
		return o, fmt.Errorf("prefix must hold no braces, which Redis Cluster reads: %w", statestore.ErrInvalid)
	}
	if o.Partitions < 0 || o.Partitions > maxPartitions {
		return o, fmt.Errorf("%d partitions, at most %d are allowed: %w", o.Partitions, maxPartitions, statestore.ErrInvalid)
	}
	if o.Patience <= 0 {
		o.Patience = DefaultPatience
	}
	if o.Staging <= 0 {
		o.Staging = DefaultStaging
	}
	return o, nil
}
