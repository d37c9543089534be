package workspace

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/slowtest"
	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/source"
)

// A hookTest has programs that make workspaces from a directory, as another
// version control would, and write down each call.
type hookTest struct {
	testing.TB
	dir string // of the programs and all they know
	s   *Spaces
}

func newHook(tb testing.TB, create string) *hookTest {
	tb.Helper()
	dir := tb.TempDir()
	h := &hookTest{TB: tb, dir: dir}
	h.program("create", create)
	h.program("remove", removedBy)
	sh(tb, dir, `mkdir src src/.hg many; echo one > src/a; echo two > src/b; echo hg > src/.hg/store; printf '*.log\n' > src/.gitignore; ln -s a src/link`)
	h.s = openAs(tb, Hook, Limits{})
	h.s.cfg.Salvage = salvageAll
	h.s.cfg.Programs = h.programs()
	return h
}

// removedBy removes a workspace, also one of which only the id is known.
const removedBy = `rm -rf "$DIR/many/a b $PENSTOCK_WORKSPACE_ID"`

// copied makes a workspace as it should be.
const copied = `to="$DIR/many/a b $PENSTOCK_WORKSPACE_ID"; cp -a "$DIR/src" "$to"; echo "$to"`

func (h *hookTest) programs() programs {
	return programs{
		Create: filepath.Join(h.dir, "create"), Remove: filepath.Join(h.dir, "remove"), Time: 20 * time.Second,
		Env: []string{"DIR=" + h.dir},
	}
}

func (h *hookTest) program(name, script string) {
	h.Helper()
	text := "#!/bin/sh\necho " + name + ` ${PENSTOCK_WORKSPACE:+"$PENSTOCK_WORKSPACE"} >> "$DIR/calls"` + "\n" + script + "\n"
	write(h, h.dir, name, text)
	executable(h, filepath.Join(h.dir, name))
}

// calls lists the calls of the programs.
func (h *hookTest) calls() string {
	data, err := os.ReadFile(filepath.Join(h.dir, "calls"))
	if err != nil && !os.IsNotExist(err) {
		h.Fatal(err)
	}
	return strings.ReplaceAll(strings.TrimSpace(string(data)), h.dir, "")
}

func hookRequest(id string) Request {
	return Request{ID: id, Repo: jobs.Repo{URL: "https://hg.example/repo", Ref: "tip"}, Isolation: jobs.IsolationWorktree}
}

func TestHook(t *testing.T) {
	h := newHook(t, copied+`; [ "$PENSTOCK_REPO $PENSTOCK_REF" = "https://hg.example/repo tip" ]; echo talk >&2`)
	w, err := h.s.Prepare(t.Context(), hookRequest("job.1"))
	if err != nil {
		t.Fatal(err)
	}
	if w.Strategy() != Hook || w.Base() != "" {
		t.Errorf("got %s, base %q", w.Strategy(), w.Base())
	}
	inJail(t, w, `echo more >> a; rm b; mkdir d; printf 'x\0y' > d/bin; echo no > x.log; echo more >> .hg/store; ln -sf d link`)
	c := save(t, w)
	if c.Files != 4 || strings.Contains(patch(t, c), ".hg") || strings.Contains(patch(t, c), "x.log") {
		t.Errorf("got %+v\n%s", c, patch(t, c))
	}
	// The patch leads from what there was to what there is.
	sh(t, filepath.Join(h.dir, "src"), "git apply --binary '"+c.Patch+"'; test ! -e b; test -s d/bin; grep more a; test \"$(readlink link)\" = d")
	closeSpace(t, w)
	if got := h.calls(); got != "create\nremove /many/a b job.1" {
		t.Errorf("called were\n%s", got)
	}
	if names, err := disk.Names(filepath.Join(h.dir, "many")); err != nil || len(names) > 0 {
		t.Errorf("left behind: %q, %v", names, err)
	}
}

// A create program that says there is no such commit, or fails, ends the job: that
// is not the host's fault, which would be tried again for long.
func TestHookThatRefusesItsJob(t *testing.T) {
	for script, is := range map[string]func(error) bool{
		"echo 'unknown revision nowhere' >&2; exit 66":  isA[*source.RefError],
		"echo 'unknown revision nowhere' >&2; exit 255": isA[*source.UnreachableError],
		"echo 'unknown revision nowhere' >&2; kill -9 $$": func(err error) bool {
			return !isA[*source.RefError](err) && !isA[*source.UnreachableError](err)
		},
	} {
		h := newHook(t, script)
		r := hookRequest("job.1")
		r.Repo.Ref = "nowhere"
		_, err := h.s.Prepare(t.Context(), r)
		if err == nil || !is(err) || !strings.Contains(err.Error(), "unknown revision nowhere") {
			t.Errorf("%s: got %v", script, err)
		}
		if isA[*source.RefError](err) && !strings.Contains(err.Error(), `has no branch, tag or commit "nowhere"`) {
			t.Errorf("got %v", err)
		}
		nothingLeft(t, h.s)
	}
}

// All that cannot be a workspace is refused with its reason, and the remove
// program is told once, without a path that is not the workspace's.
func TestHookPathsThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ create, want string }{
		"nothing":                           {"true", "printed no path"},
		"fails":                             {"echo why not >&2; exit 7", "exit status 7: why not"},
		"fails silently":                    {copied + "; exit 1", "exit status 1"},
		"relative":                          {"echo many", "not an absolute path"},
		"dots":                              {`echo "$DIR/src/../src"`, "without dots"},
		"two lines":                         {copied + "; echo more", "not one line"},
		"a control":                         {`printf '%s\033[2J' "$DIR/src"`, "not one line"},
		"missing":                           {`echo "$DIR/none"`, "no such file"},
		"a file":                            {`echo "$DIR/create"`, "not a directory"},
		"a link":                            {`ln -s src "$DIR/to"; echo "$DIR/to"`, "leads through one"},
		"through a link":                    {`ln -s src "$DIR/to"; mkdir -p "$DIR/src/in"; echo "$DIR/to/in"`, "leads through one"},
		"the system's":                      {"echo /etc", "no workspace may be in /etc"},
		"in the system":                     {"echo /usr/share", "no workspace may be in /usr"},
		"everything":                        {"echo /", "no workspace may contain /"},
		"all temporary":                     {"echo /tmp", "no workspace may contain /"},
		"the programs":                      {`echo "$DIR"`, "no workspace may contain"},
		"our own":                           {`echo "$OWN/jobs"`, "no workspace may be in"},
		"around our own":                    {`echo "$(dirname "$OWN")"`, "no workspace may contain"},
		"a secret":                          {`mkdir -p "$HOME/.ssh/x"; echo "$HOME/.ssh/x"`, "no workspace may be in"},
		"home":                              {`echo "$HOME"`, "no workspace may contain"},
		"talks":                             {"yes", "printed more than 4096 bytes"},
		"hangs":                             {"sleep 60", "did not end within"},
		"hangs, and its child has the pipe": {"sleep 60 & sleep 61", "did not end within"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHook(t, c.create)
			home := filepath.Join(t.TempDir(), "home")
			if err := os.Mkdir(home, 0o700); err != nil {
				t.Fatal(err)
			}
			p := &h.s.cfg.Programs
			p.Env = append(p.Env, "HOME="+home, "OWN="+h.s.cfg.Dir)
			if strings.HasPrefix(name, "hangs") {
				p.Time = slowtest.Limit(2 * time.Second) // which the other program has, too
			}
			_, err := h.s.Prepare(t.Context(), hookRequest("job.1"))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if got := h.calls(); got != "create\nremove" {
				t.Errorf("called were\n%s", got)
			}
			nothingLeft(t, h.s)
			if names, err := disk.Names(filepath.Join(h.dir, "many")); err != nil || len(names) > 0 {
				t.Errorf("left behind: %q, %v", names, err)
			}
		})
	}
}

func TestHookOfAnotherUser(t *testing.T) {
	h := newHook(t, copied+`; chown 1234 "$to"`)
	if os.Geteuid() != 0 {
		t.Skip("only root gives a directory to another user")
	}
	if _, err := h.s.Prepare(t.Context(), hookRequest("job.1")); err == nil || !strings.Contains(err.Error(), "another user") {
		t.Errorf("got %v", err)
	}
}

// Two workspaces never share a directory, nor is one in the other, and a refused one
// does not remove the other's directory.
func TestHookDirectoryInUse(t *testing.T) {
	h := newHook(t, copied)
	w, err := h.s.Prepare(t.Context(), hookRequest("job.1"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, w.Dir(), "in/side", "x")
	other, err := Open(t.Context(), h.s.cfg) // another worker
	if err != nil {
		t.Fatal(err)
	}
	for n, where := range []string{w.Dir(), filepath.Join(w.Dir(), "in"), filepath.Dir(w.Dir())} {
		h.program("create", "echo '"+where+"'")
		if _, err := other.Prepare(t.Context(), hookRequest(fmt.Sprint("other.", n))); err == nil || !strings.Contains(err.Error(), "in use by workspace job.1") {
			t.Errorf("%s: %v", where, err)
		}
	}
	if !disk.Exists(filepath.Join(w.Dir(), "in/side")) {
		t.Error("the workspace in use is gone")
	}
	closeUnused(t, w)
	if strings.Count(h.calls(), "remove /many") != 1 {
		t.Errorf("called were\n%s", h.calls())
	}
}

// A remove program that fails is called again by the sweep, until it succeeds.
func TestHookRemovalThatFails(t *testing.T) {
	h := newHook(t, copied)
	h.program("remove", `[ -e "$DIR/may" ] || exit 3; rm -rf "$PENSTOCK_WORKSPACE"`)
	w, err := h.s.Prepare(t.Context(), hookRequest("job.1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("closed: %v", err)
	}
	if swept, err := h.s.Sweep(t.Context()); err != nil || swept.Kept["job.1"] == nil {
		t.Errorf("swept %+v, %v", swept, err)
	}
	write(t, h.dir, "may", "")
	if swept, err := h.s.Sweep(t.Context()); err != nil || len(swept.Workspaces) != 1 {
		t.Errorf("swept %+v, %v", swept, err)
	}
	if _, err := h.s.Sweep(t.Context()); err != nil || strings.Count(h.calls(), "remove") != 3 {
		t.Errorf("%v: called were\n%s", err, h.calls())
	}
	nothingLeft(t, h.s)
}

// Killed between the program's success and the end of its record, it is not called
// again.
func TestHookRemovedOnce(t *testing.T) {
	h := newHook(t, copied)
	w, err := h.s.Prepare(t.Context(), hookRequest("job.1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.withdraw(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.leave(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := h.s.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Count(h.calls(), "remove"); got != 1 {
		t.Errorf("called %d times:\n%s", got, h.calls())
	}
	nothingLeft(t, h.s)
}

// hookCrashEnv tells the test binary to be a worker: "<directory>\n<programs>".
const hookCrashEnv = "PENSTOCK_TEST_CRASH_HOOK"

func hookCrashChild() {
	dir, own, _ := strings.Cut(os.Getenv(hookCrashEnv), "\n")
	cfg := Config{Dir: dir, Jail: &bwrap.Backend{}, Strategy: Hook, Programs: (&hookTest{dir: own}).programs()}
	s, err := Open(context.Background(), cfg)
	if err == nil {
		var w *Workspace
		if w, err = s.Prepare(context.Background(), hookRequest("job.1")); err == nil {
			w.contents.touched()
			err = os.WriteFile(filepath.Join(w.Dir(), "new"), []byte("x\n"), 0o644)
			fmt.Println("ready")
			if os.Getenv("CLOSE") != "" {
				c, failed := w.Collect(context.Background())
				fmt.Println(failed, w.Saved(receipt(c)), w.Close())
			}
			time.Sleep(time.Minute)
		}
	}
	fmt.Println(err)
	os.Exit(1)
}

// Whenever a worker is killed, the sweep calls the remove program when the one
// that still runs has ended, and what was written is salvaged before.
func TestHookKilled(t *testing.T) {
	slow := `echo begun > "$DIR/begun"; until [ -e "$DIR/go" ]; do sleep 0.05; done; `
	for name, c := range map[string]struct {
		create, remove string
		close          bool
		wait           string // for this file before the kill
		calls          string
		salvaged       int
	}{
		"while it is made":    {slow + copied, "", false, "begun", "create\nremove", 0},
		"while it is used":    {copied, "", false, "many/a b job.1/new", "create\nremove /many/a b job.1", 1},
		"while it is removed": {copied, slow, true, "begun", "create\nremove /many/a b job.1\nremove /many/a b job.1", 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHook(t, c.create)
			if c.remove != "" {
				h.program("remove", c.remove+removedBy)
			}
			salvaged := 0
			h.s.cfg.Salvage = func(ctx context.Context, w *Workspace) error {
				salvaged++
				return salvageAll(ctx, w)
			}
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), hookCrashEnv+"="+h.s.cfg.Dir+"\n"+h.dir)
			if c.close {
				cmd.Env = append(cmd.Env, "CLOSE=1")
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			for deadline := time.Now().Add(slowtest.Limit(20 * time.Second)); !disk.Exists(filepath.Join(h.dir, c.wait)); time.Sleep(5 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("it did not come so far")
				}
			}
			if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // it was killed, and says so
			if c.wait == "begun" {
				if swept, err := h.s.Sweep(t.Context()); err != nil || swept.Kept["job.1"] == nil {
					t.Errorf("while the program runs: swept %+v, %v", swept, err)
				}
			}
			write(t, h.dir, "go", "")
			var last Swept
			for deadline := time.Now().Add(slowtest.Limit(20 * time.Second)); len(last.Workspaces) == 0 && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
				var err error
				if last, err = h.s.Sweep(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := h.s.Sweep(t.Context()); err != nil {
				t.Error(err)
			}
			if got := h.calls(); got != c.calls || salvaged != c.salvaged {
				t.Errorf("%d salvaged; called were\n%s\nwant\n%s", salvaged, got, c.calls)
			}
			nothingLeft(t, h.s)
		})
	}
}
