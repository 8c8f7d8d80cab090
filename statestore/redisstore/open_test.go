package redisstore

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"berth/integration/redistest"
	"berth/statestore"
)

func TestParseTarget(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]func(*redis.UniversalOptions) string{
		"redis://h":          func(*redis.UniversalOptions) string { return "redis [h:6379]" },
		"redis://h:1/3":      func(o *redis.UniversalOptions) string { o.DB = 3; return "redis [h:1]" },
		"redis://[::1]:7/":   func(*redis.UniversalOptions) string { return "redis [[::1]:7]" },
		"redis://[::1]":      func(*redis.UniversalOptions) string { return "redis [[::1]:6379]" },
		"redis://u:p%40@h:1": func(o *redis.UniversalOptions) string { o.Username, o.Password = "u", "p@"; return "redis [h:1]" },
		"redis://h?read_timeout=7ms&pool_size=9": func(o *redis.UniversalOptions) string {
			o.ReadTimeout, o.PoolSize = 7*time.Millisecond, 9
			return "redis [h:6379]"
		},
		"redis+cluster://a:1,b:2,c": func(*redis.UniversalOptions) string { return "redis-cluster [a:1 b:2 c:6379]" },
		"redis+sentinel://:p@a,b:2/main?db=4&sentinel_password=q": func(o *redis.UniversalOptions) string {
			o.Password, o.SentinelPassword, o.MasterName, o.DB = "p", "q", "main", 4
			return "redis-sentinel [a:26379 b:2]"
		},
	} {
		got, err := parseTarget(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		wanted := settings()
		if s, w := fmt.Sprint(got.backend, " ", got.options.Addrs), want(&wanted); s != w {
			t.Errorf("%s: %s, want %s", raw, s, w)
		}
		wanted.Addrs = got.options.Addrs
		if !reflect.DeepEqual(got.options, wanted) {
			t.Errorf("%s:\n got %+v\nwant %+v", raw, got.options, wanted)
		}
	}
	tls, err := parseTarget("rediss+cluster://a")
	if err != nil || tls.options.TLSConfig == nil {
		t.Errorf("rediss+cluster: TLS %v, %v", tls.options.TLSConfig, err)
	}
}

func TestBadTargetsAreRefusedWithoutTheirSecrets(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"", "h:6379", "http://u:secret@h", "redis+file://u:secret@h", "redis://u:secret@h/x", "redis://u:secret@h/1?nope=1",
		"redis://u:secret@h?read_timeout=secret", "redis://u:secret@h?db=-1", "redis://u:sec%zzret@h",
		"redis+sentinel://u:secret@h", "redis+cluster://u:secret@h/1",
	} {
		_, err := parseTarget(raw)
		if !errors.Is(err, statestore.ErrInvalid) {
			t.Errorf("%s: %v, want it to be invalid", raw, err)
		} else if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "ret@") {
			t.Errorf("%s: the error tells the secret: %v", raw, err)
		}
	}
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{Prefix: "a{b}"}, {Partitions: -1}, {Partitions: maxPartitions + 1}} {
		if _, err := Open(t.Context(), "redis://127.0.0.1:1", o); !errors.Is(err, statestore.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// Case T35: a server that evicts keys early loses sessions, whole or in parts.
func TestEvictionIsRefused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	for _, policy := range []string{"allkeys-lru", "volatile-ttl"} {
		if err := client.ConfigSet(t.Context(), "maxmemory-policy", policy).Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), server.URL, Options{}); err == nil || !strings.Contains(err.Error(), policy) {
			t.Fatalf("open on %s: %v", policy, err)
		}
		s := open(t, server.URL, func(o *Options) { o.AllowEviction = true })
		d, err := s.Describe(t.Context())
		if err != nil || !strings.Contains(strings.Join(d.Warnings, "\n"), policy) {
			t.Fatalf("warnings %q, %v", d.Warnings, err)
		}
	}
}

func TestJudgeServer(t *testing.T) {
	t.Parallel()
	s := &Store{}
	good := server{version: "7.0.15", eviction: "noeviction", confirmed: true, aof: true, fsyncAlways: true}
	for name, c := range map[string]struct {
		change  func(*server)
		refused bool
		warns   int
	}{
		"good":             {func(*server) {}, false, 0},
		"newer":            {func(o *server) { o.version = "8.2.1" }, false, 0},
		"older":            {func(o *server) { o.version = "6.2.14" }, true, 0},
		"evicts":           {func(o *server) { o.eviction = "volatile-lru" }, true, 0},
		"no AOF":           {func(o *server) { o.aof, o.fsyncAlways = false, false }, false, 1},
		"everysec":         {func(o *server) { o.fsyncAlways = false }, false, 1},
		"may not be asked": {func(o *server) { *o = server{version: "7.0.0"} }, false, 2},
	} {
		one := good
		c.change(&one)
		warnings, err := s.judgeServer(one)
		if (err != nil) != c.refused || len(warnings) != c.warns {
			t.Errorf("%s: %q, %v", name, warnings, err)
		}
	}
}

// A user of Redis that may do no more than doc.go asks for, and not read the
// configuration, can do everything and is promised what needs no trust.
func TestForbiddenConfigIsNoPromise(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Fsync("always"))
	client := server.Client(t)
	err := client.Do(t.Context(), "acl", "setuser", "berth", "on", ">secret", "~p:*", "&p:*",
		"-@all", "+@read", "+@write", "+@scripting", "+@transaction", "+@pubsub", "+@connection", "+info", "+time").Err()
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, "redis://berth:secret@"+server.Addr, func(o *Options) { o.Prefix = "p" })
	if _, err := s.Watch(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := full(t, s, "trusting")
	if err := visit(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	r := w.append(t, []byte("one"))
	d, err := s.Describe(t.Context())
	if err != nil || r.Durability.Level != statestore.LevelMemory || len(d.Warnings) != 2 {
		t.Fatalf("%v, warnings %q, %v", r.Durability, d.Warnings, err)
	}
}

func TestPartitionsAreAgreedOn(t *testing.T) {
	t.Parallel()
	url := redistest.Standalone(t).URL
	s := open(t, url)
	same := func(n int) error {
		again, err := Open(t.Context(), url, Options{Prefix: s.opts.Prefix, Partitions: n})
		if err != nil {
			return err
		}
		defer again.Close()
		if again.keys.partitions != testPartitions {
			return fmt.Errorf("opened with %d partitions", again.keys.partitions)
		}
		return nil
	}
	if err := same(0); err != nil {
		t.Errorf("a store that exists: %v", err)
	}
	if err := same(testPartitions + 1); !errors.Is(err, statestore.ErrInvalid) {
		t.Errorf("another number of partitions: %v", err)
	}

	// Redis is emptied under the store: the next sweep says the number again.
	meta := s.keys.fleet("store")
	s.client.Del(t.Context(), meta)
	if _, err := s.Sweep(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if err := same(0); err != nil {
		t.Errorf("after the store was emptied: %v", err)
	}
	// Another process was quicker: this one must not go on beside it.
	s.client.HSet(t.Context(), meta, "partitions", testPartitions+1)
	if _, err := s.Sweep(t.Context(), 1); !errors.Is(err, statestore.ErrInvalid) {
		t.Errorf("a sweep beside another number of partitions: %v", err)
	}
}

// A record of a later version is left alone by this one.
func TestLaterRecordIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Standalone(t).URL)
	w := newWriter(s, "later")
	w.append(t, []byte("one"))
	key := s.keys.session(w.key.Digest())[keyRecord]
	s.client.SetRange(t.Context(), key, 0, "\x02")
	before := s.client.Get(t.Context(), key).Val()
	_, err := s.Append(t.Context(), statestore.Append{
		Key: w.key, By: w.by, Handle: w.handle, Op: "op-2", Lifetimes: lives,
		Turns: []statestore.Turn{{Type: statestore.TurnBytes, Value: []byte("two")}},
	})
	if err == nil || s.client.Get(t.Context(), key).Val() != before {
		t.Fatalf("an append to it: %v", err)
	}
	if _, err := s.Lookup(t.Context(), w.key); !errors.Is(err, ErrDamaged) {
		t.Fatalf("a lookup of it: %v", err)
	}
}

// The sizes that Go knows of what Lua packs.
func TestSizesOfPackedNumbers(t *testing.T) {
	t.Parallel()
	text := readLua("session")
	found := regexp.MustCompile(`local NUMBERS = '>([^']*)'`).FindStringSubmatch(text)
	if found == nil {
		t.Fatal("session.lua has no NUMBERS")
	}
	size := 0
	for _, field := range regexp.MustCompile(`B|[Ic](\d+)`).FindAllStringSubmatch(found[1], -1) {
		n, err := strconv.Atoi(field[1])
		if err != nil {
			n = 1
		}
		size += n
	}
	if size != numbersSize {
		t.Errorf("numbers take %d bytes, numbersSize is %d", size, numbersSize)
	}
}

// What is no record is told as damaged, whatever it is.
func TestDamagedRecords(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Standalone(t).URL)
	w := newWriter(s, "damaged")
	for range 3 {
		w.append(t, noise(9000))
	}
	key := s.keys.session(w.key.Digest())[keyRecord]
	whole := s.client.Get(t.Context(), key).Val()
	for n := range whole {
		if _, _, err := decodeRecord(whole[:n]); !errors.Is(err, ErrDamaged) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(whole), err)
		}
	}
	if _, _, err := decodeRecord(whole + "x"); !errors.Is(err, ErrDamaged) {
		t.Fatalf("a byte more: %v", err)
	}
	if _, _, err := decodeRecord("\x02" + whole[1:]); !errors.Is(err, ErrDamaged) {
		t.Fatal("a later format was read")
	}
}
