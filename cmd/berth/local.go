package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"

	"berth/services"
	"berth/statestore"
)

// gcPercent lets the heap of a server grow to five times what is in use before it is
// collected: what requests leave behind is most of it, and collecting that as often
// as Go does by default is an eighth of the work of an append.
const gcPercent = 400

// spendMemory sets that, unless who runs the server has decided.
func spendMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// local is a Berth inside this process: the real server on a port of its own.
type local struct {
	addr string
	stop func() error
}

func (l *local) url() string { return "http://" + l.addr }

// startLocal serves the API until stopped.
func startLocal(ctx context.Context, store statestore.Store, listen string, change func(*services.Options)) (*local, error) {
	spendMemory()
	o := services.Options{
		Store: store, Process: fmt.Sprintf("local-%d", os.Getpid()), Version: version(), Logger: slog.New(slog.DiscardHandler),
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
	addr, stopWeb, err := serveOn(ctx, listen, server.Handler(), server.Listener)
	if err != nil {
		return nil, err
	}
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- server.Run(background) }()
	return &local{addr: addr, stop: func() error {
		server.Stop()
		err := stopWeb()
		cancel()
		return errors.Join(err, <-done)
	}}, nil
}

// serveOn serves a handler on an address of the loopback, through listeners around its own.
func serveOn(ctx context.Context, listen string, h http.Handler, around ...func(context.Context, net.Listener) net.Listener) (addr string, stop func() error, err error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", listen)
	if err != nil {
		return "", nil, fmt.Errorf("listen: %w", err)
	}
	for _, wrap := range around {
		listener = wrap(ctx, listener)
	}
	web := &http.Server{Handler: h, ReadHeaderTimeout: idleTime}
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
