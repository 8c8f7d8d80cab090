package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
)

// benchBareCmd is a child of another benchmark: the least that could answer its
// requests, in a process of its own.
type benchBareCmd struct {
	Answer string `default:"{}" help:"Body of every answer."`
}

// Run says where it serves, as serve does, and serves until ctx ends.
func (c *benchBareCmd) Run(ctx context.Context, std *streams) error {
	addr, stop, err := serveOn(ctx, anyPort, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the client is gone if this fails
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, c.Answer)
	}))
	if err != nil {
		return err
	}
	slog.New(slog.NewJSONHandler(std.err, nil)).Info("serving", "url", "http://"+addr, "store", "none")
	<-ctx.Done()
	return stop()
}
