package redisstore

import (
	"crypto/sha1" //nolint:gosec // the name that Redis gives a script
	"embed"
	"encoding/hex"
	"strings"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// Flags of scripts, as Redis 7 reads them. A script without any is refused as a
// whole while memory is full.
const (
	refusedWhenFull = ""
	evenWhenFull    = "flags=allow-oom"
	readsOnly       = "flags=no-writes"
)

// script is one transition, ready to be called by its digest.
type script struct {
	name, source, sha string
}

func newScript(flags string, files ...string) *script {
	var b strings.Builder
	b.WriteString(strings.TrimSpace("#!lua "+flags) + "\n")
	for _, name := range files {
		text, err := luaFiles.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err) // the names are constants
		}
		b.Write(text)
		b.WriteString("\n")
	}
	sum := sha1.Sum([]byte(b.String())) //nolint:gosec // see the import
	return &script{name: files[len(files)-1], source: b.String(), sha: hex.EncodeToString(sum[:])}
}

var (
	appendScript = newScript(refusedWhenFull, "session", "log", "append")
	// probeScript judges a write while memory is full, to answer what was stored
	// before and to refuse for a better reason.
	probeScript   = newScript(evenWhenFull, "session", "log", "append")
	bindScript    = newScript(refusedWhenFull, "session", "bind")
	placeScript   = newScript(refusedWhenFull, "session", "place")
	claimScript   = newScript(evenWhenFull, "session", "claim")
	moveScript    = newScript(evenWhenFull, "session", "move")
	reserveScript = newScript(evenWhenFull, "session", "reserve")
	finishScript  = newScript(evenWhenFull, "session", "finish")
	deleteScript  = newScript(evenWhenFull, "session", "delete")
	expireScript  = newScript(evenWhenFull, "session", "expire")

	stageScript   = newScript(refusedWhenFull, "stage")
	unstageScript = newScript(evenWhenFull, "unstage")
	fenceScript   = newScript(evenWhenFull, "fence")
	commitScript  = newScript(evenWhenFull, "commit")
	fleetScript   = newScript(readsOnly, "fleet")
	peekScript    = newScript(readsOnly, "peek")
	lookupScript  = newScript(readsOnly, "lookup")
	viewsScript   = newScript(readsOnly, "views")
	dueScript     = newScript(readsOnly, "due")
	countScript   = newScript(readsOnly, "count")
)
