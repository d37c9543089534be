package main

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
	"github.com/penstock-run/penstock/sandbox/backends"
)

// A finding is what one check of doctor found.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"` // ok, note or fail
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Check what this host can do, and say how to mend what it cannot", Args: cobra.NoArgs,
		Long: `Doctor tries the real thing: it starts a jail, runs git, and asks the agents for
their versions. It changes nothing. The exit code is 0 when jobs can run here.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found := a.examine(cmd.Context())
			view := cli.View[finding]{
				Header: []string{"CHECK", "STATUS", "DETAIL", "FIX"},
				Row:    func(f finding) []string { return []string{f.Check, f.Status, f.Detail, f.Fix} },
				ID:     func(f finding) string { return f.Check },
			}
			if err := view.List(a.out, a.format, found); err != nil {
				return err
			}
			var bad []string
			for _, f := range found {
				if f.Status == "fail" {
					bad = append(bad, f.Check)
				}
			}
			if len(bad) > 0 {
				return cli.Fail(cli.ExitUnexpected, "", "jobs cannot run here as they are: %s", strings.Join(bad, ", "))
			}
			return nil
		},
	}
}

func (a *app) examine(ctx context.Context) []finding {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return slices.Concat(
		[]finding{checkSystem(), checkGit(ctx)}, checkJail(ctx),
		[]finding{a.checkData(), a.checkKey()}, a.checkAgents(ctx),
	)
}

func checkSystem() finding {
	f := finding{Check: "system", Status: "ok", Detail: fmt.Sprintf("%s/%s, %d processors", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())}
	if runtime.GOOS != "linux" {
		f.Status, f.Fix = "fail", "jails need Linux; run the worker there, and this program as a client"
	}
	return f
}

func checkGit(ctx context.Context) finding {
	f := finding{Check: "git", Status: "ok"}
	out, err := exec.CommandContext(ctx, "git", "version").Output()
	if err != nil {
		f.Status, f.Detail, f.Fix = "fail", err.Error(), install("git")
		return f
	}
	f.Detail = strings.TrimSpace(string(out))
	return f
}

// checkJail makes jails, and says what keeps this host from the strictest one.
// What is not enforced is a note, since a job may allow it; no jail at all is not.
func checkJail(ctx context.Context) []finding {
	var found []finding
	for _, f := range backends.Doctor(ctx) {
		status := "ok"
		if f.Level != backends.LevelOK {
			status = "note"
		}
		found = append(found, finding{"jail " + f.Check, status, f.Message, f.Fix})
	}
	if _, err := backends.New(ctx, backends.Auto); err != nil {
		found = append(found, finding{"jail", "fail", err.Error(), "mend what is said above; see docs/isolation.md"})
	}
	return found
}

// checkData sees whether the data directory can be written, and how much room
// is left there.
func (a *app) checkData() finding {
	f := finding{Check: "data", Status: "ok", Detail: a.cfg.Data}
	probe, err := existing(a.cfg.Data)
	if err == nil {
		err = writable(probe)
	}
	var free uint64
	if err == nil {
		free, err = freeBytes(probe)
	}
	switch {
	case err != nil:
		f.Status, f.Detail, f.Fix = "fail", err.Error(), "name another directory with --data"
	case free < 1<<30:
		f.Status, f.Fix = "fail", "free some space, or name another directory with --data"
		fallthrough
	default:
		f.Detail += fmt.Sprintf(", %d MiB free", free>>20)
	}
	return f
}

// existing returns dir, or what there is of the way to it.
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

func (a *app) checkKey() finding {
	switch {
	case a.cfg.AnthropicKey != "":
		return finding{"model API", "ok", "a key for " + a.cfg.Model.AnthropicURL + " is set; it stays outside of jails", ""}
	case a.cfg.OpenAIKey != "":
		return finding{"model API", "ok", "a key for the OpenAI API is set; it stays outside of jails", ""}
	}
	return finding{"model API", "note", "no key", "set ANTHROPIC_API_KEY or OPENAI_API_KEY for the worker; without it claude or codex is refused"}
}

// packages says how people install the agents.
var packages = map[string]string{
	"claude": "npm install -g @anthropic-ai/claude-code",
	"codex":  "npm install -g @openai/codex",
}

func (a *app) checkAgents(ctx context.Context) []finding {
	var found []finding
	agents := a.agents()
	for _, name := range agents.Names() {
		if name == "command" {
			continue // it is whatever a job brings
		}
		f := finding{Check: "agent " + name, Status: "ok"}
		program, err := agents.Check(ctx, name)
		if err != nil {
			f.Status, f.Detail, f.Fix = "note", err.Error(), packages[name]
		} else {
			f.Detail = strings.Join(program.Args, " ") + ", " + program.Version
		}
		found = append(found, f)
	}
	return found
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
