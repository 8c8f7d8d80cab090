package redisstore

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// shared are the files whose names all that follow may use, in this order.
var shared = [...]string{"library", "session", "log"}

// transitions are one file each, which registers what a call names.
var transitions = [...]string{
	"append", "many", "claim", "move", "reserve", "finish", "delete", "bind", "place", "expire",
	"lookup", "views", "due", "count", "stage", "unstage", "fence", "peek", "fleet", "beat", "commit",
}

// library is the source of all transitions as one library of functions, and its
// name. Redis keeps functions, where it forgets scripts: what a script would build
// anew at every call, which costs more than the call, is built once. The name is
// that of the content, so that two versions stand side by side.
var library, libraryName = composeLibrary()

func composeLibrary() (source, name string) {
	var b strings.Builder
	for _, file := range shared {
		b.WriteString(readLua(file) + "\n")
	}
	for _, file := range transitions {
		b.WriteString("do\n" + readLua(file) + "end\n\n")
	}
	body := capitals.ReplaceAllStringFunc(b.String(), func(word string) string {
		if i := slices.Index(recordPlaces[:], word); i >= 0 {
			return strconv.Itoa(i + 1)
		}
		return word
	})
	sum := sha256.Sum256([]byte(body))
	name = "berth_" + hex.EncodeToString(sum[:4])
	return fmt.Sprintf("#!lua name=%s\nlocal LIBRARY = '%s'\n%s", name, name, body), name
}

// recordPlaces are the numbers and strings of a record in their order, by the names
// that the files have for their places. decodeRecord reads the same.
var recordPlaces = [...]string{
	"FORMAT", "BORN", "REWRITTEN", "EXPIRES", "AFFINITY", "CREATED", "LASTTURN", "BOUND",
	"EPOCH", "VERSION", "TURNS", "BYTES", "TOKENSHIGH", "TOKENS", "CHAIN", "AFFINITYKEY",
	"BEFORE", "BEFOREWHY", "LOSTEPOCH", "LOSTWANT", "TAILEPOCH", "PLANUNTIL", "PLANTOKEN",
	"TOMBLIFE", "KEEP", "DUE", "LASTCALL", "PARKED", "ENTRIES", "PIECES", "STREAM", "SINCE", "SEQ",
	"OWNER", "TAIL", "PLANJOB", "PLANTARGET", "NAMES", "CHANGES", "OPS", "STRINGSAT",
}

var capitals = regexp.MustCompile(`\b[A-Z]+\b`)

func readLua(file string) string {
	text, err := luaFiles.ReadFile("lua/" + file + ".lua")
	if err != nil {
		panic(err) // the names are constants
	}
	return string(text)
}

// function is the name under which Redis knows a transition.
func function(transition string) string { return libraryName + "_" + transition }

// The transitions, as calls name them.
var (
	appendFn  = function("append")
	judgeFn   = function("judge")
	manyFn    = function("many")
	claimFn   = function("claim")
	moveFn    = function("move")
	reserveFn = function("reserve")
	finishFn  = function("finish")
	deleteFn  = function("delete")
	bindFn    = function("bind")
	placeFn   = function("place")
	expireFn  = function("expire")
	lookupFn  = function("lookup")
	viewsFn   = function("views")
	dueFn     = function("due")
	countFn   = function("count")
	stageFn   = function("stage")
	unstageFn = function("unstage")
	fenceFn   = function("fence")
	peekFn    = function("peek")
	fleetFn   = function("fleet")
	beatFn    = function("beat")
	commitFn  = function("commit")
)

// notLoaded reports whether err says that the server does not have the library: it
// is new, or was flushed.
func notLoaded(err error) bool { return redis.HasErrorPrefix(err, "Function not found") }

// loadLibrary gives every primary the library. One that has it is not asked to load
// it, which it would refuse while memory is full.
func (s *Store) loadLibrary(ctx context.Context) error {
	load := func(ctx context.Context, on *redis.Client) error {
		have, err := on.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: libraryName}).Result()
		if err != nil || len(have) > 0 {
			return err
		}
		err = on.FunctionLoad(ctx, library).Err()
		if err != nil && strings.Contains(err.Error(), "already exists") {
			return nil // another process was quicker
		}
		return err
	}
	switch c := s.client.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, load)
	case *redis.Client:
		return load(ctx, c)
	}
	return nil
}
