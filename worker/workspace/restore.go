package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
)

// A program in a jail restores a change to a workspace. The last commit of a bundle has
// the uncommitted changes, which become uncommitted again.
const (
	restorePatch  = `cd "$1" && git apply --binary --whitespace=nowarn "$2"`
	restoreBundle = `set -e
cd "$1"
git fetch -q "$2" refs/heads/` + git.AgentBranch + `
git reset -q --hard FETCH_HEAD
[ "$(git log -1 --format=%s)" != "` + uncommitted + `" ] || { git reset -q HEAD^; git add -A -N; }`
)

const uncommitted = "Uncommitted changes"

// Restore restores a change that was collected from a workspace with the same base to
// this one, before any agent runs in it. patch and bundle are files; a bundle includes
// all of the patch, and is "" if there is none. Git runs in a jail: an agent wrote both
// files.
func (w *Workspace) Restore(ctx context.Context, patch, bundle string) error {
	if w.spaces.cfg.Jail == nil {
		return errors.New("this worker has no jail to restore a salvage in")
	}
	const at = "/penstock/salvage"
	script, file := restorePatch, patch
	if bundle != "" {
		script, file = restoreBundle, bundle
	}
	var said bytes.Buffer
	spec := sandbox.Spec{
		Args: []string{"sh", "-c", script, "sh", sandbox.WorkspacePath, at},
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + sandbox.HomePath, "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1",
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
		Mounts: []sandbox.Mount{{Source: file, Target: at}}, Preset: sandbox.PresetOffline, Label: w.id, Grace: time.Second,
	}
	w.Show(&spec)
	exit, err := w.spaces.jail().Run(ctx, spec, sandbox.Streams{Stderr: &git.LimitedWriter{To: &said, Left: 4 << 10}})
	if err == nil && !exit.Success() {
		err = fmt.Errorf("git ended with %v: %s", exit, disk.Printable(disk.Shorten(strings.TrimSpace(said.String()))))
	}
	return err
}
