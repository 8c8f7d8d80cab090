package redisstore

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"berth/integration/redistest"
	"berth/statestore"
)

// sentinelOf starts a Sentinel that watches one server under the name "main".
func sentinelOf(t *testing.T, server *redistest.Process) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = l.Addr().String()
	_, port := splitAddr(t, addr)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	host, watched := splitAddr(t, server.Addr)
	dir := t.TempDir()
	config := filepath.Join(dir, "sentinel.conf")
	text := fmt.Sprintf("bind 127.0.0.1\nport %s\ndir %s\nsentinel monitor main %s %s 1\n", port, dir, host, watched)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("redis-server", config, "--sentinel")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: 100, MinRetryBackoff: 10 * time.Millisecond})
	defer client.Close()
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return addr
}

// What a Sentinel says of itself is no word about the server that it watches.
func TestSentinelIsNotAskedForDurability(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Fsync("always"))
	addr := sentinelOf(t, server)
	s := open(t, "redis+sentinel://"+addr+"/main")
	w := newWriter(s, "watched")
	if r := w.append(t, []byte("one")); r.Durability.Level != statestore.LevelFsynced {
		t.Fatalf("acknowledged as %v", r.Durability)
	}
	// All connections are made anew, those to Sentinel as well.
	for _, at := range []string{addr, server.Addr} {
		client := redis.NewClient(&redis.Options{Addr: at})
		if err := client.Do(t.Context(), "client", "kill", "skipme", "yes").Err(); err != nil {
			t.Fatal(err)
		}
		if err := client.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if r := w.append(t, []byte("two")); r.Durability.Level != statestore.LevelFsynced {
		t.Fatalf("acknowledged as %v over new connections", r.Durability)
	}
}
