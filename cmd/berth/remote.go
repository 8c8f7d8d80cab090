package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// RemoteFlags say which Berth an operator's command talks to.
type RemoteFlags struct {
	URL   string `name:"berth" default:"http://127.0.0.1:7410" env:"BERTH_URL" help:"Base URL of a Berth."`
	Token string `env:"BERTH_TOKEN" help:"Token of the caller."`
	JSON  bool   `help:"Print JSON for scripts."`

	TLSFlags `embed:""`

	Headers map[string]string `kong:"-"` // of every call; empty ones are left out

	dial sync.Once
	web  *http.Client
	bad  error // why there is none
}

// problem is a refusal as the API answers it.
type problem struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
	Status int    `json:"status"`

	document []byte // as it came
}

func (p *problem) Error() string {
	if p.Detail == "" {
		return p.Code
	}
	return p.Code + ": " + p.Detail
}

// call makes one call and returns the body of a 2xx answer; anything else is a
// *problem.
func (r *RemoteFlags) call(ctx context.Context, method, path string, body any) ([]byte, error) {
	answer, _, err := r.ask(ctx, method, path, body)
	return answer, err
}

// ask is call, and says the status of the answer.
func (r *RemoteFlags) ask(ctx context.Context, method, path string, body any) (answer []byte, status int, err error) {
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, 0, fmt.Errorf("render the request: %w", err)
		}
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(r.URL, "/")+path, content)
	if err != nil {
		return nil, 0, fmt.Errorf("berth URL: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.Token != "" {
		req.Header.Set("X-Berth-Token", r.Token)
	}
	for name, value := range r.Headers {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	r.dial.Do(func() { r.web, r.bad = r.client() })
	if r.bad != nil {
		return nil, 0, r.bad
	}
	resp, err := r.web.Do(req)
	if err != nil {
		return nil, 0, fmt.Errorf("ask %s: %w", r.URL, err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return nil, 0, fmt.Errorf("read the answer of %s: %w", r.URL, err)
	}
	if resp.StatusCode/100 != 2 {
		p := &problem{Status: resp.StatusCode, document: data}
		if json.Unmarshal(data, p) != nil || p.Code == "" {
			return nil, 0, fmt.Errorf("%s answered %s", r.URL, resp.Status)
		}
		return nil, resp.StatusCode, p
	}
	return data, resp.StatusCode, nil
}

// show prints an answer: as it came for scripts, through human otherwise.
func show[T any](std *streams, asJSON bool, answer []byte, human func(out io.Writer, v *T) error) error {
	if asJSON {
		_, err := fmt.Fprintln(std.out, string(bytes.TrimSpace(answer)))
		return err
	}
	var v T
	if err := json.Unmarshal(answer, &v); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return human(std.out, &v)
}
