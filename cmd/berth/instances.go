package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
)

// instancesCmd lists the fleet.
type instancesCmd struct {
	RemoteFlags `embed:""`
	Pool        string        `help:"Only of this pool."`
	Overdue     time.Duration `name:"overdue-after" default:"6s" help:"Age of the last heartbeat from which it is marked; best as long as --suspect-after of berth serve."`
	Cheapest    *int          `placeholder:"N" help:"Only the N that are cheapest to drain, with what that costs: for who has to scale in."`
}

type instanceAnswer struct {
	ID       string `json:"id"`
	Pool     string `json:"pool"`
	Address  string `json:"address"`
	State    string `json:"state"`
	Weight   int    `json:"weight"`
	Running  int    `json:"running"`
	Waiting  int    `json:"waiting"`
	Sessions int    `json:"sessions"`
	BeatMS   *int64 `json:"last_heartbeat_ms"`

	DrainCost struct {
		Sessions int    `json:"sessions"`
		Tokens   uint64 `json:"tokens"`
	} `json:"drain_cost"`
}

type instanceList struct {
	Instances []instanceAnswer `json:"instances"`
}

// Run prints a table of instances.
func (c *instancesCmd) Run(ctx context.Context, std *streams) error {
	if c.Cheapest != nil && *c.Cheapest < 1 {
		return fmt.Errorf("--cheapest is %d, must be at least 1", *c.Cheapest)
	}
	answer, err := c.call(ctx, "GET", "/v1/instances?pool="+url.QueryEscape(c.Pool), nil)
	if err != nil {
		return err
	}
	if c.Cheapest != nil {
		return c.cheapest(ctx, std, answer)
	}
	return show(std, c.JSON, answer, func(out io.Writer, list *instanceList) error { return c.table(out, std.err, list) })
}

// table prints the instances, and a note if all of them have fallen silent: Berth
// then doubts itself and leaves every state as it was, so that the states alone look
// as if nothing had happened.
func (c *instancesCmd) table(out, notes io.Writer, list *instanceList) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "INSTANCE\tPOOL\tSTATE\tADDRESS\tWEIGHT\tSESSIONS\tRUNNING\tWAITING\tLAST HEARTBEAT")
	beating, overdue := 0, 0
	for k := range list.Instances {
		i := &list.Instances[k]
		beat := "never"
		if i.BeatMS != nil {
			age := time.Duration(*i.BeatMS) * time.Millisecond
			beat = age.Round(100*time.Millisecond).String() + " ago"
			beating++
			if age > c.Overdue {
				overdue++
				beat += ", overdue"
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\n",
			i.ID, i.Pool, i.State, i.Address, i.Weight, i.Sessions, i.Running, i.Waiting, beat)
	}
	if overdue > 0 && overdue == beating {
		fmt.Fprintln(notes, "berth: every heartbeat is overdue: while none comes in, states stay as they were")
	}
	return w.Flush()
}

// askedAtOnce is how many instances are asked for their cost at once.
const askedAtOnce = 8

// cheapest prints the instances whose drain costs least: the fewest tokens that
// others have to compute. Only those that serve and can be drained are listed: what is
// down, say, saves nothing by going.
func (c *instancesCmd) cheapest(ctx context.Context, std *streams, answer []byte) error {
	var list instanceList
	if err := json.Unmarshal(answer, &list); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	list.Instances = slices.DeleteFunc(list.Instances, func(i instanceAnswer) bool { return i.State != "ready" && i.State != "cordoned" })
	full := make([]json.RawMessage, len(list.Instances))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(askedAtOnce)
	for k := range list.Instances {
		i := &list.Instances[k]
		g.Go(func() (err error) {
			if full[k], err = c.call(ctx, "GET", "/v1/instances/"+url.PathEscape(i.ID), nil); err != nil {
				return err
			}
			if err = json.Unmarshal(full[k], i); err != nil {
				return fmt.Errorf("read the answer: %w", err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	order := make([]int, len(list.Instances))
	for k := range order {
		order[k] = k
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := &list.Instances[a], &list.Instances[b]
		return cmp.Or(cmp.Compare(x.DrainCost.Tokens, y.DrainCost.Tokens), cmp.Compare(x.DrainCost.Sessions, y.DrainCost.Sessions),
			cmp.Compare(x.ID, y.ID))
	})
	order = order[:min(*c.Cheapest, len(order))]
	if c.JSON {
		kept := make([]json.RawMessage, len(order))
		for k, i := range order {
			kept[k] = full[i]
		}
		return printJSON(std, map[string]any{"instances": kept})
	}
	w := tabwriter.NewWriter(std.out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "INSTANCE\tPOOL\tSTATE\tSESSIONS TO MOVE\tTOKENS")
	for _, k := range order {
		i := &list.Instances[k]
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\n", i.ID, i.Pool, i.State, i.DrainCost.Sessions, i.DrainCost.Tokens)
	}
	return w.Flush()
}
