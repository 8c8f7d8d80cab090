package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"

	"berth/cmd/berth/internal/trace"
)

// loadTrace reads the first so many requests of a trace, all with 0. The path is "" for
// the embedded one.
func loadTrace(path string, requests int) (trace.Trace, error) {
	source := io.NopCloser(trace.Conversation())
	if path != "" {
		f, err := os.Open(path)
		if err != nil {
			return trace.Trace{}, fmt.Errorf("open the trace: %w", err)
		}
		source = f
	}
	t, err := trace.Load(source, requests)
	if err = errors.Join(err, source.Close()); err != nil {
		return trace.Trace{}, fmt.Errorf("load %s: %w", cmp.Or(path, "the embedded trace"), err)
	}
	return t, nil
}
