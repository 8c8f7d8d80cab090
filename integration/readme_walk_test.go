package integration_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/integration/redistest"
)

// TestReadmeWalk runs the README's lines for curl word for word against a real
// server: once as they stand, and once with kill -9 and a restart of the server
// between every two of them. Either way the recovered turns are the same bytes.
func TestReadmeWalk(t *testing.T) {
	t.Parallel()
	needTools(t, "the README's lines for curl", "bash", "curl", "sed")
	block := readmeBlock(t)
	t.Run("as it stands", func(t *testing.T) {
		t.Parallel()
		server := serveForReader(t, block)
		walk(t, server, block)
	})
	t.Run("with kill -9 between every two commands", func(t *testing.T) {
		t.Parallel()
		server := serve(t)
		commands := statements(t, block)
		var restarting sync.Mutex
		kills := 0
		executioner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			restarting.Lock()
			if err := server.kill(); err != nil {
				t.Error(err)
			}
			kills++
			// The next command meets a server that is not there yet.
			go func() {
				defer restarting.Unlock()
				if err := server.start(t.Context()); err != nil {
					t.Error(err)
				}
			}()
		}))
		defer executioner.Close()
		kill := "curl -fsS -o /dev/null " + executioner.URL + " || exit 97\n"
		walk(t, server, strings.Join(commands, kill))
		restarting.Lock()
		defer restarting.Unlock()
		if kills != len(commands)-1 {
			t.Errorf("the server was killed %d times between %d commands", kills, len(commands))
		}
	})
}

var (
	readmeMarker = regexp.MustCompile("(?s)<!--[^>]*TestReadmeWalk[^>]*-->\n```sh\n(.*?)```")
	readmeBase   = regexp.MustCompile(`(?m)^B=http://(.*)$`)
	readmeTurn   = regexp.MustCompile(`(?m)^save \S+ '(.*)'$`)
)

// readmeBlock is the block of the README that this test's name stands above.
func readmeBlock(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "README.md"))
	must(t, err)
	found := readmeMarker.FindSubmatch(text)
	if found == nil || !readmeBase.Match(found[1]) || len(readmeTurn.FindAll(found[1], -1)) == 0 {
		t.Fatal("README.md has no block of commands below the comment that names TestReadmeWalk, with B=http://… and save …")
	}
	return string(found[1])
}

// serveForReader serves where the README says, or elsewhere if that port is taken.
func serveForReader(t *testing.T, block string) *berth {
	t.Helper()
	addr := readmeBase.FindStringSubmatch(block)[1]
	if !free(addr) {
		return serve(t)
	}
	b := newBerth(t, addr)
	if err := b.start(t.Context()); err != nil {
		if b.log.has("address already in use") {
			return serve(t)
		}
		t.Fatal(err)
	}
	return b
}

// walk runs the commands and holds what they print against what they save.
func walk(t *testing.T, server *berth, commands string) {
	t.Helper()
	script := filepath.Join(t.TempDir(), "walk.sh")
	commands = readmeBase.ReplaceAllLiteralString(commands, "B="+server.url)
	must(t, os.WriteFile(script, []byte(commands), 0o600))
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "bash", script)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &stdout, &stderr, 10*time.Second
	if err := cmd.Run(); err != nil {
		t.Fatalf("the commands end with %v\nstdout:\n%s\nstderr:\n%s", err, stdout.String(), stderr.String())
	}
	printed := documents(t, stdout.Bytes())
	var hints []hint
	var contexts [][]string
	for _, raw := range printed {
		var d struct {
			hint
			Turns *[]turn `json:"turns"`
		}
		must(t, json.Unmarshal(raw, &d))
		switch {
		case d.Turns != nil:
			contexts = append(contexts, (&record{Turns: *d.Turns}).values())
		case d.Address != "":
			hints = append(hints, d.hint)
		}
	}
	if len(hints) != 2 || hints[0].Instance == hints[1].Instance || hints[1].Previous != hints[0].Instance {
		t.Errorf("want a hint, and after the death of its instance one to the other that names the first; got %+v", hints)
	}
	want := savedTurns(commands)
	if len(contexts) != 2 {
		t.Fatalf("want a recovery and a load, got %d contexts in\n%s\nstderr:\n%s", len(contexts), stdout.String(), stderr.String())
	}
	for i, got := range contexts {
		if !slices.Equal(got, want) {
			t.Errorf("context %d has turns\n%q\nwant\n%q", i, got, want)
		}
	}
}

// savedTurns are the values that the commands save.
func savedTurns(commands string) (values []string) {
	for _, m := range readmeTurn.FindAllStringSubmatch(commands, -1) {
		values = append(values, m[1])
	}
	return values
}

// documents are the JSON values that stand in a text one after the other.
func documents(t *testing.T, text []byte) (all []json.RawMessage) {
	t.Helper()
	for dec := json.NewDecoder(bytes.NewReader(text)); ; {
		var raw json.RawMessage
		err := dec.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("what was printed is not JSON after %d documents: %v\n%s", len(all), err, text)
		}
		all = append(all, raw)
	}
}

// statements cuts a script into its commands: as few lines each as bash takes for
// whole.
func statements(t *testing.T, script string) (all []string) {
	t.Helper()
	command := ""
	for line := range strings.Lines(script) {
		command += line
		if blank := strings.TrimSpace(command); blank == "" || strings.HasPrefix(blank, "#") && !strings.Contains(blank, "\n") {
			command = "" // says nothing to the shell
			continue
		}
		check := exec.CommandContext(t.Context(), "bash", "-n")
		check.Stdin = strings.NewReader(command)
		if strings.HasSuffix(strings.TrimSpace(line), `\`) || check.Run() != nil {
			continue
		}
		all, command = append(all, command), ""
	}
	if command != "" || len(all) < 10 {
		t.Fatalf("cut the script into %d commands, with %q left over", len(all), command)
	}
	return all
}

// needTools leaves out a test where a program is missing that it runs.
func needTools(t *testing.T, what string, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			redistest.Lacks(t, tool, fmt.Errorf("%s: %w", what, err))
		}
	}
}
