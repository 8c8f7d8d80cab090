package redistest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestStandaloneAnswers(t *testing.T) {
	t.Parallel()
	s := Standalone(t)
	t.Logf("served by %s", s.Rung)
	if got, err := s.Client(t).Ping(t.Context()).Result(); err != nil || got != "PONG" {
		t.Fatalf("ping %s: %q, %v", s.Addr, got, err)
	}
}

// TestStandaloneDatabasesAreApart holds that two tests on one server do not see
// each other's keys, and that the next one begins with an empty database.
func TestStandaloneDatabasesAreApart(t *testing.T) {
	t.Parallel()
	var used []string
	for _, name := range []string{"first", "second"} {
		t.Run(name, func(t *testing.T) {
			a, b := Standalone(t), Standalone(t)
			if a.URL == b.URL {
				t.Fatalf("both got %s", a.URL)
			}
			used = append(used, a.URL)
			must(t, a.Client(t).Set(t.Context(), "key", name, 0).Err())
			for _, s := range []Server{a, b} {
				want := int64(0)
				if s == a {
					want = 1
				}
				if n := s.Client(t).DBSize(t.Context()).Val(); n != want {
					t.Errorf("%s holds %d keys, want %d", s.URL, n, want)
				}
			}
		})
	}
	t.Logf("used %v", used)
}

func TestOptionsReachTheServer(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		opts []Option
		want map[string]string
	}{
		{"default", []Option{Private()}, map[string]string{"appendonly": "no", "save": ""}},
		{"always", []Option{Fsync("always")}, map[string]string{"appendonly": "yes", "appendfsync": "always"}},
		{"everysec", []Option{Fsync("everysec"), Private()}, map[string]string{"appendonly": "yes", "appendfsync": "everysec"}},
		{"limited", []Option{MaxMemory(8 << 20)}, map[string]string{"maxmemory": "8388608", "maxmemory-policy": "noeviction"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := Standalone(t, tt.opts...)
			for name, want := range tt.want {
				got, err := s.Client(t).ConfigGet(t.Context(), name).Result()
				if err != nil || got[name] != want {
					t.Errorf("%s is %q (%v), want %q", name, got[name], err, want)
				}
			}
		})
	}
}

// TestEachRung opens every rung that the machine has, whichever the ladder would take.
func TestEachRung(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, s *server, err error, need string) {
		if errors.As(err, new(absent)) {
			missing(t, need, err)
		}
		must(t, err)
		atEnd(t, s.stop)
		n, giveBack, err := s.lend(t.Context())
		must(t, err)
		atEnd(t, giveBack)
		must(t, s.database(n).Client(t).Set(t.Context(), "key", "value", 0).Err())
	}
	t.Run("docker", func(t *testing.T) {
		t.Parallel()
		s, err := openContainer(t.Context(), config{fsync: "always"})
		check(t, s, err, needDocker)
	})
	t.Run("process", func(t *testing.T) {
		t.Parallel()
		s, err := openProcess(t.Context(), config{fsync: "always"})
		check(t, s, err, needRedis)
	})
	t.Run("url", func(t *testing.T) {
		t.Parallel()
		s, err := openNamed(t.Context(), Start(t, Fsync("always")).URL, config{fsync: "always"})
		check(t, s, err, needRedis)
	})
}

// TestNamedServer holds how a server that a person named is judged.
func TestNamedServer(t *testing.T) {
	t.Parallel()
	p := Start(t, Fsync("everysec"))
	dead := Start(t)
	dead.Kill9(t)
	tests := []struct {
		name, url string
		c         config
		absent    bool
		says      string
	}{
		{"not named", "", config{}, true, "not set"},
		{"any", p.URL, config{}, false, ""},
		{"as asked", p.URL, config{fsync: "everysec"}, false, ""},
		{"weaker than asked", p.URL, config{fsync: "always"}, true, "appendfsync everysec"},
		{"not to be shared", p.URL, config{private: true}, true, "to itself"},
		{"dead", dead.URL, config{}, false, "ping the server"},
		{"no URL", "localhost", config{}, false, "parse the URL"},
	}
	for _, tt := range tests {
		_, err := openNamed(t.Context(), tt.url, tt.c)
		if errors.As(err, new(absent)) != tt.absent {
			t.Errorf("%s: error %v, want absent %v", tt.name, err, tt.absent)
		}
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: error %v, want it to say %q", tt.name, err, tt.says)
		}
	}
}

// TestLendSparesForeignKeys holds that a database with keys in it is neither lent
// nor emptied, and that a lent one comes back empty.
func TestLendSparesForeignKeys(t *testing.T) {
	t.Parallel()
	p := Start(t)
	s, err := newServer(p.URL, "url", func(context.Context) error { return nil })
	must(t, err)
	foreign := redis.NewClient(&redis.Options{Addr: p.Addr, DB: 1})
	defer foreign.Close()
	must(t, foreign.Set(t.Context(), "precious", "1", 0).Err())

	n, giveBack, err := s.lend(t.Context())
	must(t, err)
	if n != 2 {
		t.Fatalf("lent database %d, want 2", n)
	}
	must(t, s.database(n).Client(t).Set(t.Context(), "key", "1", 0).Err())
	must(t, giveBack(t.Context()))
	again, _, err := s.lend(t.Context())
	must(t, err)
	if again != 2 {
		t.Errorf("lent database %d after 2 was given back", again)
	}
	if foreign.Exists(t.Context(), "precious").Val() != 1 {
		t.Error("a foreign key is gone")
	}
}

func TestDockerWithoutTheImage(t *testing.T) {
	Docker(t)
	t.Setenv("BERTH_TEST_REQUIRE", "")
	const image = "localhost:1/berth/no-such-image:1"
	const want = "not tested without docker: Docker has no image " + image + " and cannot pull it"
	hush(t, want)
	r := (&recorder{TB: t}).during(func(tb testing.TB) { Docker(tb, image) })
	if r.skipped != want || r.failed != "" {
		t.Errorf("skipped %q, failed %q", r.skipped, r.failed)
	}
}

// TestGoTestSaysWhatItSkips runs `go test` without redis-server in PATH: it passes,
// and names what it did not test although it shows no output of packages that pass.
func TestGoTestSaysWhatItSkips(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("not tested outside Linux: the notice of skips in `go test` without -v")
	}
	goTool, err := exec.LookPath("go")
	must(t, err)
	cmd := exec.CommandContext(t.Context(), goTool, "test", "-count=1", "-run=^TestClusterServesEverySlot$", ".")
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(goTool), "CGO_ENABLED=0", "GOFLAGS=", "BERTH_TEST_REQUIRE=")
	out, err := cmd.CombinedOutput()
	const want = "berth/integration/redistest: not tested without redis: a Redis Cluster: no redis-server in PATH\n"
	if err != nil || !strings.Contains(string(out), want) {
		t.Errorf("got %v and\n%s\nwant it to say\n%s", err, out, want)
	}
}

// TestImageTagIsOne holds that the tests, the compose file and the script that
// builds the image mean the same image.
func TestImageTagIsOne(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"docker-compose.yml", ".ci/redis-image"} {
		text, err := os.ReadFile(filepath.Join("..", "..", file))
		must(t, err)
		if !strings.Contains(string(text), Image) {
			t.Errorf("%s does not name %s", file, Image)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
