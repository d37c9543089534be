package doctorcmd

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/jail"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/jobs/visible"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/agent"
)

// checkInside looks at jails as jobs of a worker with these settings have
// them: are the host's tools there, and do the agents start?
func checkInside(ctx context.Context, shell cli.Shell) []Finding {
	spec, permitted, _ := jail.View(shell.Config) // the check of the policy says what is wrong with it
	backend, err := jail.Choose(ctx, shell.Config.Worker.Backend, permitted)("auto")
	if err != nil || backend.Name() == "none" {
		return checkAgents(ctx, shell, func(ctx context.Context, name string, _ agent.Program) (string, error) {
			checked, err := workerparts.Agents(shell.Config).Check(ctx, name)
			return checked.Version, err
		})
	}
	inside := func(ctx context.Context, _ string, p agent.Program) (string, error) {
		return said(ctx, backend, jail.AskVersion(spec, p))
	}
	return append([]Finding{checkView(ctx, backend, spec)}, checkAgents(ctx, shell, inside)...)
}

// said runs a program in a jail and returns the first line that it says.
func said(ctx context.Context, backend sandbox.Backend, s sandbox.Spec) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	out, exit, err := sandbox.Output(ctx, backend, s)
	if err != nil {
		return "", err
	}
	if !exit.Success() {
		return "", fmt.Errorf("in a jail it exited with %v", exit)
	}
	return visible.FirstLine(string(out)), nil
}

// tools are what jobs often need.
var tools = []string{"git", "node", "npm", "python3", "go", "cargo", "java", "gcc", "make", "ruby", "bun", "deno", "uv"}

// checkView compares the tools of this user with those in a jail.
func checkView(ctx context.Context, backend sandbox.Backend, s sandbox.Spec) Finding {
	f := Finding{Check: "view", Status: "ok"}
	var here []string
	places := map[string]string{}
	for _, name := range tools {
		if path, err := exec.LookPath(name); err == nil {
			here, places[name] = append(here, name), path
		}
	}
	s.Args = append([]string{"sh", "-c", `for p; do "$p" --version >/dev/null 2>&1 || "$p" version >/dev/null 2>&1 || printf "%s " "$p"; done`, "sh"}, here...)
	missing, err := said(ctx, backend, s)
	if err != nil {
		f.Status, f.Detail = "note", err.Error()
		return f
	}
	var away []string
	for name := range strings.FieldsSeq(missing) {
		away = append(away, places[name])
	}
	if len(away) == 0 {
		f.Detail = "in jails as here: " + strings.Join(here, ", ")
		return f
	}
	f.Status, f.Detail = "note", "not in the jail's PATH, or broken there: "+strings.Join(away, ", ")
	f.Price, f.Fix = "jobs cannot use these", "show their directories with --ro-path or a policy's read, and set PATH with a policy's env"
	return f
}

// checkAgents asks each agent for its version.
func checkAgents(ctx context.Context, shell cli.Shell, version func(ctx context.Context, name string, p agent.Program) (string, error)) []Finding {
	var found []Finding
	agents := workerparts.Agents(shell.Config)
	for _, about := range agents.All() {
		if about.Brought {
			continue // it is whatever a job or a settings file brings
		}
		f := Finding{Check: "agent " + about.Name, Status: "ok"}
		program, err := agents.Find(about.Name)
		text := ""
		switch {
		case err != nil:
		case about.Protocol == "command" || about.Protocol == "acp":
			text = "not started: its options are not known"
		default:
			text, err = version(ctx, about.Name, program)
		}
		if err != nil {
			f.Status, f.Detail, f.Price, f.Fix = "note", err.Error(), "jobs for it are refused", about.Install
		} else {
			f.Detail = strings.Join(program.Args, " ") + ", " + text
		}
		found = append(found, f)
	}
	return found
}
