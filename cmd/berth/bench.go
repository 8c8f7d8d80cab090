package main

import (
	"encoding/json"
	"errors"
	"time"

	"berth/cmd/berth/internal/load"
	"berth/cmd/berth/internal/progress"
)

// benchCmd measures Berth beside a bare handler that does the least that could
// do the job, alternating the two in one run.
type benchCmd struct {
	Route     benchRouteCmd     `cmd:"" help:"/route beside a bare handler that writes the same bytes."`
	Drain     benchDrainCmd     `cmd:"" help:"Drains of thousands of sessions while traffic runs: as fast as it goes, and at a pace."`
	Heartbeat benchHeartbeatCmd `cmd:"" help:"CPU time of the server while a fleet does nothing but beat."`
	Bare      benchBareCmd      `cmd:"" hidden:"" help:"Serve a bare handler, for other benchmarks."`
	Append    benchAppendCmd    `cmd:"" help:"Appends beside a bare handler that does one RPUSH of the same bytes on the same Redis."`
}

// anyPort is a free port of the loopback.
const anyPort = "127.0.0.1:0"

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
