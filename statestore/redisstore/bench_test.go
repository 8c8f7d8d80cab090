package redisstore

import (
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"berth/integration/redistest"
)

// BenchmarkAppend holds an append of 4 KiB against the bare RPUSH of the same
// bytes, at the same concurrency.
func BenchmarkAppend(b *testing.B) {
	url := redistest.Standalone(b).URL
	value := noise(4096)
	b.Run("store", func(b *testing.B) {
		s := open(b, url)
		var sessions atomic.Int64
		b.SetParallelism(8)
		b.RunParallel(func(pb *testing.PB) {
			w := newWriter(s, fmt.Sprint(sessions.Add(1)))
			for pb.Next() {
				w.append(b, value)
			}
		})
	})
	b.Run("rpush", func(b *testing.B) {
		client := dial(b, url)
		var lists atomic.Int64
		b.SetParallelism(8)
		b.RunParallel(func(pb *testing.PB) {
			key := fmt.Sprintf("bare:%d", lists.Add(1))
			for pb.Next() {
				if err := client.RPush(b.Context(), key, value).Err(); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}

// BenchmarkLoad holds a load of 4 MiB against the bare GET of the same bytes.
func BenchmarkLoad(b *testing.B) {
	url := redistest.Standalone(b).URL
	const size = 4 << 20
	b.Run("store", func(b *testing.B) {
		s := open(b, url)
		w := newWriter(s, "loaded")
		for range size / 16384 {
			w.append(b, noise(16384))
		}
		b.SetBytes(size)
		for b.Loop() {
			r, err := s.Load(b.Context(), w.key, 0)
			if err != nil {
				b.Fatal(err)
			}
			got := 0
			for t, err := range r.Turns {
				if err != nil {
					b.Fatal(err)
				}
				n, _ := io.Discard.Write(t.Value)
				got += n
			}
			if got != size {
				b.Fatalf("%d bytes", got)
			}
		}
	})
	b.Run("get", func(b *testing.B) {
		client := dial(b, url).(*redis.Client)
		if err := client.Set(b.Context(), "bare", noise(size), 0).Err(); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(size)
		for b.Loop() {
			v, err := client.Get(b.Context(), "bare").Bytes()
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.Discard.Write(v)
		}
	})
}
