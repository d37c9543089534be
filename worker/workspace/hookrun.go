package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/worker/internal/disk"
)

// maxHookOutput bounds the output of a program: a path.
const maxHookOutput = 4096

// hookGrace is how long a program's end may take beyond its time.
const hookGrace = 10 * time.Second

// runHook runs one of the operator's programs and returns its output without the last
// newline. All processes in its process group end with its time limit.
func (w *hookFiles) runHook(ctx context.Context, program string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, w.spaces.cfg.Programs.Time)
	defer cancel()
	// The program inherits it, so that later processes see that it still runs.
	l, err := disk.TryLock(w.path("hook.lock"), syscall.LOCK_EX)
	switch {
	case errors.Is(err, disk.ErrLocked): // by a service that an earlier program began
	case err != nil:
		return "", err
	default:
		// Nothing was written through it.
		defer func() { _ = l.Release() }()
	}
	var out boundedOutput
	said := &tailWriter{limit: maxHookOutput}
	cmd := exec.CommandContext(limited, program)
	cmd.Dir, cmd.Env = "/", w.hookEnv()
	cmd.Stdout, cmd.Stderr = &out, said
	if l != nil {
		cmd.ExtraFiles = []*os.File{l.File}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// A service that it began may keep its output open.
	cmd.WaitDelay = 2 * time.Second
	err = cmd.Run()
	if cmd.ProcessState != nil && cmd.ProcessState.Success() && errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	switch {
	case out.over:
		return "", fmt.Errorf("%s printed more than %d bytes", program, maxHookOutput)
	case err == nil:
		return strings.TrimSuffix(string(out.buf), "\n"), nil
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case limited.Err() != nil:
		return "", fmt.Errorf("%s did not end within %v", program, w.spaces.cfg.Programs.Time)
	}
	if last := strings.TrimSpace(said.String()); last != "" {
		err = fmt.Errorf("%w: %s", err, disk.Printable(disk.Shorten(last[max(0, len(last)-100):])))
	}
	return "", fmt.Errorf("%s: %w", program, err)
}

func (w *hookFiles) hookEnv() []string {
	env := slices.Clone(w.spaces.cfg.Programs.Env)
	if !slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "PATH=") }) {
		env = append(env, "PATH=/usr/local/bin:/usr/bin:/bin")
	}
	h := w.hooked
	return append(env, "PENSTOCK_WORKSPACE_ID="+w.id, "PENSTOCK_WORKSPACE="+h.Dir,
		"PENSTOCK_REPO="+h.Repo.URL, "PENSTOCK_REF="+h.Repo.Ref, "PENSTOCK_COMMIT="+h.Repo.Commit)
}

// boundedOutput takes a program's output, and refuses too much.
type boundedOutput struct {
	buf  []byte
	over bool
}

func (b *boundedOutput) Write(p []byte) (int, error) {
	if b.over = b.over || len(b.buf)+len(p) > maxHookOutput; b.over {
		return 0, syscall.EFBIG
	}
	b.buf = append(b.buf, p...)
	return len(p), nil
}

// tailWriter keeps the end of a program's messages.
type tailWriter struct {
	limit int
	buf   []byte
}

func (t *tailWriter) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	t.buf = slices.Delete(t.buf, 0, max(0, len(t.buf)-t.limit))
	return len(p), nil
}

func (t *tailWriter) String() string { return string(t.buf) }

// check reports why the programs cannot be run.
func (p programs) check() error {
	for setting, program := range map[string]string{"create": p.Create, "remove": p.Remove} {
		if program == "" {
			return fmt.Errorf("workspace strategy hook: the worker has no %s program", setting)
		}
		if !filepath.IsAbs(program) {
			return fmt.Errorf("workspace strategy hook: the %s program %s is not an absolute path", setting, disk.Printable(program))
		}
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("workspace strategy hook: the %s program: %w", setting, err)
		}
	}
	return nil
}

// Where no workspace may be: the system's directories and those below them, and
// directories that contain other users' directories. A user's secrets are below the
// home directory.
var (
	systems = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr", "/var/run"}
	crowded = []string{"/", "/home", "/media", "/mnt", "/opt", "/root", "/srv", "/tmp", "/var", "/var/lib", "/var/tmp"}
	secrets = []string{".ssh", ".gnupg", ".aws", ".config", ".kube", ".docker", ".password-store"}
)

// checkPath checks the path that a program printed. No workspace may be in the worker's own
// directory.
func (p programs) checkPath(path, own string) (os.FileInfo, error) {
	switch {
	case path == "":
		return nil, errors.New("it printed no path")
	case !utf8.ValidString(path) || strings.ContainsFunc(path, unicode.IsControl):
		return nil, errors.New("it is not one line of text")
	case !filepath.IsAbs(path) || filepath.Clean(path) != path:
		return nil, errors.New("it is not an absolute path without dots and double slashes")
	}
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	real, err := filepath.EvalSymlinks(path)
	switch {
	case err != nil:
		return nil, err
	case real != path:
		return nil, errors.New("it is a link, or leads through one")
	case !info.IsDir():
		return nil, errors.New("it is not a directory")
	case int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid():
		return nil, errors.New("it belongs to another user than the worker")
	case unix.Access(path, unix.R_OK|unix.W_OK|unix.X_OK) != nil:
		return nil, errors.New("the worker cannot write there")
	}
	return info, p.permits(path, own)
}

// permits refuses a workspace where it would show what is not its own.
func (p programs) permits(path, own string) error {
	keep := append([]string{own}, p.Keep...)
	below := slices.Concat(systems, keep)
	around := slices.Concat(crowded, keep, []string{p.Create, p.Remove})
	for _, kv := range p.Env {
		if home, ok := strings.CutPrefix(kv, "HOME="); ok && filepath.IsAbs(home) {
			around = append(around, home)
			for _, name := range secrets {
				below = append(below, filepath.Join(home, name))
			}
		}
	}
	for _, dir := range below {
		if disk.Within(path, dir) {
			return fmt.Errorf("no workspace may be in %s", dir)
		}
	}
	for _, dir := range around {
		if disk.Within(dir, path) {
			return fmt.Errorf("no workspace may contain %s", dir)
		}
	}
	return nil
}
