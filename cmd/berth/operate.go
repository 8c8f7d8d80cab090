package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"
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
			fmt.Fprintf(out, "  leaves %s", a.Previous)
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

// instancesCmd lists the fleet.
type instancesCmd struct {
	RemoteFlags `embed:""`
	Pool        string `help:"Only of this pool."`
}

type instanceList struct {
	Instances []struct {
		ID       string `json:"id"`
		Pool     string `json:"pool"`
		Address  string `json:"address"`
		State    string `json:"state"`
		Weight   int    `json:"weight"`
		Running  int    `json:"running"`
		Waiting  int    `json:"waiting"`
		Sessions int    `json:"sessions"`
		BeatMS   *int64 `json:"last_heartbeat_ms"`
	} `json:"instances"`
}

// Run prints a table of instances.
func (c *instancesCmd) Run(ctx context.Context, std *streams) error {
	answer, err := c.call(ctx, "GET", "/v1/instances?pool="+url.QueryEscape(c.Pool), nil)
	if err != nil {
		return err
	}
	return show(std, c.JSON, answer, func(out io.Writer, list *instanceList) error {
		w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
		fmt.Fprintln(w, "INSTANCE\tPOOL\tSTATE\tADDRESS\tWEIGHT\tSESSIONS\tRUNNING\tWAITING\tLAST HEARTBEAT")
		for _, i := range list.Instances {
			beat := "never"
			if i.BeatMS != nil {
				beat = (time.Duration(*i.BeatMS) * time.Millisecond).Round(100*time.Millisecond).String() + " ago"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\n",
				i.ID, i.Pool, i.State, i.Address, i.Weight, i.Sessions, i.Running, i.Waiting, beat)
		}
		return w.Flush()
	})
}

// jobsCmd lists jobs.
type jobsCmd struct {
	RemoteFlags `embed:""`
}

// Run prints a table of jobs, newest first.
func (c *jobsCmd) Run(ctx context.Context, std *streams) error {
	answer, err := c.call(ctx, "GET", "/v1/jobs", nil)
	if err != nil {
		return err
	}
	return show(std, c.JSON, answer, func(out io.Writer, list *struct {
		Jobs []jobAnswer `json:"jobs"`
	},
	) error {
		w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
		fmt.Fprintln(w, "JOB\tKIND\tSTATE\tINSTANCES\tMOVED\tTOTAL\tAGE")
		for _, j := range list.Jobs {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%s\n", j.ID, j.Kind, j.State, strings.Join(j.Instances, ","),
				j.Progress.done(), j.Progress.Total, (time.Duration(j.AgeMS) * time.Millisecond).Round(time.Second))
		}
		return w.Flush()
	})
}
