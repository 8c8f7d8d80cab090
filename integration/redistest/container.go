package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/wait"
)

const (
	// pullTimeout bounds the one attempt to pull an image that the daemon lacks.
	pullTimeout = 2 * time.Minute
	// containerTimeout bounds the start of a Redis container.
	containerTimeout = 3 * time.Minute
)

// Docker demands a daemon and the images that the test will run, pulling those it
// lacks. Without them the test is skipped, or fails where docker is required.
func Docker(t testing.TB, images ...string) {
	t.Helper()
	for _, image := range images {
		if err := haveImage(t.Context(), image); err != nil {
			missing(t, needDocker, err)
		}
	}
	if len(images) > 0 {
		return
	}
	docker, err := daemon(t.Context())
	if err != nil {
		missing(t, needDocker, err)
	}
	_ = docker.Close()
}

// reaperOff leaves the removal of containers to the tests. testcontainers would
// start a container of its own for that, from an image that a machine without a
// registry lacks, and retry the pull for a quarter of an hour.
var reaperOff = sync.OnceValue(func() error {
	const name = "TESTCONTAINERS_RYUK_DISABLED"
	if os.Getenv(name) != "" {
		return nil
	}
	return os.Setenv(name, "true")
})

// daemon connects to Docker; the error is absent when there is none.
func daemon(ctx context.Context) (*testcontainers.DockerClient, error) {
	if err := reaperOff(); err != nil {
		return nil, fmt.Errorf("set up testcontainers: %w", err)
	}
	docker, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return nil, absent{"no Docker daemon answers"}
	}
	return docker, nil
}

// haveImage makes sure that the daemon holds the image; the error is absent when
// there is no daemon, or neither it nor a registry has the image.
func haveImage(ctx context.Context, image string) error {
	docker, err := daemon(ctx)
	if err != nil {
		return err
	}
	defer docker.Close()
	_, err = docker.ImageInspect(ctx, image)
	if err == nil {
		return nil
	}
	if !errdefs.IsNotFound(err) {
		return fmt.Errorf("look for the image %s: %w", image, err)
	}
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	pull, err := docker.ImagePull(ctx, image, client.ImagePullOptions{})
	if err == nil {
		err = pull.Wait(ctx)
	}
	if err != nil {
		return absent{fmt.Sprintf("Docker has no image %s and cannot pull it", image)}
	}
	return nil
}

// openContainer is the second rung. A container that does not come up is absent
// too: the next rung tests the same.
func openContainer(ctx context.Context, c config) (*server, error) {
	if err := haveImage(ctx, Image); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, containerTimeout)
	defer cancel()
	command := append([]string{"redis-server", "--databases", fmt.Sprint(databases)}, c.args()...)
	box, err := testcontainers.Run(ctx, Image,
		testcontainers.WithLogger(log.NewNoopLogger()),
		testcontainers.WithCmd(command...),
		testcontainers.WithExposedPorts("6379/tcp"),
		testcontainers.WithWaitStrategyAndDeadline(containerTimeout, wait.ForLog("Ready to accept connections")),
	)
	remove := func(ctx context.Context) error {
		if box == nil {
			return nil
		}
		return box.Terminate(ctx, testcontainers.StopContext(ctx), testcontainers.StopTimeout(0))
	}
	if err == nil {
		var addr string
		if addr, err = publishedAddr(ctx, box); err == nil {
			return newServer("redis://"+addr, "docker", remove)
		}
	}
	if left := remove(context.WithoutCancel(ctx)); left != nil {
		return nil, errors.Join(err, left)
	}
	return nil, absent{fmt.Sprintf("Docker does not run %s: %v", Image, err)}
}

// publishedAddr is where the container's Redis is reached from here. Inside a
// container testcontainers names the gateway of the daemon's network; loopback is
// right where the daemon runs beside the test.
func publishedAddr(ctx context.Context, box *testcontainers.DockerContainer) (string, error) {
	port, err := box.MappedPort(ctx, "6379/tcp")
	if err != nil {
		return "", fmt.Errorf("read the published port of the Redis container: %w", err)
	}
	host, err := box.Host(ctx)
	if err != nil {
		return "", fmt.Errorf("read the host of the Redis container: %w", err)
	}
	for _, h := range []string{host, "127.0.0.1"} {
		addr := net.JoinHostPort(h, port.Port())
		var conn net.Conn
		if conn, err = (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "tcp", addr); err == nil {
			return addr, conn.Close()
		}
	}
	return "", fmt.Errorf("reach the published port of the Redis container: %w", err)
}
