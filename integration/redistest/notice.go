package redistest

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// testPackage names the package under test as `go test` prints it.
func testPackage() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Path != "" {
		return strings.TrimSuffix(info.Path, ".test")
	}
	return strings.TrimSuffix(filepath.Base(os.Args[0]), ".test")
}
