package gitmonitor

import (
	"github.com/penstock-run/penstock/sandbox/jailinit"
)

// Places inside of a jail, all read-only. What else a template shows, other commits of the
// repository for one, is not for the agent to see.
const (
	UpperPath       = "/penstock/upper"              // what the job has written
	IndexPath       = "/penstock/monitor/index"      // the template's index
	DirectoriesPath = "/penstock/monitor/base"       // the template's directories, see [Directories]
	LayerPath       = "/penstock/monitor/layer"      // what setup has written, see [Names]
	LayerDirsPath   = "/penstock/monitor/layer-dirs" // the directories of that
)

// workspacePath is sandbox.WorkspacePath: with package sandbox below it, this one would be
// initialised late.
const workspacePath = "/workspace"

// hookWord is the argument that makes this program the hook.
const hookWord = "changed-files"

// token is what git shall say when it asks again. Every answer is complete, so it says
// nothing.
const token = "1"

// Nothing is the beginning of a script for a shell in a jail that shows a template at its
// place: it sets the variable nothing to a hook that says that no file has changed. Versions
// of git before 2.37 do not know all forms of an answer, so with them it is empty, which is
// no hook.
const Nothing = `nothing= && version=$(git version) && version=${version#git version }
major=${version%%.*} && minor=${version#*.} && minor=${minor%%.*}
if [ "$major" -gt 2 ] || [ "$minor" -ge 37 ]; then nothing='printf "` + token + `\0" #'; fi
`

// Prepare follows [Nothing]. It makes git note that no file differs, and ask the hook from
// then on. Where there is none, git notes only what the files look like.
const Prepare = `if [ "$nothing" ]; then
	git config core.fsmonitorHookVersion 2
	git -c "core.fsmonitor=$nothing" update-index -q --index-version 4 --fsmonitor --untracked-cache
	git -c "core.fsmonitor=$nothing" status --porcelain
	git config core.fsmonitor '` + hookCommand + `'
else
	git update-index -q --index-version 4 --refresh
fi`

// hookCommand asks in jails that show what it needs: a worker of an earlier release on the
// same host has other ones.
const hookCommand = "test -d " + UpperPath + " && " + jailinit.Path + " " + hookWord
