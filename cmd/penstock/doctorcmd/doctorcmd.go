// Package doctorcmd is the command doctor: what this host can do, and how to fix what it
// cannot.
package doctorcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/jail"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/backends"
	"github.com/penstock-run/penstock/worker"
	"github.com/penstock-run/penstock/worker/modelkey"
)

// A Finding is what one check of doctor found.
type Finding struct {
	Check  string `json:"check"`
	Status string `json:"status"` // ok, note, weak or fail
	Detail string `json:"detail"`
	Price  string `json:"price,omitempty"` // what it costs to leave it so
	Fix    string `json:"fix,omitempty"`
}

// New returns the command doctor.
func New(shell cli.Shell) *cobra.Command {
	var strict, fix, dry bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check what this host can do, and how to fix what it cannot", Args: cobra.NoArgs,
		Long: `Doctor tests for real: it makes jails, limits them, and runs git and the agents in
them. Of a pool that runs on --server, or on the data directory, it examines the broker, its
streams, clocks, workers, keys of model APIs, credentials and webhooks, and how old the last backup is. It
changes nothing unless --fix is set. Each check has a stable name, and reports the result, the
consequence of a failure, and the fix for this distribution. The check "tier" is the
summary: full, degraded (something is not enforced), container (only a container
engine can make a jail) or none.

The exit code is 0 when jobs can run here, and 1 when something that they, or the pool,
need is missing (fail); with --strict also 1 when something is not enforced (weak).`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if fix || dry {
				if err := repair(cmd.Context(), shell, cmd, dry); err != nil {
					return err
				}
			}
			found := examine(cmd.Context(), shell, cmd)
			if *shell.Format == cli.Table {
				tell(shell.Out, found)
			} else if err := (cli.View[Finding]{ID: func(f Finding) string { return f.Check }}).List(shell.Out, *shell.Format, found); err != nil {
				return err
			}
			return diagnosis(found, strict)
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with 1 also when something is not enforced")
	cmd.Flags().BoolVar(&fix, "fix", false, "first do what is safe, and name it: make missing streams, close files with secrets to other users")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only name what --fix would do")
	cmd.Flags().AddFlagSet(jail.PolicyFlag(shell.Config))
	return cmd
}

// tell writes findings for people: a failed check with its consequence and its fix.
func tell(w *console.Writer, found []Finding) {
	for _, f := range found {
		w.Printf("%-5s %-13s %s\n", f.Status, f.Check, f.Detail)
		if f.Price != "" {
			w.Printf("%20scosts: %s\n", "", f.Price)
		}
		if f.Fix != "" {
			w.Printf("%20sfix:   %s\n", "", f.Fix)
		}
	}
}

func diagnosis(found []Finding, strict bool) error {
	var bad, weak []string
	for _, f := range found {
		switch f.Status {
		case "fail":
			bad = append(bad, f.Check)
		case "weak":
			weak = append(weak, f.Check)
		}
	}
	switch {
	case len(bad) > 0:
		return cli.Fail(cli.ExitUnexpected, "", "jobs cannot run here: %s", strings.Join(bad, ", "))
	case strict && len(weak) > 0:
		return cli.Fail(cli.ExitUnexpected, "", "not everything is enforced here: %s", strings.Join(weak, ", "))
	}
	return nil
}

func examine(ctx context.Context, shell cli.Shell, cmd *cobra.Command) []Finding {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	found := slices.Concat([]Finding{checkSystem(), checkGit(ctx)}, checkJails(ctx, shell), checkInside(ctx, shell))
	found = append(found, checkData(shell), checkClock(), checkWorkspace(shell), checkKey(shell), checkPolicy(shell))
	return append(found, checkPool(ctx, shell, cmd)...)
}

func checkSystem() Finding {
	f := Finding{Check: "system", Status: "ok", Detail: fmt.Sprintf("%s/%s, %d processors", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())}
	if runtime.GOOS != "linux" {
		f.Status, f.Fix = "fail", "jails need Linux; run the worker on Linux, and this program as a client"
	}
	return f
}

// checkGit wants what bundles and checks of objects need.
func checkGit(ctx context.Context) Finding {
	f := Finding{Check: "git", Status: "ok"}
	out, err := exec.CommandContext(ctx, "git", "version").Output()
	if err != nil {
		f.Status, f.Detail, f.Fix = "fail", err.Error(), install("git")
		return f
	}
	f.Detail = strings.TrimSpace(string(out))
	var major, minor int
	if _, err := fmt.Sscanf(f.Detail, "git version %d.%d", &major, &minor); err != nil || major < 2 || (major == 2 && minor < 38) {
		f.Status, f.Detail, f.Fix = "fail", f.Detail+" is older than 2.38", install("git")
	}
	return f
}

// checkJails makes jails, and says what keeps this host from the strictest
// one. What is not enforced is weak, since a job may allow it; no jail at all
// is not.
func checkJails(ctx context.Context, shell cli.Shell) []Finding {
	dir, err := existing(shell.Config.Data)
	if err != nil || writable(dir) != nil {
		dir = "" // which is said by the check of it
	}
	moved, undelegated := backends.Delegate(ctx) // as a worker does
	report := backends.Doctor(ctx, dir)
	status := map[backends.Level]string{backends.LevelOK: "ok", backends.LevelAdvice: "note", backends.LevelProblem: "weak"}
	if report.Tier == backends.TierNone {
		status[backends.LevelProblem] = "fail"
	}
	tier := Finding{Check: "tier", Status: "ok", Detail: string(report.Tier)}
	switch report.Tier {
	case backends.TierDegraded:
		tier.Status, tier.Price = "weak", "a job that needs a missing feature is refused, unless it allows that by name"
	case backends.TierContainer:
		tier.Price = "a jail takes some tenths of a second to start, instead of ten milliseconds, and needs an image"
	case backends.TierNone:
		tier.Status, tier.Price, tier.Fix = "fail", "no job runs, except with backend none", "fix the failures below; see docs/how-to/no-jail.md"
	}
	found := []Finding{tier}
	for _, f := range append(report.Findings, backends.Environment(os.Environ())) {
		switch {
		case f.Check != "cgroup":
		case undelegated != nil && f.Level != backends.LevelOK:
			f.Message += "; " + undelegated.Error()
		case moved:
			f.Message += "; the groups are those of the user's service manager"
		}
		found = append(found, Finding{f.Check, status[f.Level], f.Message, f.Price, f.Fix})
	}
	return found
}

// checkData sees whether the data directory can be written, and how much room
// is left there.
func checkData(shell cli.Shell) Finding {
	f := Finding{Check: "data", Status: "ok", Detail: shell.Config.Data}
	probe, err := existing(shell.Config.Data)
	if err == nil {
		err = writable(probe)
	}
	var disk worker.Disk
	if err == nil {
		probe, err = existing(filepath.Join(shell.Config.Data, "work")) // which may be a disk of its own
	}
	if err == nil {
		disk, err = workerparts.Reserve(shell.Config, probe).Look()
	}
	if err != nil {
		f.Status, f.Detail, f.Fix = "fail", err.Error(), "name another directory with --data"
		return f
	}
	f.Detail += fmt.Sprintf(", %d MiB and %d files free", disk.Free.Bytes>>20, disk.Free.Inodes)
	switch low := disk.Low(); {
	case low != nil:
		f.Status, f.Price = "fail", "no job is claimed: "+low.Error()
		f.Fix = "free some space, name another directory with --data, or set a smaller worker.reserve"
	case disk.Free.Inodes < 100_000:
		f.Status, f.Price, f.Fix = "note", "a large repository may not fit", "free some inodes, or name another directory with --data"
	}
	return f
}

// existing returns dir, or its nearest existing parent.
func existing(dir string) (string, error) {
	for {
		info, err := os.Stat(dir)
		switch {
		case err == nil && info.IsDir():
			return dir, nil
		case err == nil:
			return "", fmt.Errorf("%s is not a directory", dir)
		case !errors.Is(err, os.ErrNotExist) || dir == filepath.Dir(dir):
			return "", err
		}
		dir = filepath.Dir(dir)
	}
}

func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".penstock-doctor-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func checkKey(shell cli.Shell) Finding {
	f := Finding{Check: "model API", Status: "ok"}
	var named []string
	for _, api := range modelkey.APIs {
		if _, err := shell.Config.Model.Keys.Open(api, "", shell.Config.Model.Secrets); err != nil {
			f.Status, f.Detail, f.Price, f.Fix = "fail", "model.keys."+err.Error(), "no worker starts with these settings", "see docs/how-to/model-keys.md"
			return f
		}
		if names := shell.Config.Model.Keys.Names(api); len(names) > 0 {
			named = append(named, api+": "+strings.Join(names, ", "))
		}
	}
	switch {
	case len(named) > 0:
		f.Detail = "keys of model.keys (" + strings.Join(named, "; ") + "); they stay outside of jails"
	case shell.Config.AnthropicKey != "":
		f.Detail = "a key for " + shell.Config.Model.AnthropicURL + " is set; it stays outside of jails"
	case shell.Config.OpenAIKey != "":
		f.Detail = "a key for the OpenAI API is set; it stays outside of jails"
	case shell.Config.GoogleKey != "":
		f.Detail = "a key for the Gemini API is set; it stays outside of jails"
	default:
		f.Status, f.Detail, f.Price = "note", "no key", "agents that need a model API are refused"
		f.Fix = "set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY for the worker"
	}
	return f
}

// checkPolicy reads the policy of the settings, and looks for what it names.
func checkPolicy(shell cli.Shell) Finding {
	f := Finding{Check: "policy", Status: "ok", Detail: "none; jobs may ask for everything"}
	p, err := jail.LoadPolicy(shell.Config)
	if err == nil && p.File() != "" {
		f.Detail = p.File()
		_, err = p.Apply(sandbox.Spec{Args: []string{"true"}}, jail.Here())
	}
	if err != nil {
		f.Status, f.Detail, f.Price, f.Fix = "fail", err.Error(), "no job runs", "fix the file; penstock schema policy describes it"
	}
	return f
}

// install is the line that installs a package on this host.
func install(name string) string {
	for _, manager := range []struct{ program, line string }{
		{"apt-get", "sudo apt-get install "}, {"dnf", "sudo dnf install "}, {"pacman", "sudo pacman -S "},
		{"apk", "sudo apk add "}, {"zypper", "sudo zypper install "},
	} {
		if _, err := exec.LookPath(manager.program); err == nil {
			return manager.line + name
		}
	}
	return "install " + name
}
