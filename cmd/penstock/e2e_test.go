package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/schema"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event/eventtest"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/backends"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
	"github.com/penstock-run/penstock/sandbox/slowtest"
	"github.com/penstock-run/penstock/worker/poolmark"
)

// The programs of these tests are the test binary under the name penstock, so
// that what runs is what was just compiled.
func TestMain(m *testing.M) { testscript.Main(suite{m}, map[string]func(){"penstock": main}) }

// builtDir is where tests build what the test binary cannot stand for.
var builtDir string

// A suite is the tests of the package, with a directory for programs that they share.
type suite struct{ *testing.M }

func (s suite) Run() int {
	dir, err := os.MkdirTemp("", "penstock-programs")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	builtDir = dir
	return s.M.Run()
}

func TestScripts(t *testing.T) {
	t.Parallel()
	requireJail(t)
	testscript.Run(t, testscript.Params{
		Dir:  "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
		// enforces:FEATURE is true where the jails of this host do.
		Condition: func(cond string) (bool, error) {
			feature, ok := strings.CutPrefix(cond, "enforces:")
			if !ok {
				return false, fmt.Errorf("unknown condition %s", cond)
			}
			jail, err := backends.New(t.Context(), backends.Auto)
			if err != nil {
				return false, err
			}
			enforced, err := sandboxtest.Enforced(t.Context(), jail)
			return slices.Contains(enforced, sandbox.Feature(feature)), err
		},
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("PENSTOCK_DATA", filepath.Join(env.WorkDir, ".data"))
			env.Setenv("GIT_CONFIG_GLOBAL", filepath.Join(env.WorkDir, ".gitconfig"))
			return os.WriteFile(filepath.Join(env.WorkDir, ".gitconfig"),
				[]byte("[user]\n\tname = T\n\temail = t@example.com\n[init]\n\tdefaultBranch = main\n"), 0o644)
		},
	})
}

// exits runs a program and wants one exit code: exits 2 penstock run
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARG…")
	}
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		code = exit.ExitCode()
	}
	if got := fmt.Sprint(code); got != args[0] {
		ts.Fatalf("%v ended with %s, want %s", args[1:], got, args[0])
	}
}

// requireJail skips the test where no jail can be made, or fails it where one
// is promised.
func requireJail(tb testing.TB) {
	tb.Helper()
	if _, err := backends.New(tb.Context(), backends.Auto); err != nil {
		skip(tb, "bwrap", "no jail can be made here: %v", err)
	}
}

func skip(tb testing.TB, what, format string, args ...any) {
	tb.Helper()
	if slices.Contains(strings.Split(os.Getenv("PENSTOCK_TEST_REQUIRE"), ","), what) {
		tb.Fatalf(format, args...)
	}
	tb.Skipf(format, args...)
}

// A fixture is the environment of one test: a data directory, a repository, and the
// programs that were started.
type fixture struct {
	*testing.T
	data, repo string
	tmp        string   // where the programs put temporary files
	env        []string // variables for the programs, besides the usual
	program    string   // what is run; empty is the penstock in PATH
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	requireJail(t)
	f := &fixture{T: t, data: filepath.Join(t.TempDir(), "data"), repo: filepath.Join(t.TempDir(), "repo"), tmp: t.TempDir()}
	f.git("init", "-q", "-b", "main", f.repo)
	for i := range 20 {
		name := filepath.Join(f.repo, fmt.Sprintf("dir%d", i%4), fmt.Sprintf("file%d.txt", i))
		f.must(os.MkdirAll(filepath.Dir(name), 0o755))
		f.must(os.WriteFile(name, fmt.Appendf(nil, "file %d\n", i), 0o644))
	}
	f.git("-C", f.repo, "add", "-A")
	f.git("-C", f.repo, "commit", "-qm", "base")
	data := f.data // a test may use another one
	t.Cleanup(func() { f.removable(data) })
	t.Cleanup(f.nothingLeft)
	return f
}

// removable opens what the kernel keeps closed in the directory of an overlay
// whose worker was killed: only root removes it as it is.
func (f *fixture) removable(data string) {
	closed, err := filepath.Glob(filepath.Join(data, "work", "jobs", "*", "workspace.work", "work"))
	f.must(err)
	for _, dir := range closed {
		f.must(filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			return os.Chmod(path, 0o700) // before it is read
		}))
	}
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) git(args ...string) string {
	f.Helper()
	cmd := exec.Command("git", args...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=T", "GIT_AUTHOR_EMAIL=t@example.com",
		"GIT_COMMITTER_NAME=T", "GIT_COMMITTER_EMAIL=t@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		f.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// command is one call of the program, not started yet.
func (f *fixture) command(args ...string) *exec.Cmd {
	cmd := exec.Command(cmp.Or(f.program, "penstock"), args...)
	// git prefers these to its configuration, and some hosts set them.
	usual := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "GIT_SSL_") })
	cmd.Env = append(usual, "PENSTOCK_DATA="+f.data, "PENSTOCK_LEASE="+slowtest.Pace(4*time.Second).String(),
		"ANTHROPIC_API_KEY=", "HOME="+filepath.Dir(f.data), "TMPDIR="+f.tmp)
	if len(args) > 0 && args[0] == "doctor" {
		cmd.Env = append(cmd.Env, "PATH="+pathWithoutAgents())
	}
	cmd.Env = append(cmd.Env, f.env...)
	return cmd
}

// pathWithoutAgents is PATH without the directories of npm's programs: a doctor starts each agent that it finds
// to ask for its version, which takes seconds.
func pathWithoutAgents() string {
	dirs := slices.DeleteFunc(filepath.SplitList(os.Getenv("PATH")), func(dir string) bool {
		has := func(name string) bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
		return !has("git") && !has("bwrap") && slices.ContainsFunc([]string{"claude", "codex", "gemini", "opencode"}, has)
	})
	return strings.Join(dirs, string(filepath.ListSeparator))
}

// run runs the program to its end and returns its standard output.
func (f *fixture) run(args ...string) string {
	f.Helper()
	out, code, stderr := f.try(args...)
	if code != 0 {
		f.Fatalf("penstock %v: exit code %d\n%s%s", args, code, out, stderr)
	}
	return out
}

// try is run where the exit code is part of the question.
func (f *fixture) try(args ...string) (out string, code int, stderr string) {
	f.Helper()
	// A clean-up runs commands, too, to say why a test has failed.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.Context()), slowtest.Limit(2*time.Minute))
	defer cancel()
	cmd := f.command(args...)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	f.must(cmd.Start())
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) })
	defer stop()
	err := cmd.Wait()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if err != nil && !ok {
		f.Fatal(err)
	}
	if ok {
		code = exit.ExitCode()
	}
	return o.String(), code, e.String()
}

// A program is one that was started and goes on beside the test.
type program struct {
	*exec.Cmd
	log *syncBuffer
}

// start starts the program and waits until it says that it is ready.
func (f *fixture) start(ready string, args ...string) *program {
	f.Helper()
	return f.launch(f.command(args...), ready)
}

func (f *fixture) launch(cmd *exec.Cmd, ready string) *program {
	f.Helper()
	p := &program{Cmd: cmd, log: &syncBuffer{}}
	p.Stdout, p.Stderr = p.log, p.log
	f.must(p.Start())
	f.Cleanup(func() { p.end(); f.note(p, cmd.Args[1:]) })
	f.eventually(60*time.Second, "penstock "+cmd.Args[1]+" says "+ready, func() bool { return strings.Contains(p.log.String(), ready) })
	return p
}

func (f *fixture) note(p *program, args []string) {
	if f.Failed() {
		f.Logf("penstock %v:\n%s", args, p.log)
	}
}

// end lets the program end as an operator would, so that it cleans up.
func (p *program) end() {
	_ = p.Process.Signal(syscall.SIGTERM)
	stop := time.AfterFunc(slowtest.Limit(15*time.Second), func() { _ = p.Process.Kill() })
	defer stop.Stop()
	_ = p.Wait()
}

func (p *program) kill() {
	_ = p.Process.Kill()
	_ = p.Wait()
}

// freeAddress is one of this host on which nothing listens.
func freeAddress(tb testing.TB) string { return fmt.Sprint("127.0.0.1:", jobstest.FreePort(tb)) }

// serve starts a pool on a port that stays the same when it is started again.
func (f *fixture) serve(args ...string) (*program, []string) {
	f.Helper()
	address := freeAddress(f)
	args = append([]string{"serve", "--listen", address, "--admin", "", "--drain", "1s"}, args...)
	return f.start("serving", args...), args
}

func (f *fixture) worker(args ...string) *program {
	f.Helper()
	return f.start("slots on", append([]string{"worker", "--admin", "", "--drain", "1s"}, args...)...)
}

// submit submits a job with a shell command as its agent.
func (f *fixture) submit(script string, args ...string) string {
	f.Helper()
	args = append([]string{"submit", "-o", "id", "--repo", f.repo}, args...)
	return strings.TrimSpace(f.run(append(args, "--", "sh", "-c", script)...))
}

func (f *fixture) record(id string) jobs.Record {
	f.Helper()
	var rec jobs.Record
	f.must(json.Unmarshal([]byte(f.run("job", "get", "-o", "json", id)), &rec))
	return rec
}

func (f *fixture) events(id string) []jobs.Event {
	f.Helper()
	return f.decode(f.run("logs", "-o", "jsonl", id))
}

func (f *fixture) decode(lines string) []jobs.Event {
	f.Helper()
	var events []jobs.Event
	dec := json.NewDecoder(strings.NewReader(lines))
	for dec.More() {
		var line json.RawMessage
		f.must(dec.Decode(&line))
		var e jobs.Event
		f.must(json.Unmarshal(line, &e))
		f.valid(e, line)
		events = append(events, e)
	}
	return events
}

// eventSchema is what penstock schema event prints.
var eventSchema = sync.OnceValues(func() (*jsonschema.Resolved, error) {
	text, err := schema.For("event")
	if err != nil {
		return nil, err
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	return s.Resolve(nil)
})

// valid holds an event that penstock printed against the schema of events and,
// since that leaves room for fields to come, against the payload of its kind.
func (f *fixture) valid(e jobs.Event, line []byte) {
	f.Helper()
	eventtest.Strict(f, e)
	published, err := eventSchema()
	f.must(err)
	var value any
	f.must(json.Unmarshal(line, &value))
	if err := published.Validate(value); err != nil {
		f.Errorf("event %s is not what the schema says: %v\n%s", e.Kind, err, line)
	}
}

func (f *fixture) eventually(limit time.Duration, what string, ok func() bool) time.Duration {
	f.Helper()
	began := time.Now()
	if !slowtest.Eventually(limit, 50*time.Millisecond, ok) {
		f.Fatalf("not within %v: %s", time.Since(began).Round(time.Second), what)
	}
	return time.Since(began)
}

// patience is a limit for a command that waits for what comes.
func patience(seconds int) string {
	return slowtest.Limit(time.Duration(seconds) * time.Second).String()
}

// gapless fails unless the events are numbered 1, 2, 3 and so on.
func (f *fixture) gapless(events []jobs.Event) {
	f.Helper()
	for i, e := range events {
		if e.Seq != uint64(i+1) {
			f.Fatalf("event %d has seq %d (%s)", i+1, e.Seq, e.Kind)
		}
	}
}

func count(events []jobs.Event, kind jobs.Kind) int {
	n := 0
	for _, e := range events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// nothingLeft looks for what the programs of the test should have removed:
// jails, mounts, workspaces. It runs in a cleanup, where a fatal error would make
// Go forget what a test with parallel parts has said, and its name.
func (f *fixture) nothingLeft() {
	gone := func(what string, ok func() bool) {
		if !slowtest.Eventually(time.Minute, 50*time.Millisecond, ok) {
			f.Errorf("%s is left", what)
		}
	}
	gone("a process of a jail", func() bool { return len(jailed(f.data)) == 0 })
	// What others on this host have left, as tests do that run beside this one, is
	// theirs to remove.
	own := workerparts.PoolMark(&cli.Config{Data: f.data})
	gone("a jail of a dead program", func() bool {
		left, err := sandbox.Leftovers(context.Background(), "")
		return err == nil && !slices.ContainsFunc(left, func(l sandbox.Leftover) bool { return poolmark.On(l.Label, own) })
	})
	if entries, err := os.ReadDir(f.tmp); err != nil || len(entries) > 0 {
		f.Errorf("temporary files are left: %v, %v", entries, err)
	}
	gone("a process of the programs", func() bool { return len(inheriting("TMPDIR="+f.tmp)) == 0 })
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || bytes.Contains(mounts, []byte(f.data)) {
		f.Errorf("mounts of %s are left: %v\n%s", f.data, err, mounts)
	}
}

// jailed lists the processes that have a mount below dir in their table of mounts. A
// disk that a test mounts on the host is in the tables of all that are made meanwhile,
// and stays there.
func jailed(dir string) []string {
	var found []string
	names, _ := filepath.Glob("/proc/[0-9]*/mountinfo")
	for _, name := range names {
		mounts, err := os.ReadFile(name)
		if err != nil {
			continue // it ended
		}
		for line := range strings.Lines(string(mounts)) {
			if strings.Contains(line, dir) && !strings.Contains(line, " - tmpfs "+smallDisk+" ") {
				found = append(found, filepath.Base(filepath.Dir(name)))
				break
			}
		}
	}
	return found
}

// smallDisk is the source of a disk that a test mounts on the host.
const smallDisk = "penstock-test"

// inheriting lists the processes that have a variable in their environment:
// the programs that a test started, and what these started.
func inheriting(variable string) []string {
	var found []string
	names, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range names {
		if env, err := os.ReadFile(name); err == nil && slices.Contains(strings.Split(string(env), "\x00"), variable) {
			found = append(found, filepath.Base(filepath.Dir(name)))
		}
	}
	return found
}

// workspaces lists the attempts that have a directory on disk.
func (f *fixture) workspaces() []string {
	entries, err := os.ReadDir(filepath.Join(f.data, "work", "jobs"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		f.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
