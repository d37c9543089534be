package sandboxtest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/jailinit"
)

// Run makes every attempt that the features of b are supposed to stop.
func Run(t *testing.T, b sandbox.Backend) {
	Require(t, b)
	enforced, err := b.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	host := newHost(t)
	for _, a := range attacks(host) {
		t.Run(strings.ReplaceAll(a.name, " ", "-"), func(t *testing.T) {
			if !slices.Contains(enforced, a.feature) {
				t.Skipf("backend %s does not enforce %s here", b.Name(), a.feature)
			}
			a.run(t, b, host)
		})
	}
}

// An attack is one row of the table.
type attack struct {
	name    string
	feature sandbox.Feature // that stops it
	probe   string
	args    []string
	want    string                                // acceptable outcomes, separated by spaces
	spec    func(*sandbox.Spec)                   // what differs from the strict jail
	works   string                                // outcomes without a jail; "" if the attempt is not made there
	after   func(t *testing.T, workspace string)  // looks at the host
	exit    func(t *testing.T, exit sandbox.Exit) // looks at the end, instead of the outcome
}

func (a attack) run(t *testing.T, b sandbox.Backend, h *host) {
	workspace := h.workspace(t)
	if a.works != "" {
		out, err := control(t, workspace, a)
		if got := strings.TrimSpace(out); err != nil || !matches(got, a.works) {
			t.Errorf("without a jail: got %q, err %v, want %s: the attempt proves nothing", got, err, a.works)
		}
		workspace = h.workspace(t)
	}
	spec := sandbox.Spec{
		Args:      append([]string{jailinit.Path, probeWord, a.probe}, a.args...),
		Workspace: workspace,
		Grace:     time.Second,
	}
	if a.spec != nil {
		a.spec(&spec)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	out, exit, err := sandbox.Output(ctx, b, spec)
	got := strings.TrimSpace(string(out))
	switch {
	case err != nil:
		t.Fatal(err)
	case a.exit != nil:
		a.exit(t, exit)
	case !exit.Success():
		t.Errorf("got %q and %v, want %s", got, exit, a.want)
	case !matches(got, a.want):
		t.Errorf("got %q, want %s", got, a.want)
	}
	if a.after != nil {
		a.after(t, workspace)
	}
}

// control makes the attempt without a jail, in the same kind of workspace.
func control(t *testing.T, workspace string, a attack) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, self, append([]string{probeWord, a.probe}, a.args...)...)
	cmd.Dir = workspace
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	return out.String(), err
}

// matches compares an outcome with acceptable ones; a star ends a prefix,
// an exclamation mark in front means anything but that.
func matches(got, want string) bool {
	if not, ok := strings.CutPrefix(want, "!"); ok {
		return got != not
	}
	for w := range strings.FieldsSeq(want) {
		if prefix, ok := strings.CutSuffix(w, "*"); got == w || (ok && strings.HasPrefix(got, prefix)) {
			return true
		}
	}
	return false
}
