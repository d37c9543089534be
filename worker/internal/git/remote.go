package git

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Remote is a source of objects.
type Remote struct {
	URL string // an absolute path if Local
	// Local is a repository of this host. Only git-upload-pack reads its configuration,
	// and by design it obeys no setting there that runs a program.
	Local bool
	// Trust is a configuration file that marks local repositories as safe to read,
	// whatever their owner. git accepts that setting from a file only.
	Trust string
	// Env is the operator's own environment, for URLs: credential helpers and
	// ssh keys work through it. Empty means that there are none.
	Env []string
}

// A Ref is a name of a remote and what it points to.
type Ref struct{ Name, Commit string }

// List asks the remote for its HEAD and the given full names. It also returns the
// branch that HEAD points to, if the remote reports it.
func (r Remote) List(ctx context.Context, dir string, names ...string) (refs []Ref, branch string, err error) {
	if r.Local {
		return r.advertised(ctx, dir, names)
	}
	var out bytes.Buffer
	args := append([]string{"ls-remote", "--symref", "--", r.URL, "HEAD"}, names...)
	if err := r.run(ctx, Repo{Dir: dir}, &out, args); err != nil {
		return nil, "", err
	}
	for line := range strings.Lines(out.String()) {
		value, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		switch target, symbolic := strings.CutPrefix(value, "ref: "); {
		case !ok:
		case symbolic && name == "HEAD":
			branch = strings.TrimPrefix(target, "refs/heads/")
		case IsCommit(value):
			refs = append(refs, Ref{name, value})
		}
	}
	return refs, branch, nil
}

// Fetch fetches refspecs from the remote into r. Depth 0 means the whole history of the
// remote, also if an earlier fetch got less.
func (r Repo) Fetch(ctx context.Context, from Remote, depth int, refspecs ...string) error {
	volume := "--quiet"
	if r.Progress != nil {
		volume = "--progress"
	}
	args := []string{"fetch", volume, "--no-tags", "--no-auto-maintenance",
		"--no-recurse-submodules", "--no-write-fetch-head",
		// A shallow remote passes on its history as it is. Without this git refuses the
		// ref, and reports success.
		"--update-shallow"}
	switch cut, err := os.Stat(filepath.Join(r.Dir, "shallow")); {
	case depth > 0:
		args = append(args, "--depth="+strconv.Itoa(depth))
	case err == nil && cut.Size() > 0:
		args = append(args, "--unshallow")
	}
	return from.run(ctx, r, nil, slices.Concat(args, []string{"--", from.URL}, refspecs))
}

// CheckOut writes the files of a commit, and their index, over the existing files. Only
// the host has written in the work tree.
func (r Repo) CheckOut(ctx context.Context, commit string) error {
	args := []string{"read-tree", "-u", "--reset", commit}
	if r.Progress != nil {
		args = append(args, "-v")
	}
	return r.Run(ctx, args...)
}

// Push makes a full name of the remote point to a commit of r if it points to old now;
// "" says that it must not exist. The remote compares and changes in one step. Push
// forces nothing else, touches no other name, and runs no hook of this host.
func (r Repo) Push(ctx context.Context, to Remote, name, commit, old string) error {
	return to.run(ctx, r, nil, []string{"push", "--quiet", "--no-verify", "--no-follow-tags", "--no-signed", "--no-recurse-submodules",
		"--force-with-lease=" + name + ":" + old, "--", to.URL, commit + ":" + name})
}

// localEnv is the environment of git that reads a local repository.
func (r Remote) localEnv() []string {
	return append(slices.Clone(environment), "GIT_CONFIG_GLOBAL="+r.Trust, "GIT_ALLOW_PROTOCOL=file")
}

func (r Remote) run(ctx context.Context, in Repo, out io.Writer, args []string) error {
	env, allow := slices.Clone(environment), "file"
	switch {
	case r.Local:
		env = r.localEnv()
	default:
		allow = scheme(r.URL)
		env = append(env, "GIT_ALLOW_PROTOCOL="+allow)
		if len(r.Env) > 0 {
			env = operator(r.Env)
			if allow == "ssh" && !in.choosesSSH(ctx, env) {
				// A dead host must be detected.
				env = append(env, "GIT_SSH_COMMAND=ssh -oBatchMode=yes -oConnectTimeout=30 -oServerAliveInterval=15")
			}
		}
	}
	set := append(slices.Clone(settings), "protocol."+allow+".allow=always",
		"fetch.unpackLimit=1", "transfer.fsckObjects=false",
		// A silent remote must not occupy a slot for ever.
		"http.lowSpeedLimit=1000", "http.lowSpeedTime=60")
	return in.exec(ctx, call{args: args, env: env, settings: set, out: out})
}

// scheme names git's protocol for a URL; the short form of ssh has none.
func scheme(url string) string {
	name, _, ok := strings.Cut(url, "://")
	if !ok {
		return "ssh"
	}
	return strings.ToLower(name)
}

// operator keeps the variables of an environment that help git to reach a remote, and
// drops those that would point it to another repository.
func operator(env []string) []string {
	keep := []string{"GIT_SSH", "GIT_ASKPASS", "GIT_SSL_", "GIT_CONFIG_", "GIT_PROXY_", "GIT_HTTP_"}
	var kept []string
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		ours := !strings.HasPrefix(name, "GIT_") || slices.ContainsFunc(keep, func(p string) bool { return strings.HasPrefix(name, p) })
		if ours && name != "LC_ALL" {
			kept = append(kept, kv)
		}
	}
	// No person is there to answer a question, neither in a terminal nor in a window.
	return append(kept, "LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GCM_INTERACTIVE=never",
		"GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1")
}

// choosesSSH reports whether the operator configures ssh: in variables, or in a
// configuration file, which a variable of ours would override.
func (r Repo) choosesSSH(ctx context.Context, env []string) bool {
	for _, kv := range env {
		if strings.HasPrefix(kv, "GIT_SSH=") || strings.HasPrefix(kv, "GIT_SSH_COMMAND=") {
			return true
		}
	}
	return r.exec(ctx, call{args: []string{"config", "--get", "core.sshCommand"}, env: env, settings: settings}) == nil
}

// IsCommit reports whether s is a full object name.
func IsCommit(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}
