package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"berth/client"
	"berth/cmd/berth/internal/simworker"
)

// simWorkerCmd runs one simulated worker.
type simWorkerCmd struct {
	Berth  []string `required:"" env:"BERTH_URL" help:"Base URLs of Berth processes that share one store."`
	Token  string   `env:"BERTH_TOKEN" help:"The worker's token."`
	ID     string   `required:"" help:"Instance id."`
	Pool   string   `default:"default" help:"Pool."`
	Listen string   `default:"127.0.0.1:8000" help:"ip:port to serve on, which gateways are told."`
	Blocks int      `default:"${blocks}" help:"Capacity of its KV cache, in blocks of 512 tokens."`

	TLSFlags `embed:""`
}

// Run serves until ctx ends, and then leaves the fleet.
func (c *simWorkerCmd) Run(ctx context.Context, std *streams) error {
	web, err := c.client()
	if err != nil {
		return err
	}
	if err := c.reaches(ctx, web); err != nil {
		return err
	}
	worker, err := simworker.New(simworker.Config{
		Berth: client.Config{BaseURLs: c.Berth, Token: c.Token, HTTPClient: web}, CacheBlocks: c.Blocks,
		Instance: client.Instance{ID: c.ID, Pool: c.Pool, Address: c.Listen, ReportsCached: true},
	})
	if err != nil {
		return err
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	chat := &http.Server{Handler: worker.Handler(), ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintf(std.err, "simulated worker %s serves POST /chat on %s\n", c.ID, listener.Addr())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := chat.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		return chat.Shutdown(grace)
	})
	group.Go(func() error { return worker.Run(ctx) })
	return group.Wait()
}

// reaches fails where a flag is wrong: the worker would repeat its calls for an hour.
// A Berth that cannot be reached yet is waited for instead.
func (c *simWorkerCmd) reaches(ctx context.Context, web *http.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, berth := range c.Berth {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(berth, "/")+"/livez", nil)
		if err != nil {
			return fmt.Errorf("berth URL: %w", err)
		}
		resp, err := web.Do(req)
		var flag *tlsError
		switch {
		case errors.As(err, &flag):
			return fmt.Errorf("ask %s: %w", berth, err)
		case err == nil:
			_ = resp.Body.Close()
		}
	}
	return nil
}
