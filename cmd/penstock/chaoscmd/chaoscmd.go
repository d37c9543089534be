// Package chaoscmd is the command chaos: it breaks a pool of its own on purpose, and
// counts what was lost.
package chaoscmd

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/chaos"
	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/layout"
	"github.com/penstock-run/penstock/jobs/visible"
)

// New returns the command chaos.
func New(shell cli.Shell) *cobra.Command {
	var o chaos.Options
	var dir string
	cmd := &cobra.Command{
		Use: "chaos", Short: "Break a pool on purpose, and prove that it loses nothing", Args: cobra.NoArgs,
		Long: `Chaos starts a broker and workers of its own in a new directory, submits jobs
with a scripted agent, and meanwhile kills workers and the broker, stops workers
past their lease, cuts or mutes their connections, fills the broker's disk and
moves their clocks, at random. With --cluster 3 three servers replicate every stream,
and the one that is killed leads some of them; the connections between two servers, or
of one with all others, are cut or lose what is sent. With --previous workers and the
dispatcher are ended and started again with the program of the other release. Then it compares the stored state with
the expected one: one result for each job, every event once, and no process, mount or
workspace left behind. It touches no other pool. The lease is 2 s, or 10 s in a
cluster, unless --lease sets it. A full disk needs root, a moved clock needs Linux on
x86-64; chaos reports a fault that it cannot cause and continues with the others.

The exit code is 0 when every guarantee held, and 1 when one did not. In that case the
directory is kept.`,
		Example: `  penstock chaos
  penstock chaos --jobs 50 --faults 100 --kinds "kill worker,stop worker"
  penstock chaos --cluster 3 --jobs 100 --faults 200
  penstock chaos --cluster 3 --kinds "cut servers,isolate server" --every 5s --faults 36 --jobs 200`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkChaos(o); err != nil {
				return err
			}
			o.Lease = 2 * time.Second // a long one would only make it take longer
			if o.Cluster > 0 {
				o.Lease = 10 * time.Second // it takes servers 4 to 9 s to choose a leader
			}
			if cmd.Flags().Changed("lease") {
				o.Lease = shell.Config.Lease
			}
			return breakPool(cmd.Context(), shell, o, dir)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Jobs, "jobs", 500, "jobs to submit")
	flags.IntVar(&o.Faults, "faults", 1000, "faults to inject")
	flags.IntVar(&o.Workers, "workers", 5, "worker processes")
	flags.IntVar(&o.Slots, "slots", 2, "slots of each worker")
	flags.Uint64Var(&o.Seed, "seed", uint64(time.Now().UnixNano()), "seed of the random choices; the timing is not reproduced")
	flags.Lookup("seed").DefValue = "random"
	flags.StringSliceVar(&o.Kinds, "kinds", chaos.Kinds(), "of faults")
	flags.IntVar(&o.Cluster, "cluster", 0, "servers of a cluster: 3 or 5 (default none, a broker inside the dispatcher)")
	flags.DurationVar(&o.Every, "every", 0, "time between faults, whatever the jobs do (default as fast as jobs finish)")
	flags.StringVar(&o.Previous, "previous", "", "program of another release, which takes turns with this one (default none)")
	flags.StringVar(&dir, "dir", "", "empty directory to work in (default a temporary one)")
	return cmd
}

func checkChaos(o chaos.Options) error {
	for flag, n := range map[string]int{"jobs": o.Jobs, "workers": o.Workers, "slots": o.Slots} {
		if n < 1 {
			return cli.Usage("", "--%s %d: must be at least 1", flag, n)
		}
	}
	if o.Cluster != 0 && o.Cluster != 3 && o.Cluster != 5 {
		return cli.Usage("", "--cluster %d: a cluster has 3 or 5 servers", o.Cluster)
	}
	if o.Previous != "" {
		if _, err := exec.LookPath(o.Previous); err != nil {
			return cli.Usage("name the program of another release by its path", "--previous: %w", err)
		}
	}
	if o.Every < 0 {
		return cli.Usage("", "--every %v is negative", o.Every)
	}
	if o.Faults < 0 {
		return cli.Usage("", "--faults %d is negative", o.Faults)
	}
	for _, k := range o.Kinds {
		if !slices.Contains(chaos.Kinds(), k) {
			return cli.Usage("the kinds are: "+strings.Join(chaos.Kinds(), ", "), "--kinds: there is no fault %q", k)
		}
	}
	if len(o.Kinds) == 0 {
		return cli.Usage("the kinds are: "+strings.Join(chaos.Kinds(), ", "), "--kinds names none")
	}
	return nil
}

func breakPool(ctx context.Context, shell cli.Shell, o chaos.Options, dir string) (err error) {
	if o.Program, err = os.Executable(); err != nil {
		return err
	}
	if o.Dir, err = emptyDir(dir); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(o.Dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	o.Log = log
	o.Connect = func(ctx context.Context, data, servers string) (chaos.Pool, error) {
		return connect(ctx, shell, data, servers, o)
	}
	if *shell.Progress != cli.ProgressQuiet {
		o.Progress = func(faults, finished int) {
			shell.Err.Printf("penstock: %d of %d faults, %d of %d jobs finished\n", faults, o.Faults, finished, o.Jobs)
		}
	}
	shell.Err.Printf("penstock: breaking a pool in %s, seed %d\n", o.Dir, o.Seed)
	report, err := chaos.Run(ctx, o)
	if err != nil {
		return fmt.Errorf("chaos in %s: %w", o.Dir, err)
	}
	if err := tell(shell, report); err != nil {
		return err
	}
	if !report.Faultless() {
		return cli.Fail(cli.ExitUnexpected, "the output of the broker and the workers is in "+log.Name(), "%d guarantees did not hold", len(report.Violations))
	}
	return os.RemoveAll(o.Dir)
}

// emptyDir returns the directory to work in.
func emptyDir(dir string) (string, error) {
	if dir == "" {
		return os.MkdirTemp("", "penstock-chaos-")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", cli.Usage("", "--dir: %w", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		return "", cli.Usage("name another, or none", "--dir %s is not an empty directory", dir)
	}
	return filepath.Abs(dir)
}

// connect opens the pool of another data directory than the user's.
func connect(ctx context.Context, shell cli.Shell, data, servers string, o chaos.Options) (chaos.Pool, error) {
	settings := *shell.Config
	settings.Data, settings.Server, settings.Lease, settings.Replicas = data, servers, o.Lease, o.Cluster
	shell.Config = &settings
	p, err := pool.Open(ctx, shell, "chaos", pool.Hooks{})
	if err != nil {
		return chaos.Pool{}, err
	}
	p.Outlast(shell)
	submit := func(ctx context.Context, job jobs.Job) (id, session string, err error) {
		s, err := p.Submit(ctx, job, "cli")
		return s.ID, s.Session, err
	}
	return chaos.Pool{Submit: submit, Queue: p.Queue, Log: p.Log, Store: p.Store, Close: p.Close, Leader: func(ctx context.Context) (string, error) { return someLeader(ctx, p) }}, nil
}

// someLeader names the server that leads a stream, whichever it is.
func someLeader(ctx context.Context, p *pool.Pool) (string, error) {
	groups, err := layout.Groups(ctx, p.Conn, layout.Config{})
	groups = slices.DeleteFunc(groups, func(g layout.Group) bool { return g.Leader == "" })
	if err != nil || len(groups) == 0 {
		return "", err
	}
	return groups[rand.IntN(len(groups))].Leader, nil
}

var view = cli.View[chaos.Report]{ID: func(r chaos.Report) string { return strconv.FormatUint(r.Seed, 10) }}

func tell(shell cli.Shell, r chaos.Report) error {
	if *shell.Format != cli.Table {
		return view.One(shell.Out, *shell.Format, r)
	}
	var b strings.Builder
	row := func(what string, n any) { fmt.Fprintf(&b, "%-34s %8v\n", what, n) }
	fmt.Fprintf(&b, "%s/%s, %d processors, penstock %s, seed %d, lease %s, %d workers of %d slots, %.0f s\n",
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), shell.Release, r.Seed, r.Lease, r.Workers, r.Slots, r.Seconds)
	if r.Cluster > 0 {
		fmt.Fprintf(&b, "%d servers in a cluster\n", r.Cluster)
	}
	if r.Every != "" {
		fmt.Fprintf(&b, "a fault every %s\n", r.Every)
	}
	fmt.Fprintln(&b)
	row("jobs", r.Jobs)
	for _, kind := range slices.Sorted(maps.Keys(r.Faults)) {
		row("fault: "+kind, r.Faults[kind])
	}
	for _, kind := range slices.Sorted(maps.Keys(r.Skipped)) {
		fmt.Fprintf(&b, "left out: %s: %s\n", kind, visible.Line(r.Skipped[kind]))
	}
	row("attempts", r.Attempts)
	row("retried by hand", r.Retried)
	row("refused, the disk being full", r.Refused)
	row("events", r.Events)
	row("results", r.Results)
	row("jobs lost", r.Lost)
	row("results twice", r.Duplicates)
	row("events missing", r.EventsMissing)
	row("events twice", r.EventsDouble)
	row("events after a lost lease", r.Stale)
	row("processes, mounts, workspaces left", r.Left)
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "VIOLATED: %s\n", visible.Line(v))
	}
	_, err := io.WriteString(shell.Out, b.String())
	return err
}
