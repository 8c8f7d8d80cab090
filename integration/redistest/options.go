package redistest

import "strconv"

// Image is the Redis that container tests, docker-compose.yml and .ci/redis-image
// name alike (TestImageTagIsOne).
const Image = "redis:7-alpine"

// databases is how many databases a server of ours has; one each is lent to a test.
const databases = 128

// config is what a test asks of its server. Equal configs may share one.
type config struct {
	fsync     string
	maxMemory int64
	private   bool
}

// Option changes the server that a test gets. The default is a shared one in
// memory only, without a limit.
type Option func(*config)

// Fsync turns the append-only file on with an appendfsync policy: always,
// everysec or no.
func Fsync(policy string) Option { return func(c *config) { c.fsync = policy } }

// MaxMemory limits the data to n bytes under the policy noeviction, on a server of
// the test's own: filling it would fail its neighbours.
func MaxMemory(n int64) Option {
	return func(c *config) { c.maxMemory, c.private = n, true }
}

// Private gives the test a server that no other test uses.
func Private() Option { return func(c *config) { c.private = true } }

func newConfig(opts []Option) config {
	var c config
	for _, opt := range opts {
		opt(&c)
	}
	return c
}

// args are the redis-server arguments for c, without port and directory. They
// override whatever a configuration file or an image says.
func (c config) args() []string {
	args := []string{"--save", "", "--protected-mode", "no", "--appendonly", "no"}
	if c.fsync != "" {
		args = []string{"--save", "", "--protected-mode", "no", "--appendonly", "yes", "--appendfsync", c.fsync}
	}
	if c.maxMemory > 0 {
		args = append(args, "--maxmemory", strconv.FormatInt(c.maxMemory, 10), "--maxmemory-policy", "noeviction")
	}
	return args
}
