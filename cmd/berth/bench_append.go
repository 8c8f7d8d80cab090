package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"berth/cmd/berth/internal/load"
	"berth/services"
	"berth/statestore"
	"berth/statestore/redisstore"
)

// benchAppendCmd measures writes on Redis.
type benchAppendCmd struct {
	BenchFlags `embed:""`
	Store      string `required:"" help:"redis:// URL; its keys under berth-bench: are written and removed."`
	Bytes      int    `default:"4096" help:"Size of a turn."`
}

// appendFigures is what the benchmark prints.
type appendFigures struct {
	Ratio        float64 `json:"ratio"` // Berth's appends a second over the bare handler's
	BerthPerS    float64 `json:"berth_per_s"`
	BarePerS     float64 `json:"bare_per_s"`
	P50US        float64 `json:"p50_us"`
	P99US        float64 `json:"p99_us"`
	BareP50US    float64 `json:"bare_p50_us"`
	BareP99US    float64 `json:"bare_p99_us"`
	RatioMin     float64 `json:"ratio_min"`
	RatioMax     float64 `json:"ratio_max"`
	Bytes        int     `json:"bytes"`
	Durability   string  `json:"durability"`
	Connections  int     `json:"connections"`
	StoreVersion string  `json:"store"`
}

const benchPrefix = "berth-bench"

// Run measures and cleans up after itself.
func (c *benchAppendCmd) Run(ctx context.Context, std *streams) (err error) {
	if err := c.validate(); err != nil {
		return err
	}
	if u, err := url.Parse(c.Store); err != nil || u.Scheme != "redis" {
		return errors.New("--store: want a redis:// URL of a single server, which the bare handler uses too")
	}
	options, err := redis.ParseURL(c.Store)
	if err != nil {
		return fmt.Errorf("--store: %w", err)
	}
	options.PoolSize = 4 * c.Connections
	bare := redis.NewClient(options)
	defer func() {
		err = errors.Join(err, removeKeys(context.WithoutCancel(ctx), c.Store, benchPrefix), bare.Close())
	}()
	store, err := redisstore.Open(ctx, c.Store, redisstore.Options{Prefix: benchPrefix})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	about, err := store.Describe(ctx)
	if err != nil {
		return err
	}
	f, err := c.measure(ctx, std, store, bare)
	if err != nil {
		return err
	}
	f.Durability, f.StoreVersion = about.Durability.String(), about.Backend
	if c.JSON {
		return printJSON(std, f)
	}
	return f.print(std.out)
}

func (f *appendFigures) print(out io.Writer) error {
	_, err := fmt.Fprintf(out, `appends of %d bytes, %d connections, durability %s
berth  %8.0f appends/s  p50 %6.0f µs   p99 %7.0f µs
bare   %8.0f RPUSH/s    p50 %6.0f µs   p99 %7.0f µs
ratio  %8.3f  (rounds %.3f to %.3f)
`, f.Bytes, f.Connections, f.Durability, f.BerthPerS, f.P50US, f.P99US, f.BarePerS, f.BareP50US, f.BareP99US, f.Ratio, f.RatioMin, f.RatioMax)
	return err
}

func (c *benchAppendCmd) measure(ctx context.Context, std *streams, store statestore.Store, bare *redis.Client) (f appendFigures, err error) {
	berth, err := startLocal(ctx, store, anyPort, func(o *services.Options) {
		o.SuspectAfter, o.DownAfter = time.Hour, 2*time.Hour // the one instance beats once
	})
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, berth.stop()) }()
	bareAddr, stopBare, err := serveOn(ctx, anyPort, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { pushBody(w, r, bare) }))
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, stopBare()) }()
	incarnation, err := registerBench(ctx, berth.addr)
	if err != nil {
		return f, err
	}
	first, second := load.Target{Name: "berth"}, load.Target{Name: "bare"}
	defer func() { err = errors.Join(err, closeAll(first.Clients), closeAll(second.Clients)) }()
	for i := range c.Connections {
		a, err := newAppendClient(ctx, berth.addr, incarnation, i, c.Bytes)
		if err != nil {
			return f, err
		}
		first.Clients = append(first.Clients, a)
		b, err := newPushClient(ctx, bareAddr, i, a)
		if err != nil {
			return f, err
		}
		second.Clients = append(second.Clients, b)
	}
	r, err := load.Compare(ctx, c.plan(std), first, second)
	if err != nil {
		return f, err
	}
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	return appendFigures{
		Ratio: r.Ratio, BerthPerS: r.First.PerSecond, BarePerS: r.Second.PerSecond, P50US: us(r.First.P50), P99US: us(r.First.P99),
		BareP50US: us(r.Second.P50), BareP99US: us(r.Second.P99), RatioMin: r.RatioMin, RatioMax: r.RatioMax,
		Bytes: c.Bytes, Connections: c.Connections,
	}, nil
}

// pushBody is the bare handler: read the body, push it, say so.
func pushBody(w http.ResponseWriter, r *http.Request, to *redis.Client) {
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := to.RPush(r.Context(), benchPrefix+":bare:"+r.URL.Path, body).Err(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, "{\"stored\":true}\n") // the client is gone if this fails
}

const benchInstance = "bench"

// registerBench registers the one instance that writes.
func registerBench(ctx context.Context, addr string) (string, error) {
	remote := RemoteFlags{URL: "http://" + addr}
	answer, err := remote.call(ctx, "PUT", "/v1/instances/"+benchInstance, map[string]string{"address": "127.0.0.1:1"})
	if err != nil {
		return "", fmt.Errorf("register: %w", err)
	}
	var got struct{ Incarnation string }
	if err := json.Unmarshal(answer, &got); err != nil {
		return "", fmt.Errorf("register: %w", err)
	}
	beat := map[string]any{"incarnation": got.Incarnation, "ready": true, "running": 0, "waiting": 0}
	if _, err = remote.call(ctx, "POST", "/v1/instances/"+benchInstance+"/heartbeat", beat); err != nil {
		return "", fmt.Errorf("heartbeat: %w", err)
	}
	return got.Incarnation, nil
}

// appendClient appends as a worker would: each write presents the handle that
// the last one answered. It begins a new session before one gets too large.
type appendClient struct {
	*load.Conn
	addr, incarnation, session, handle string
	n, perSession, life                int
	value                              []byte
	request, body                      bytes.Buffer
}

func newAppendClient(ctx context.Context, addr, incarnation string, i, size int) (*appendClient, error) {
	conn, err := load.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	c := &appendClient{
		Conn: conn, addr: addr, incarnation: incarnation, session: fmt.Sprintf("bench-%d", i),
		value: benchValue(size, uint64(i)), perSession: max(1, 32<<20/size), //nolint:gosec // a small index
	}
	return c, nil
}

// benchValue is a JSON string of the size, with content that zstd hardly shrinks.
func benchValue(size int, seed uint64) []byte {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	pick := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // a load, not a secret
	b := make([]byte, size)
	for i := range b {
		b[i] = letters[pick.IntN(len(letters))]
	}
	b[0], b[size-1] = '"', '"'
	return b
}

// begin asks for a handle of a session that is not there yet.
func (c *appendClient) begin() error {
	c.life++
	session := fmt.Sprintf("%s-%d", c.session, c.life)
	status, body, err := c.Do(routeRequest(session, c.addr))
	if err != nil {
		return err
	}
	var hint struct{ Handle string }
	if err := json.Unmarshal(body, &hint); err != nil || status != http.StatusOK {
		return fmt.Errorf("route: status %d: %s", status, body)
	}
	c.handle = hint.Handle
	return nil
}

// Next makes one append.
func (c *appendClient) Next() error {
	if c.n%c.perSession == 0 {
		if err := c.begin(); err != nil {
			return err
		}
	}
	c.n++
	c.build()
	status, body, err := c.Do(c.request.Bytes())
	if err != nil {
		return fmt.Errorf("append: %w", err)
	}
	_, rest, found := bytes.Cut(body, handleMember)
	if status != http.StatusOK || !found {
		return fmt.Errorf("append: status %d: %s", status, body)
	}
	rest, _, _ = bytes.Cut(rest, handleMember[len(handleMember)-1:])
	c.handle = string(rest)
	return nil
}

var handleMember = []byte(`"handle":"`)

// build renders the request of the next append.
func (c *appendClient) build() {
	c.body.Reset()
	for _, part := range []string{
		`{"op":"`, c.session, "-", strconv.Itoa(c.n), `","handle":"`, c.handle, `","instance":"`, benchInstance,
		`","incarnation":"`, c.incarnation, `","turns":[{"value":`,
	} {
		c.body.WriteString(part)
	}
	c.body.Write(c.value)
	c.body.WriteString(`}]}`)
	c.request.Reset()
	for _, part := range []string{
		"POST /v1/sessions/", c.session, "-", strconv.Itoa(c.life), "/turns HTTP/1.1\r\nHost: ", c.addr,
		"\r\nContent-Type: application/json\r\nContent-Length: ", strconv.Itoa(c.body.Len()), "\r\n\r\n",
	} {
		c.request.WriteString(part)
	}
	c.request.Write(c.body.Bytes())
}

// pushClient sends a body of the same size to the bare handler.
type pushClient struct {
	*load.Conn
	request []byte
}

func newPushClient(ctx context.Context, addr string, i int, like *appendClient) (*pushClient, error) {
	conn, err := load.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	head := "POST /" + strconv.Itoa(i) + "/turns HTTP/1.1\r\nHost: " + addr + "\r\nContent-Length: " + strconv.Itoa(len(like.value)) + "\r\n\r\n"
	return &pushClient{Conn: conn, request: append([]byte(head), like.value...)}, nil
}

// Next makes one push.
func (c *pushClient) Next() error {
	status, body, err := c.Do(c.request)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("push: status %d: %s", status, body)
	}
	return err
}
