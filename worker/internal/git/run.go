package git

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A Repo is a git directory that only the host writes, with the settings for a single
// command. The zero value of all fields but Dir is right for commands that need neither
// files nor an index.
type Repo struct {
	Dir      string   // the git directory itself
	WorkTree string   // the work tree; git runs in there
	Index    string   // instead of Dir/index
	Set      []string // settings for these commands, "name=value"
	Env      []string // variables for these commands, "NAME=value"
	// Progress is called with the progress of commands that report it, phase by phase,
	// by git's own names. It must not block.
	Progress func(phase string, percent int, done, total int64)
	// git inherits Hold. A lock on such a file lives until the last process that writes
	// under it has ended, even if this process is killed first.
	Hold []*os.File
	// As is the user that git runs as, if it is not ours: files that git writes into
	// that user's repository must belong to that user, and git must have no other
	// rights.
	As *syscall.Credential
}

// environment of every git process: nothing of the user's or the system's. The three
// before the last prevent git from reading through replacement objects, from running
// filters of large files, and from fetching missing objects of a partial clone.
var environment = []string{
	"HOME=/nonexistent", "LC_ALL=C",
	"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1",
	"GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0",
	"GIT_NO_REPLACE_OBJECTS=1", "GIT_LFS_SKIP_SMUDGE=1", "GIT_NO_LAZY_FETCH=1",
	// Older gits do not know that setting, and a repository may allow any protocol for
	// itself: this overrides it.
	"GIT_ALLOW_PROTOCOL=none",
}

// settings override every configuration file, including the repository's own.
var settings = []string{
	"core.hooksPath=/dev/null", "core.fsmonitor=false", "core.untrackedCache=false",
	"core.attributesFile=/dev/null", "core.excludesFile=/dev/null",
	"core.autocrlf=false", "core.safecrlf=false", "core.fileMode=true", "core.symlinks=true",
	"core.compression=1", "core.bigFileThreshold=16m", "index.version=2",
	"gc.auto=0", "maintenance.auto=false", "protocol.version=2", "protocol.allow=never",
}

// Run runs one git command and drops its output.
func (r Repo) Run(ctx context.Context, args ...string) error {
	return r.Pipe(ctx, nil, nil, args...)
}

// Output runs one git command and returns its output without the last newline. It is
// for short answers.
func (r Repo) Output(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	err := r.Pipe(ctx, nil, &out, args...)
	return strings.TrimSuffix(out.String(), "\n"), err
}

// Pipe runs one git command with the given input and output. If out returns an error,
// Pipe stops git and returns that error.
func (r Repo) Pipe(ctx context.Context, in io.Reader, out io.Writer, args ...string) error {
	return r.exec(ctx, call{args: args, env: environment, settings: slices.Concat(settings, r.Set), in: in, out: out})
}

// A call is one git process.
type call struct {
	args, env, settings []string
	in                  io.Reader
	out                 io.Writer
	dir                 string // the working directory, for a Repo without Dir: git searches for the repository
}

func (r Repo) exec(ctx context.Context, c call) error {
	program, err := exec.LookPath("git")
	if err != nil {
		return &Error{Command: c.args[0], Message: "git is not installed on this host, or not in PATH"}
	}
	var full []string
	for _, s := range c.settings {
		full = append(full, "-c", s)
	}
	cmd := exec.CommandContext(ctx, program, append(full, c.args...)...)
	cmd.Env = r.environ(c.env, filepath.Dir(program))
	cmd.Dir = cmp.Or(r.Dir, c.dir)
	if r.WorkTree != "" {
		cmd.Dir = r.WorkTree
	}
	cmd.Stdin = c.in
	failing := &failure{w: c.out}
	if c.out != nil {
		cmd.Stdout = failing
	}
	stderr := &tail{limit: 8 << 10}
	said := &progressFilter{tell: r.Progress, rest: stderr}
	cmd.Stderr = said
	cmd.ExtraFiles = r.Hold
	// git starts helpers (ssh, remote-https, index-pack): they end with it. Without a
	// terminal none of them can prompt, whatever their settings: ssh would, and the
	// kernel would stop it, because it is in the background.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: r.As}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	err = cmd.Run()
	said.flush()
	switch {
	case err == nil && failing.err == nil:
		return nil
	case failing.err != nil:
		return failing.err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return newError(c.args, err, stderr.String())
}

func (r Repo) environ(env []string, bin string) []string {
	env = slices.Concat(env, r.Env)
	if r.Dir != "" {
		env = append(env, "GIT_DIR="+r.Dir)
	}
	if !slices.ContainsFunc(env, func(s string) bool { return strings.HasPrefix(s, "PATH=") }) {
		env = append(env, "PATH="+bin+":/usr/local/bin:/usr/bin:/bin")
	}
	if r.WorkTree != "" {
		env = append(env, "GIT_WORK_TREE="+r.WorkTree)
	}
	if r.Index != "" {
		env = append(env, "GIT_INDEX_FILE="+r.Index)
	}
	return env
}

// failure remembers its writer's error, which os/exec would report as a broken pipe of
// git's.
type failure struct {
	w   io.Writer
	err error
}

func (f *failure) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err != nil {
		f.err = err
	}
	return n, err
}

// tail keeps the end of git's messages, because the reason comes last.
type tail struct {
	limit int
	buf   []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - t.limit; over > 0 {
		t.buf = slices.Delete(t.buf, 0, over)
	}
	return len(p), nil
}

func (t *tail) String() string { return string(t.buf) }
