package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent/internal/wording"
	"github.com/penstock-run/penstock/worker/agentstore"
	"github.com/penstock-run/penstock/worker/scratch"
)

// A Program is an agent's program on this host.
type Program struct {
	// Args start the program: its real path, or an interpreter and a script.
	Args []string
	// Mounts are the paths of the host that the program needs besides the system's own
	// directories.
	Mounts []string
	// Version is the version that the program reported, if it was asked, or the one that
	// the job names. Then Digest is that of its files, see package agentstore, and Bin a
	// directory with the program alone, for PATH.
	Version, Digest, Bin string
}

// Command returns the command line of the program, or of the one of that name in the
// jail's PATH.
func (p Program) Command(name string) []string {
	if len(p.Args) > 0 {
		return p.Args
	}
	return []string{name}
}

// A MissingError says that an agent's program is not on this host.
type MissingError struct {
	Agent string
	Where string // where it was looked for
	Err   error  // another reason, if any
}

func (e *MissingError) Error() string {
	text := fmt.Sprintf("program of agent %s not found in %s", e.Agent, e.Where)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text + "; install it, or name its path in the worker's settings"
}

func (e *MissingError) Unwrap() error { return e.Err }

// Find looks for the program of an agent on this host. It only looks at files, so it
// may be called for every attempt. It finds nothing for an agent whose job brings the
// program.
func (a *Agents) Find(name string) (Program, error) {
	adapter, err := a.Get(name)
	if err != nil || adapter.About().Brought {
		return Program{}, err
	}
	program, more := a.named(adapter.About())
	path, where := program, program
	if !filepath.IsAbs(program) {
		path, where = lookPath(a.cfg.Path, program), "PATH"
	}
	if path == "" {
		return Program{}, &MissingError{Agent: name, Where: where}
	}
	p, err := a.resolve(path)
	if err != nil {
		return Program{}, &MissingError{Agent: name, Where: where, Err: err}
	}
	p.Args = slices.Concat(p.Args, more)
	return p, nil
}

// named is the agent's program and its first arguments, as the settings name them.
func (a *Agents) named(about About) (program string, more []string) {
	if c := a.cfg.Custom[about.Name]; len(c.Command) > 0 {
		return c.Command[0], c.Command[1:]
	}
	if path := a.cfg.Programs[about.Protocol]; path != "" {
		return path, nil
	}
	return about.Protocol, nil
}

// versionTime is how long an agent may take to say its version.
const versionTime = 30 * time.Second

// Check asks the program of an agent for its version. It starts the program
// on the host, outside of any jail, with nothing in its environment.
func (a *Agents) Check(ctx context.Context, name string) (Program, error) {
	p, err := a.Find(name)
	if err != nil || len(p.Args) == 0 {
		return p, err
	}
	p.Version, err = a.Ask(ctx, name, p)
	return p, err
}

// Ask asks a program of an agent for its version, as Check does.
func (a *Agents) Ask(ctx context.Context, name string, p Program) (string, error) {
	home, done, err := scratch.Dir("version")
	if err != nil {
		return "", fmt.Errorf("check agent %s: %w", name, err)
	}
	defer func() { _ = done() }() // what is left, the next one removes
	ctx, cancel := context.WithTimeout(ctx, versionTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.Args[0], append(slices.Clone(p.Args[1:]), "--version")...)
	cmd.Env = []string{"HOME=" + home, "PATH=" + a.cfg.Path, "DISABLE_AUTOUPDATER=1"}
	cmd.Dir = home
	// Some agents run themselves again as a child, which must not outlive its time either:
	// it would write into a directory that was removed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// A child of the program that keeps the pipe open must not block this process.
	cmd.WaitDelay = 2 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("check agent %s: %s --version: %w: %s", name, strings.Join(p.Args, " "), err, wording.Short(string(bytes.TrimSpace(out)), 300))
	}
	return version().FindString(string(out)), nil
}

var version = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\d+\.\d+\.\d+[-+.\w]*`) })

// resolve follows links to the file that really runs. A script needs its interpreter by
// path, because the jail's PATH may not contain it.
func (a *Agents) resolve(path string) (Program, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return Program{}, err
	}
	if err := executable(real); err != nil {
		return Program{}, err
	}
	if native := nativeBeside(real); native != "" {
		// The resources of the program lie beside it.
		return Program{Args: []string{native}, Mounts: []string{filepath.Dir(filepath.Dir(native))}}, nil
	}
	words, err := shebang(real)
	if err != nil {
		return Program{}, err
	}
	if len(words) == 0 {
		return Program{Args: []string{real}, Mounts: []string{real}}, nil
	}
	interpreter := words[0]
	if !filepath.IsAbs(interpreter) {
		if interpreter = lookPath(a.cfg.Path, words[0]); interpreter == "" {
			return Program{}, fmt.Errorf("%s: its interpreter %s is not in PATH", real, words[0])
		}
	}
	if interpreter, err = filepath.EvalSymlinks(interpreter); err != nil {
		return Program{}, err
	}
	return Program{
		Args:   slices.Concat([]string{interpreter}, words[1:], []string{real}),
		Mounts: []string{interpreter, installation(real)},
	}, nil
}

// nativeBeside is the native program that a package's script starts, in a package for
// this system beside it. Started directly it needs no Node.js, and is killed as one
// process instead of two.
func nativeBeside(script string) string {
	pkg := filepath.Dir(filepath.Dir(script)) // …/@openai/codex of …/@openai/codex/bin/codex.js
	name := filepath.Base(pkg)
	if filepath.Base(script) != name+".js" {
		return ""
	}
	for _, place := range []string{pkg + "-*/vendor/*/bin/" + name, pkg + "/vendor/*/bin/" + name} {
		found, err := filepath.Glob(place)
		if err == nil && len(found) == 1 && executable(found[0]) == nil {
			return found[0]
		}
	}
	return ""
}

// Use returns the program of an installed version, whose files are those that were installed,
// or an [*agentstore.UseError]. In a jail whose root is an image, a script runs by the image's own
// interpreter. The version stays installed until release is called.
func (a *Agents) Use(ctx context.Context, name, version string, image bool) (p Program, release func() error, err error) {
	adapter, err := a.Get(name)
	if err != nil {
		return Program{}, nil, err
	}
	used, err := a.cfg.Store.Use(ctx, adapter.About().Package.Name, version)
	if err != nil {
		return Program{}, nil, err
	}
	if p, err = a.Installed(adapter.About(), used.Installed, image); err != nil {
		return Program{}, nil, errors.Join(&agentstore.UseError{Err: err}, used.Close())
	}
	return p, used.Close, nil
}

// Installed is the program of a version that is there, for a jail whose root is an image or not.
func (a *Agents) Installed(about About, i agentstore.Installed, image bool) (Program, error) {
	p, err := a.resolve(i.Path())
	if err != nil {
		return Program{}, err
	}
	switch script := len(p.Args) > 1; {
	case script && image:
		p.Args[0], p.Mounts = filepath.Base(p.Args[0]), nil
	case script:
		p.Mounts = p.Mounts[:1] // the interpreter
	default:
		p.Mounts = nil
	}
	_, more := a.named(about)
	p.Args, p.Mounts = append(p.Args, more...), append(p.Mounts, i.Tree())
	p.Version, p.Digest, p.Bin = i.Version, i.Digest, i.Bin()
	return p, nil
}

// Store has the versions of agents on this host.
func (a *Agents) Store() *agentstore.Store { return a.cfg.Store }

// Labels are the labels of a worker of this host, for the versions of agents that it has.
func (a *Agents) Labels() []string {
	if a.cfg.Store == nil {
		return nil
	}
	var labels []string
	for _, about := range a.All() {
		if about.Package.Name == "" {
			continue
		}
		for _, version := range a.cfg.Store.Versions(about.Package.Name) {
			if jobs.CheckAgentVersion(version) == nil {
				labels = append(labels, jobs.VersionLabel(about.Name, version))
			}
		}
	}
	slices.Sort(labels)
	return slices.Compact(labels)
}

// shebang returns the interpreter that a script names in its first line, with its
// arguments; nothing for a native program.
func shebang(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, 256))
	if err != nil {
		return nil, err
	}
	line, _, _ := bytes.Cut(head, []byte("\n"))
	script, ok := strings.CutPrefix(string(line), "#!")
	if !ok {
		return nil, nil
	}
	words := strings.Fields(script)
	if len(words) > 1 && filepath.Base(words[0]) == "env" {
		words = words[1:]
		if words[0] == "-S" {
			words = words[1:]
		}
	}
	if len(words) == 0 {
		return nil, fmt.Errorf("%s: names no interpreter", path)
	}
	return words, nil
}

// installation is the directory of a script's own files: the outermost node_modules
// above it. For any other script there is no such rule; its directory may be a user's
// home, so the jail sees the file alone.
func installation(script string) string {
	found := script
	for d := filepath.Dir(script); d != filepath.Dir(d); d = filepath.Dir(d) {
		if filepath.Base(d) == "node_modules" {
			found = d
		}
	}
	return found
}

// lookPath finds a program in a list of directories. Relative directories do not count:
// they would depend on the working directory of the worker.
func lookPath(list, name string) string {
	for _, dir := range filepath.SplitList(list) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if path := filepath.Join(dir, name); executable(path) == nil {
			return path
		}
	}
	return ""
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a file", path)
	case info.Mode().Perm()&0o111 == 0:
		return fmt.Errorf("%s: %w", path, fs.ErrPermission)
	}
	return nil
}
