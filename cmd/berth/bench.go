package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"berth/cmd/berth/internal/load"
	"berth/cmd/berth/internal/progress"
	"berth/services"
	"berth/statestore"
)

// benchCmd measures Berth beside a bare handler that does the least that could
// do the job, alternating the two in one run.
type benchCmd struct {
	Route  benchRouteCmd  `cmd:"" help:"/route beside a bare handler that writes the same bytes."`
	Append benchAppendCmd `cmd:"" help:"Appends beside a bare handler that does one RPUSH of the same bytes on the same Redis."`
}

// BenchFlags are common to all benchmarks.
type BenchFlags struct {
	Connections int           `default:"16" help:"Connections of each side."`
	Rounds      int           `default:"7" help:"Counted rounds of each side."`
	Round       time.Duration `default:"1s" help:"Length of a round."`
	JSON        bool          `help:"Print JSON for scripts."`
}

func (f *BenchFlags) plan(std *streams) load.Plan {
	bar := progress.New(std.err, "measuring", 0)
	return load.Plan{Rounds: f.Rounds, Round: f.Round, Progress: func(done, of int) {
		bar.Set(done, of)
		if done == of {
			bar.Done()
		}
	}}
}

func (f *BenchFlags) validate() error {
	if f.Connections < 1 || f.Rounds < 1 || f.Round < time.Millisecond {
		return errors.New("connections and rounds must be at least 1, a round at least 1ms")
	}
	return nil
}

// benched is a Berth for a benchmark: the real server on its own port of the
// loopback.
type benched struct {
	server *services.Server
	store  statestore.Store
	addr   string
	stop   func() error
}

// startBenched serves the API in this process.
func startBenched(ctx context.Context, store statestore.Store, change func(*services.Options)) (*benched, error) {
	o := services.Options{
		Store: store, Process: fmt.Sprintf("bench-%d", os.Getpid()), Version: version(), Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	server, err := services.New(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := server.Load(ctx); err != nil {
		return nil, fmt.Errorf("load the fleet: %w", err)
	}
	addr, stopWeb, err := serveOn(ctx, server.Handler())
	if err != nil {
		return nil, err
	}
	background, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- server.Run(background) }()
	return &benched{server: server, store: store, addr: addr, stop: func() error {
		err := stopWeb()
		cancel()
		return errors.Join(err, <-done)
	}}, nil
}

// serveOn serves a handler on a free port of the loopback.
func serveOn(ctx context.Context, h http.Handler) (addr string, stop func() error, err error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("listen: %w", err)
	}
	web := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan error, 1)
	go func() { done <- web.Serve(listener) }()
	return listener.Addr().String(), func() error {
		err := web.Close()
		if served := <-done; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	}, nil
}

// closeAll ends the clients of a target.
func closeAll(clients []load.Client) error {
	var err error
	for _, c := range clients {
		err = errors.Join(err, c.Close())
	}
	return err
}

func printJSON(std *streams, v any) error {
	enc := json.NewEncoder(std.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
