package redistest

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestParseRequirements(t *testing.T) {
	t.Parallel()
	tests := []struct {
		list          string
		redis, docker bool
		ok            bool
	}{
		{"", false, false, true},
		{"redis", true, false, true},
		{"redis,docker", true, true, true},
		{" docker , redis ,", true, true, true},
		{"redsi", false, false, false},
		{"Redis", false, false, false},
	}
	for _, tt := range tests {
		req, err := parseRequirements(tt.list)
		if (err == nil) != tt.ok {
			t.Errorf("%q: error %v, want ok %v", tt.list, err, tt.ok)
		}
		if req[needRedis] != tt.redis || req[needDocker] != tt.docker {
			t.Errorf("%q: got %v", tt.list, req)
		}
	}
}

// TestClimb holds the ladder's decisions: which rung serves, and when a climb ends
// in a skip (an absent error) or a failure (any other).
func TestClimb(t *testing.T) {
	t.Parallel()
	const holds, lacks, broken = "holds", "lacks", "broken"
	tests := []struct {
		name                string
		url, docker, binary string
		require             string
		served              string
		skip                bool
		says                string
	}{
		{name: "a named server wins", url: holds, docker: holds, binary: holds, served: "url"},
		{name: "Docker before the program", url: lacks, docker: holds, binary: holds, served: "docker"},
		{name: "the program last", url: lacks, docker: lacks, binary: holds, served: "process"},
		{name: "nothing skips and lists why", url: lacks, docker: lacks, binary: lacks, skip: true,
			says: "url lacks; docker lacks; process lacks"},
		{name: "a named server that is broken fails", url: broken, docker: holds, binary: holds, says: errBroken.Error()},
		{name: "a broken program fails", url: lacks, docker: lacks, binary: broken, says: errBroken.Error()},
		{name: "required Docker is not passed over", url: lacks, docker: lacks, binary: holds, require: "docker",
			says: "BERTH_TEST_REQUIRE names docker: docker lacks"},
		{name: "required Docker is not asked behind a named server", url: holds, docker: lacks, binary: lacks,
			require: "docker", served: "url"},
		{name: "required redis is left to the caller", url: lacks, docker: lacks, binary: lacks, require: "redis", skip: true},
		{name: "required redis on the last rung", url: lacks, docker: lacks, binary: holds, require: "redis", served: "process"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			step := func(name, need, state string) rung {
				return rung{need: need, open: func(context.Context, config) (*server, error) {
					switch state {
					case lacks:
						return nil, absent{name + " lacks"}
					case broken:
						return nil, errBroken
					}
					return &server{rung: name}, nil
				}}
			}
			rungs := []rung{step("url", "", tt.url), step("docker", needDocker, tt.docker), step("process", "", tt.binary)}
			req, err := parseRequirements(tt.require)
			if err != nil {
				t.Fatal(err)
			}
			s, err := climb(t.Context(), rungs, config{}, req)
			if tt.served != "" {
				if err != nil || s.rung != tt.served {
					t.Fatalf("got %+v and error %v, want %s", s, err, tt.served)
				}
				return
			}
			if errors.As(err, new(absent)) != tt.skip {
				t.Errorf("got error %v, want skip %v", err, tt.skip)
			}
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got error %v, want it to say %q", err, tt.says)
			}
		})
	}
}

// TestMissing holds that a skip says what it is about, and that a requirement
// makes it a failure.
func TestMissing(t *testing.T) {
	hush(t, "not tested without docker: no daemon")
	tests := []struct {
		require       string
		skips, failed string
	}{
		{"", "not tested without docker: no daemon", ""},
		{"redis", "not tested without docker: no daemon", ""},
		{"redis,docker", "", "BERTH_TEST_REQUIRE names docker: no daemon"},
		{"dokcer", "", `BERTH_TEST_REQUIRE names "dokcer"; it knows redis and docker`},
	}
	for _, tt := range tests {
		t.Setenv("BERTH_TEST_REQUIRE", tt.require)
		r := (&recorder{TB: t}).during(func(tb testing.TB) { missing(tb, needDocker, absent{"no daemon"}) })
		if r.skipped != tt.skips || r.failed != tt.failed {
			t.Errorf("BERTH_TEST_REQUIRE=%s: skipped %q, failed %q", tt.require, r.skipped, r.failed)
		}
	}
}
