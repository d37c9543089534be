package sandboxtest

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/jailinit"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// Run makes every attempt that the features of b are supposed to stop. What
// b does not enforce is skipped by name, and allowed to be absent in the
// jails of the others. Each of with changes the Specs for the backend: it may
// name an image. No file but the test binary itself is needed.
func Run(t *testing.T, b sandbox.Backend, with ...func(sandbox.Spec) sandbox.Spec) {
	Require(t, b)
	enforced, err := Enforced(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	with = append(slices.Clone(with), func(s sandbox.Spec) sandbox.Spec { return s.Allow(without(enforced)...) })
	host := newHost(t)
	for _, a := range attacks(host) {
		t.Run(strings.ReplaceAll(a.name, " ", "-"), func(t *testing.T) {
			if !a.alone() {
				t.Parallel()
			}
			if !slices.Contains(enforced, a.feature) {
				t.Skipf("backend %s does not enforce %s here", b.Name(), a.feature)
			}
			if a.image == "-" && slices.Contains(enforced, sandbox.FeatureImage) {
				t.Skip("the root is the image's")
			}
			if a.image != "" && slices.Contains(enforced, sandbox.FeatureImage) {
				a.want = a.image
			}
			a.run(t, target{b, with}, host)
		})
	}
}

// A target is a backend, and what its Specs need.
type target struct {
	sandbox.Backend
	with []func(sandbox.Spec) sandbox.Spec
}

func (g target) spec(s sandbox.Spec) sandbox.Spec {
	for _, f := range g.with {
		s = f(s)
	}
	return s
}

// Command lets the start take longer on a busy machine: the attempts are not about it.
func (g target) Command(spec sandbox.Spec) (*sandbox.Command, error) {
	c, err := g.Backend.Command(spec)
	if err == nil {
		c.StartTimeout = slowtest.Limit(30 * time.Second)
	}
	return c, err
}

// An attack is one row of the table.
type attack struct {
	name    string
	feature sandbox.Feature // that stops it
	probe   string
	args    []string
	want    string                                 // acceptable outcomes, separated by spaces
	image   string                                 // outcomes where the root comes from an image; "-" if the row says nothing there; "" the same
	spec    func(*sandbox.Spec)                    // what differs from the strict jail
	works   string                                 // outcomes without a jail; "" if the attempt is not made there
	before  func(t *testing.T, workspace string)   // prepares the host
	during  func(t *testing.T, p *sandbox.Process) // looks at the host once the program has written a line; then it is killed
	after   func(t *testing.T, workspace string)   // looks at the host
	exit    func(t *testing.T, exit sandbox.Exit)  // looks at the end, instead of the outcome
}

// alone reports whether the attempt must be made while no other is: it prepares or
// looks at the host, or is about how much there is of what others would take, too.
func (a attack) alone() bool {
	return a.before != nil || a.during != nil || a.after != nil || a.exit != nil ||
		a.feature == sandbox.FeatureCPU || a.feature == sandbox.FeaturePIDs
}

func (a attack) run(t *testing.T, g target, h *host) {
	workspace := h.workspace(t)
	if a.before != nil {
		a.before(t, workspace)
	}
	if a.works != "" {
		out, err := control(t, workspace, a)
		if got := strings.TrimSpace(out); err != nil || !matches(got, a.works) {
			t.Errorf("without a jail: got %q, err %v, want %s: the attempt proves nothing", got, err, a.works)
		}
		workspace = h.workspace(t)
		if a.before != nil {
			a.before(t, workspace)
		}
	}
	spec := sandbox.Spec{
		Args:      append([]string{jailinit.Path, probeWord, a.probe}, a.args...),
		Workspace: workspace,
		Grace:     time.Second,
	}
	if a.spec != nil {
		a.spec(&spec)
	}
	spec = g.spec(spec)
	ctx, cancel := context.WithTimeout(t.Context(), slowtest.Limit(time.Minute))
	defer cancel()
	if a.during != nil {
		a.watch(ctx, t, g, spec)
	} else {
		a.compare(ctx, t, g, spec)
	}
	if a.after != nil {
		a.after(t, workspace)
	}
}

func (a attack) compare(ctx context.Context, t *testing.T, g target, spec sandbox.Spec) {
	t.Helper()
	out, exit, err := sandbox.Output(ctx, g, spec)
	got := strings.Join(strings.Fields(string(out)), ",")
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
}

// watch calls during when the program has said that it tries.
func (a attack) watch(ctx context.Context, t *testing.T, g target, spec sandbox.Spec) {
	t.Helper()
	r, w := io.Pipe()
	p, err := sandbox.Start(ctx, g, spec, sandbox.Streams{Stdout: w})
	if err != nil {
		t.Fatal(err)
	}
	defer context.AfterFunc(ctx, func() { r.Close() })()
	lines := bufio.NewReader(r)
	if line, err := lines.ReadString('\n'); err != nil || !matches(strings.TrimSpace(line), a.want) {
		t.Errorf("got %q, err %v, want %s", line, err, a.want)
	} else {
		a.during(t, p)
	}
	r.Close()
	if err := p.Close(context.WithoutCancel(ctx)); err != nil {
		t.Error(err)
	}
}

// control makes the attempt without a jail, in the same kind of workspace.
func control(t *testing.T, workspace string, a attack) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), slowtest.Limit(time.Minute))
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
