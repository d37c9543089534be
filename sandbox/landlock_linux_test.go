package sandbox_test

import (
	"context"
	"os"
	"slices"
	"testing"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/jailinit"
	"github.com/penstock-run/penstock/sandbox/mechanism"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
)

// wall has the second wall and nothing else, so that what stops an attempt
// can only be that.
type wall struct{ writable []string }

func (wall) Name() string { return "wall" }

func (wall) Ready(_ context.Context, spec sandbox.Spec) (sandbox.Spec, error) { return spec, nil }

func (wall) Check(context.Context) ([]sandbox.Feature, error) { return nil, nil }

func (w wall) Command(spec sandbox.Spec) (*sandbox.Command, error) {
	self, err := os.Executable()
	return &sandbox.Command{
		Path: self, Args: []string{jailinit.Path, mechanism.Mark},
		Jail: mechanism.Supervised{Init: jailinit.Config{
			Args: spec.Args, Env: spec.Env, Dir: "/", Writable: w.writable, Scoped: true,
		}},
	}, err
}

func TestSecondWall(t *testing.T) {
	sandboxtest.Require(t, &bwrap.Backend{}, sandbox.FeatureLandlock)
	inside, outside := t.TempDir(), t.TempDir()
	spec := sandbox.Spec{Args: []string{"sh", "-c", "echo > /dev/null && echo > " + inside + "/f && echo read > " + inside + "/g && echo > " + outside + "/f"}}
	spec = spec.Allow(sandbox.FeatureFiles, sandbox.FeatureProcesses, sandbox.FeatureIPC, sandbox.FeatureNetwork, sandbox.FeatureSyscalls,
		sandbox.FeaturePrivileges, sandbox.FeatureKill, sandbox.FeatureTemporary)
	for _, c := range []struct {
		writable []string
		success  bool
	}{{nil, true}, {[]string{inside}, false}, {[]string{inside, outside, "/nowhere"}, true}} {
		os.Remove(outside + "/f")
		exit, err := sandbox.Run(t.Context(), wall{c.writable}, spec, sandbox.Streams{})
		_, missing := os.Stat(outside + "/f")
		if err != nil || exit.Success() != c.success || (missing == nil) != c.success {
			t.Errorf("writable %v: got %v, err %v, file outside: %v", c.writable, exit, err, missing)
		}
		if _, err := os.Stat(inside + "/g"); err != nil {
			t.Errorf("writable %v: %v", c.writable, err)
		}
	}
}

// A jail reports what is weaker than it could be.
func TestWeakerIsReported(t *testing.T) {
	b, spec := wall{}, sandbox.Spec{Args: []string{"true"}, Limits: sandbox.Limits{CPUs: 1}}
	all := []sandbox.Feature{sandbox.FeatureFiles, sandbox.FeatureProcesses, sandbox.FeatureIPC, sandbox.FeatureNetwork, sandbox.FeatureSyscalls,
		sandbox.FeaturePrivileges, sandbox.FeatureKill, sandbox.FeatureTemporary, sandbox.FeatureCPU}
	p, err := sandbox.Start(t.Context(), b, spec.Allow(all...), sandbox.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(context.Background())
	for _, f := range append(all, sandbox.FeatureMemory, sandbox.FeatureLandlock) {
		if !slices.Contains(p.Weaker(), f) {
			t.Errorf("%s is not among what is weaker: %v", f, p.Weaker())
		}
	}
}
