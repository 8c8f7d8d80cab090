package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"berth/statestore"
	"berth/statestore/boltstore"
	"berth/statestore/redisstore"
)

// StoreFlag says where sessions live.
type StoreFlag struct {
	Store string `default:"./berth-data" env:"BERTH_STORE" help:"Directory of the embedded store, or redis://, rediss://, redis+sentinel:// or redis+cluster:// URL."`

	StoreMaxBytes int `env:"BERTH_STORE_MAX_BYTES" help:"Size that the embedded store's file may grow to; writes beyond are refused with 507 (default: what the disk holds)."`

	RedisPrefix     string `default:"berth" env:"BERTH_REDIS_PREFIX" help:"First part of every key in Redis."`
	RedisPartitions int    `default:"1024" env:"BERTH_REDIS_PARTITIONS" help:"Partitions of a new store in Redis; must match an existing one."`
	AllowEviction   bool   `env:"BERTH_ALLOW_EVICTION" help:"Start although Redis may evict keys under memory pressure."`
}

type serverStore = statestore.Store

// openStore opens the backend that the flag names.
func openStore(ctx context.Context, f StoreFlag) (statestore.Store, error) {
	if f.StoreMaxBytes < 0 {
		return nil, errors.New("--store-max-bytes: want a positive number, or 0 for what the disk holds")
	}
	if strings.Contains(f.Store, "://") {
		return redisstore.Open(ctx, f.Store, redisstore.Options{
			Prefix: f.RedisPrefix, Partitions: f.RedisPartitions, AllowEviction: f.AllowEviction,
		})
	}
	if err := os.MkdirAll(f.Store, 0o700); err != nil {
		return nil, fmt.Errorf("make the store's directory: %w", err)
	}
	return boltstore.Open(ctx, filepath.Join(f.Store, "berth.db"), boltstore.Options{MaxBytes: f.StoreMaxBytes})
}
