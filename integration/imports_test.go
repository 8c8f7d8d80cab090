package integration_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// module is the path every package of the project begins with.
const module = "berth"

// layer is what the packages under one path may import of the project and, where
// onlyStdlib is set, of others. A package is judged by the longest path that holds
// it; a path ending in /... stands for everything from there down.
type layer struct {
	path       string
	imports    []string
	tests      []string // what its tests may import besides
	onlyStdlib bool     // except for its tests
}

// layers is the architecture: arrows point down, and routing and statestore know
// nothing of each other, in tests neither. Backends are named by cmd alone, and by
// tests that run on a real one. Every package must be below one of these paths, so
// a new one has to say where it belongs.
var layers = []layer{
	{path: "cmd", imports: everything, tests: fixtures},
	{path: "services", imports: []string{"services/...", "migrations/...", "routing/...", "statestore", "statestore/handle", "statestore/line"}, tests: stores},
	{path: "migrations", imports: []string{"migrations/...", "routing/...", "statestore", "statestore/handle", "statestore/line"}, tests: stores},
	{path: "routing", imports: []string{"routing/..."}},
	{path: "statestore", onlyStdlib: true, tests: []string{"statestore/..."}},
	{path: "statestore/handle", imports: []string{"statestore"}},
	{path: "statestore/line", imports: []string{"statestore"}, onlyStdlib: true},
	{path: "statestore/internal", imports: []string{"statestore", "statestore/internal/..."}},
	{path: "statestore/storetest", imports: []string{"statestore", "statestore/internal/...", "statestore/storetest/..."}},
	{path: "statestore/redisstore", imports: []string{"statestore", "statestore/internal/...", "statestore/redisstore/..."}, tests: suite},
	{path: "statestore/boltstore", imports: []string{"statestore", "statestore/internal/...", "statestore/boltstore/..."}, tests: suite},
	{path: "client", imports: []string{"client/..."}, tests: slices.Concat(everything, fixtures)},
	{path: "integration", imports: slices.Concat(everything, fixtures)},
	{path: "integration/redistest"},
}

var (
	everything = []string{"cmd/...", "services/...", "migrations/...", "routing/...", "statestore/...", "client/..."}
	fixtures   = []string{"integration/redistest"}
	suite      = []string{"statestore/storetest", "integration/redistest"}
	stores     = []string{"statestore/...", "integration/redistest"}
)

// pkg is the part of `go list -json` that the rules read.
type pkg struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// TestImportsPointDown holds the arrows for the project as it is.
func TestImportsPointDown(t *testing.T) {
	t.Parallel()
	pkgs := list(t)
	if len(pkgs) < 5 {
		t.Fatalf("go list found %d packages of the module", len(pkgs))
	}
	for _, p := range pkgs {
		for _, v := range violations(p) {
			t.Error(v)
		}
	}
}

// TestImportRulesCatch holds the rules themselves against packages that break them.
func TestImportRulesCatch(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		pkg  pkg
		bad  string
	}{
		{"routing reads the store", pkg{ImportPath: "berth/routing", Imports: []string{"berth/statestore"}}, "berth/statestore"},
		{"the store knows routing", pkg{ImportPath: "berth/statestore/redisstore", Imports: []string{"berth/routing"}}, "berth/routing"},
		{"the contract takes a library", pkg{ImportPath: "berth/statestore", Imports: []string{"github.com/cespare/xxhash/v2"}}, "github.com/cespare/xxhash/v2"},
		{"the contract's test takes a library", pkg{ImportPath: "berth/statestore", XTestImports: []string{"pgregory.net/rapid"}}, ""},
		{"routing takes a library", pkg{ImportPath: "berth/routing", Imports: []string{"github.com/cespare/xxhash/v2", "slices"}}, ""},
		{"migrations point up", pkg{ImportPath: "berth/migrations", Imports: []string{"berth/services"}}, "berth/services"},
		{"services name a backend", pkg{ImportPath: "berth/services", Imports: []string{"berth/statestore/boltstore"}}, "berth/statestore/boltstore"},
		{"a test of services names a backend", pkg{ImportPath: "berth/services", TestImports: []string{"berth/statestore/boltstore"}}, ""},
		{"a test of routing reads the store", pkg{ImportPath: "berth/routing", TestImports: []string{"berth/statestore"}}, "berth/statestore"},
		{"a backend runs the suite", pkg{ImportPath: "berth/statestore/boltstore", XTestImports: []string{"berth/statestore/storetest"}}, ""},
		{"a backend ships the suite", pkg{ImportPath: "berth/statestore/boltstore", Imports: []string{"berth/statestore/storetest"}}, "berth/statestore/storetest"},
		{"a test of routing points up", pkg{ImportPath: "berth/routing", XTestImports: []string{"berth/services"}}, "berth/services"},
		{"one backend knows the other", pkg{ImportPath: "berth/statestore/boltstore", Imports: []string{"berth/statestore/redisstore"}}, "berth/statestore/redisstore"},
		{"the client knows the server", pkg{ImportPath: "berth/client", Imports: []string{"berth/statestore"}}, "berth/statestore"},
		{"the server calls itself", pkg{ImportPath: "berth/services", Imports: []string{"berth/client"}}, "berth/client"},
		{"the program wires", pkg{ImportPath: "berth/cmd/berth", Imports: []string{"berth/statestore/redisstore", "berth/services", "net/http"}}, ""},
		{"the program ships a fixture", pkg{ImportPath: "berth/cmd/berth", Imports: []string{"berth/integration/redistest"}}, "berth/integration/redistest"},
		{"a package without a layer", pkg{ImportPath: "berth/misc"}, "berth/misc"},
		{"a name that only begins alike", pkg{ImportPath: "berth/routing2"}, "berth/routing2"},
	}
	for _, tt := range tests {
		got := violations(tt.pkg)
		if tt.bad == "" && len(got) > 0 {
			t.Errorf("%s: got %q", tt.name, got)
		}
		if tt.bad != "" && (len(got) != 1 || !strings.Contains(got[0], tt.bad)) {
			t.Errorf("%s: got %q, want one about %s", tt.name, got, tt.bad)
		}
	}
}

// violations says which imports of a package its layer does not allow.
func violations(p pkg) []string {
	l, ok := layerOf(p.ImportPath)
	if !ok {
		return []string{p.ImportPath + " is in no layer: say in integration/imports_test.go what it may import"}
	}
	var found []string
	for _, imported := range p.Imports {
		if !l.allows(imported) || l.onlyStdlib && !standard(imported) {
			found = append(found, fmt.Sprintf("%s imports %s; of the project it may import %v", p.ImportPath, imported, l.imports))
		}
	}
	inTests := layer{path: l.path, imports: slices.Concat(l.imports, l.tests)}
	for _, imported := range slices.Concat(p.TestImports, p.XTestImports) {
		// A test outside its package imports the package it tests.
		if imported != p.ImportPath && !inTests.allows(imported) {
			found = append(found, fmt.Sprintf("a test of %s imports %s; of the project it may import %v", p.ImportPath, imported, inTests.imports))
		}
	}
	return found
}

// layerOf finds the layer with the longest path that holds the package.
func layerOf(importPath string) (best layer, ok bool) {
	for _, l := range layers {
		if holds(l.path+"/...", importPath) && len(l.path) > len(best.path) {
			best, ok = l, true
		}
	}
	return best, ok
}

// allows judges imports of the project; others are allowed.
func (l layer) allows(imported string) bool {
	return !strings.HasPrefix(imported, module+"/") ||
		slices.ContainsFunc(l.imports, func(pattern string) bool { return holds(pattern, imported) })
}

func holds(pattern, importPath string) bool {
	below, all := strings.CutSuffix(module+"/"+pattern, "/...")
	return importPath == below || all && strings.HasPrefix(importPath, below+"/")
}

// standard tells the standard library by its first element, which has no dot.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

// list asks the go tool for every package of the module.
func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports", module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return pkgs
		}
		if err != nil {
			t.Fatalf("read the answer of go list: %v", err)
		}
		pkgs = append(pkgs, p)
	}
}
