package integration_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	boxes "github.com/testcontainers/testcontainers-go/network"
	"github.com/testcontainers/testcontainers-go/wait"

	"berth/integration/redistest"
)

// berthImage is what `make images` builds.
const berthImage = "berth:dev"

// TestContainersOfTheImage runs what docker-compose.yml runs, in a network of its
// own: a Redis that fsyncs before it answers and two berths, of which one is
// killed between the last write and the recovery.
func TestContainersOfTheImage(t *testing.T) {
	t.Parallel()
	redistest.Docker(t, redistest.Image, berthImage)
	net, err := boxes.New(t.Context())
	testcontainers.CleanupNetwork(t, net)
	must(t, err)
	box(t, net, "redis", redistest.Image, "6379/tcp", "Ready to accept connections",
		testcontainers.WithCmd("redis-server", "--protected-mode", "no", "--save", "", "--appendonly", "yes", "--appendfsync", "always"))
	first, one := berthBox(t, net, "berth-1")
	_, two := berthBox(t, net, "berth-2")

	ctx := t.Context()
	worker, operator := asWorker(one), api{url: one.url, token: "demo-operator-token"}
	if err := one.do(ctx, http.MethodPut, "/v1/instances/i1", map[string]any{"address": "172.31.74.11:8000"}, nil); code(err) != "forbidden" {
		t.Errorf("a gateway's token registers an instance: %v", err)
	}
	boots := map[string]credentials{}
	for i, id := range []string{"i1", "i2"} {
		who, err := worker.enlist(ctx, id, "default", fmt.Sprintf("172.31.74.%d:8000", 11+i))
		must(t, err)
		boots[id] = who
	}
	var h hint
	eventually(t, "the first berth hints an instance", func() (err error) {
		h, err = one.route(ctx, "boxed")
		return err
	})
	// Told by one, saved through the other.
	first1 := newWrite(boots[h.Instance], h.Handle, "op-1")
	saved, err := asWorker(two).append(ctx, "boxed", first1)
	must(t, err)
	if saved.Durability.Level != "fsynced" {
		t.Errorf("saved with durability %q, want fsynced", saved.Durability.Level)
	}
	second := newWrite(boots[h.Instance], saved.Handle, "op-2")
	_, err = worker.append(ctx, "boxed", second)
	must(t, err)
	states, err := operator.states(ctx)
	must(t, err)
	if states["i1"] != "ready" || states["i2"] != "ready" {
		t.Errorf("instances are %v", states)
	}

	killBox(t, first)
	away, err := two.route(ctx, "boxed", "exclude="+h.Instance+":connect")
	must(t, err)
	if away.Instance == h.Instance || away.Version != 2 {
		t.Errorf("after the death of its instance the session is hinted as %+v", away)
	}
	other := boots[away.Instance]
	var got record
	must(t, asWorker(two).do(ctx, http.MethodPost, "/v1/recover", map[string]any{
		"session": "boxed", "handle": away.Handle, "instance": other.instance, "incarnation": other.incarnation,
	}, &got))
	if want := (&record{Turns: append(first1.Turns, second.Turns...)}).values(); !slices.Equal(got.values(), want) {
		t.Errorf("recovered %q, want %q", got.values(), want)
	}
}

func asWorker(a api) api { return api{url: a.url, token: "demo-worker-token"} }

// berthBox runs a berth that lets in the tokens of deploy/demo-tokens.json, and
// returns how a gateway reaches it.
func berthBox(t *testing.T, net *testcontainers.DockerNetwork, name string) (testcontainers.Container, api) {
	t.Helper()
	tokens, err := filepath.Abs(filepath.Join("..", "deploy", "demo-tokens.json"))
	must(t, err)
	c := box(t, net, name, berthImage, "7410/tcp", "msg=serving",
		testcontainers.WithEnv(map[string]string{
			"BERTH_LISTEN": "0.0.0.0:7410", "BERTH_STORE": "redis://redis:6379/0", "BERTH_TOKENS": "/tokens.json",
		}),
		testcontainers.WithFiles(testcontainers.ContainerFile{HostFilePath: tokens, ContainerFilePath: "/tokens.json", FileMode: 0o444}))
	t.Cleanup(func() { searchLog(t, c, name) })
	port, err := c.MappedPort(t.Context(), "7410/tcp")
	must(t, err)
	return c, api{url: "http://127.0.0.1:" + port.Port(), token: "demo-gateway-token"}
}

// box runs a container with a port published on loopback, and returns when it has
// logged that it is ready. It is removed with the test.
func box(t *testing.T, net *testcontainers.DockerNetwork, name, image, port, ready string, more ...testcontainers.ContainerCustomizer) testcontainers.Container {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := testcontainers.Run(ctx, image, append([]testcontainers.ContainerCustomizer{
		testcontainers.WithLogger(log.NewNoopLogger()),
		testcontainers.WithExposedPorts(port),
		testcontainers.WithHostConfigModifier(func(h *container.HostConfig) {
			h.PortBindings = network.PortMap{network.MustParsePort(port): {{HostIP: netip.MustParseAddr("127.0.0.1")}}}
		}),
		testcontainers.WithWaitStrategyAndDeadline(patience, wait.ForLog(ready)),
		boxes.WithNetwork([]string{name}, net),
	}, more...)...)
	testcontainers.CleanupContainer(t, c, testcontainers.StopTimeout(0))
	if err != nil {
		t.Fatalf("run %s: %v", name, err)
	}
	return c
}

// killBox ends what runs in the container as kill -9 does.
func killBox(t *testing.T, c testcontainers.Container) {
	t.Helper()
	docker, err := testcontainers.NewDockerClientWithOpts(t.Context())
	must(t, err)
	defer docker.Close()
	_, err = docker.ContainerKill(t.Context(), c.GetContainerID(), client.ContainerKillOptions{Signal: "SIGKILL"})
	must(t, err)
}

// searchLog looks for what no log may hold, and shows the log of a failed test.
func searchLog(t *testing.T, c testcontainers.Container, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	logs, err := c.Logs(ctx)
	if err != nil {
		t.Errorf("read the log of %s: %v", name, err)
		return
	}
	defer logs.Close()
	text, err := io.ReadAll(logs)
	if err != nil {
		t.Errorf("read the log of %s: %v", name, err)
	}
	if bad := trouble.Find(text); bad != nil {
		t.Errorf("%s logged trouble: %s", name, bad)
	}
	if t.Failed() {
		t.Logf("log of %s:\n%s", name, text)
	}
}
