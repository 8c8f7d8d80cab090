package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
)

// routeCmd asks for a hint.
type routeCmd struct {
	RemoteFlags `embed:""`
	Session     string `arg:"" help:"Session id."`
	Pool        string `help:"Pool."`
	Key         string `help:"Affinity key for the ring, instead of the session id."`
	Exclude     string `help:"Instances not to choose, like i3:connect,i4."`
	Fallbacks   int    `help:"Further endpoints to name."`
}

type routeAnswer struct {
	Instance  string `json:"instance"`
	Address   string `json:"address"`
	Reason    string `json:"reason"`
	Jump      bool   `json:"jump"`
	Previous  string `json:"previous"`
	Epoch     uint64 `json:"epoch"`
	Version   uint64 `json:"version"`
	Degraded  string `json:"degraded"`
	Fallbacks []struct {
		Instance string `json:"instance"`
		Address  string `json:"address"`
	} `json:"fallbacks"`
}

// Run prints where the session's next request should go.
func (c *routeCmd) Run(ctx context.Context, std *streams) error {
	q := url.Values{"session": {c.Session}}
	for name, value := range map[string]string{"pool": c.Pool, "key": c.Key, "exclude": c.Exclude} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if c.Fallbacks > 0 {
		q.Set("fallbacks", fmt.Sprint(c.Fallbacks))
	}
	answer, err := c.call(ctx, "GET", "/route?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	return show(std, c.JSON, answer, func(out io.Writer, a *routeAnswer) error {
		fmt.Fprintf(out, "%s  %s  (%s)", a.Instance, a.Address, a.Reason)
		if a.Jump {
			fmt.Fprintf(out, "  last served by %s", a.Previous)
		}
		if a.Degraded != "" {
			fmt.Fprintf(out, "  degraded: %s", a.Degraded)
		}
		fmt.Fprintf(out, "\nepoch %d, version %d\n", a.Epoch, a.Version)
		for _, f := range a.Fallbacks {
			fmt.Fprintf(out, "then %s  %s\n", f.Instance, f.Address)
		}
		return nil
	})
}

// InstanceArg names an instance.
type InstanceArg struct {
	RemoteFlags `embed:""`
	Instance    string `arg:"" help:"Id of the instance."`
}

type (
	cordonCmd   struct{ InstanceArg }
	uncordonCmd struct{ InstanceArg }
)

// Run closes an instance for new sessions.
func (c *cordonCmd) Run(ctx context.Context, std *streams) error {
	return c.change(ctx, std, "cordon")
}

// Run opens an instance that was cordoned or drained.
func (c *uncordonCmd) Run(ctx context.Context, std *streams) error {
	return c.change(ctx, std, "uncordon")
}

// change opens or closes the instance, and prints the state that it is in then.
func (c *InstanceArg) change(ctx context.Context, std *streams, action string) error {
	answer, err := c.call(ctx, "POST", "/v1/instances/"+url.PathEscape(c.Instance)+"/"+action, nil)
	if err != nil {
		return err
	}
	return show(std, c.JSON, answer, func(out io.Writer, a *struct{ State string }) error {
		_, err := fmt.Fprintf(out, "%s: %s\n", c.Instance, a.State)
		return err
	})
}
