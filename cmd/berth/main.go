// Command berth serves the API, shows it in a demo, measures it, and is the
// operator's tool.
//
// main handles signals and exit codes; [run] is the program. This is the only
// package that knows the backends of the store.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"berth/cmd/berth/internal/scoreboard"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	says, code := ending(run(ctx, os.Args[1:], os.Stdout, os.Stderr), ctx.Err() != nil)
	stop()
	if says != "" {
		fmt.Fprintln(os.Stderr, "berth:", says)
	}
	os.Exit(code)
}

// exitInterrupted is what a shell makes of a program that Ctrl-C ended.
const exitInterrupted = 130

// ending is what is left to say when the program ends, and its exit code.
func ending(err error, interrupted bool) (says string, code int) {
	var known exitCode
	switch {
	case err == nil:
		return "", 0
	case errors.As(err, &known):
		return "", int(known)
	case interrupted && errors.Is(err, context.Canceled):
		return "interrupted", exitInterrupted
	}
	return err.Error(), 1
}

// exitCode ends the program with a code of its own; what it means was printed.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// commands is the whole command line.
type commands struct {
	Serve     serveCmd     `cmd:"" help:"Serve the API."`
	Demo      demoCmd      `cmd:"" help:"Show the main job: one session's life, then a production trace beside other policies."`
	Route     routeCmd     `cmd:"" help:"Ask where a session's next request should go."`
	Instances instancesCmd `cmd:"" help:"List instances."`
	Cordon    cordonCmd    `cmd:"" help:"Give an instance no new sessions; those it has stay."`
	Uncordon  uncordonCmd  `cmd:"" help:"Give an instance sessions again, after a cordon or a drain."`
	Drain     drainCmd     `cmd:"" help:"Move every session off instances, and wait until they are safe to stop."`
	Rebalance rebalanceCmd `cmd:"" help:"Move sessions off instances that are over their bound."`
	Jobs      jobsCmd      `cmd:"" help:"List, follow, pause, resume and cancel jobs."`
	SimWorker simWorkerCmd `cmd:"" name:"sim-worker" help:"Run a simulated inference worker against a Berth."`
	Simulate  simulateCmd  `cmd:"" help:"Play what-if in virtual time: add, drain, lose or overload instances."`
	Bench     benchCmd     `cmd:"" help:"Measure, beside a bare handler in the same run."`

	Version kong.VersionFlag `help:"Print the version and exit."`
}

// streams are where a command prints: results to out, progress and notes to err.
type streams struct{ out, err io.Writer }

const description = "Remembers where each LLM session's KV cache is berthed, keeps its context, and moves it before an instance goes away." +
	" Every flag of a command can be set by the environment variable that stands beside it in the command's help."

func newParser(cli *commands, stdout, stderr io.Writer, exit func(int)) (*kong.Kong, error) {
	return kong.New(cli,
		kong.Name("berth"),
		kong.Description(description),
		kong.Vars{"version": version(), "blocks": strconv.Itoa(scoreboard.CacheBlocks)},
		kong.Writers(stdout, stderr),
		kong.Exit(exit),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.PostBuild(nameVariables),
	)
}

// run parses and executes one command line.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	exited := -1
	parser, err := newParser(new(commands), stdout, stderr, func(code int) { exited = code })
	if err != nil {
		return fmt.Errorf("define the command line: %w", err)
	}
	command, err := parser.Parse(args)
	if exited >= 0 {
		return exitedWith(exited) // help or version was printed
	}
	if err != nil {
		return fmt.Errorf("%w; see berth -h", worded(err))
	}
	logRedis(slog.New(slog.DiscardHandler)) // other commands than serve return what they cannot do
	command.BindTo(ctx, (*context.Context)(nil))
	return command.Run(&streams{out: stdout, err: stderr})
}

// worded says a mistake on the command line in an operator's words where the
// parser's own are about itself.
func worded(err error) error {
	says := strings.Replace(err.Error(), " (short flag)", "", 1)
	var mistake *kong.ParseError
	if name, found := strings.CutPrefix(says, "unexpected argument "); found && errors.As(err, &mistake) && !strings.Contains(name, ", ") {
		switch at := mistake.Context.Selected(); {
		case at == nil:
			says = "there is no command " + name
		case !at.Leaf():
			says = at.FullPath() + " has no command " + name
		}
	}
	if says == err.Error() {
		return err
	}
	return errors.New(says)
}

func exitedWith(code int) error {
	if code == 0 {
		return nil
	}
	return exitCode(code)
}

// version is the module's, as the build recorded it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
