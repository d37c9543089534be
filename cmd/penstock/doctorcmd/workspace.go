package doctorcmd

import (
	"os/exec"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/worker/workspace"
)

// checkWorkspace says how jobs get files of their own, and what that costs.
// Whether the host can show views is a check of its own.
func checkWorkspace(shell cli.Shell) Finding {
	f := Finding{Check: "workspace", Status: "ok", Detail: shell.Config.Worker.Workspace}
	switch workspace.Strategy(shell.Config.Worker.Workspace) {
	case workspace.Auto:
		f.Detail += ": an overlay if the host supports one, else a clone"
	case workspace.Clone:
		f.Price = "a checkout for each job, in time and space"
	case workspace.Linked:
		f.Status = "note"
		f.Price = "a checkout for each job, one after the other for each repository, and worktrees that stay there; " +
			"with backend none agents write the repository's .git"
		f.Fix = "use auto, unless people will continue the work in the worktrees"
	case workspace.Hook:
		f.Price = "the time of the program, and all files are read and copied once before each job and once after it"
		for _, program := range []string{shell.Config.Worker.WorkspaceCreate, shell.Config.Worker.WorkspaceRemove} {
			if _, err := exec.LookPath(program); err != nil {
				f.Status, f.Detail, f.Fix = "fail", err.Error(), "see worker.workspace_create and worker.workspace_remove"
			}
		}
	}
	return f
}
