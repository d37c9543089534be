package oci

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/jailinit"
)

// probeImage is an image without a file in it. The first Check on a host makes
// it; it takes no space, and stays.
const probeImage = "penstock/probe:1"

// Check makes a jail of an image without files and reports what the first
// program finds to hold in it, and what the engine says of limits.
func (b *Backend) Check(ctx context.Context) ([]sandbox.Feature, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.enforced != nil {
		return b.enforced, nil
	}
	c := checks{}
	e, err := b.engine()
	if err != nil {
		return nil, err
	}
	c.init(b)
	c.local(e)
	if len(c.problems) > 0 {
		return nil, &PreconditionError{c.problems}
	}
	a, err := e.about(ctx)
	if err != nil {
		c.daemon(e, err)
		return nil, &PreconditionError{c.problems}
	}
	if err := e.makeProbe(ctx); err != nil {
		return nil, fmt.Errorf("make the image %s: %w", probeImage, err)
	}
	found, err := b.inspect(ctx, sandbox.Spec{Image: probeImage, Args: []string{jailinit.Path, jailinit.Look, jailinit.Path}})
	if err != nil {
		return nil, fmt.Errorf("no jail can be made here: %w", err)
	}
	b.enforced = slices.Concat(a.features, features(found))
	return b.enforced, nil
}

// makeProbe imports an image that holds only the directories that the engine
// itself needs.
func (e engine) makeProbe(ctx context.Context) error {
	if _, err := e.ask(ctx, nil, "image", "inspect", probeImage); err == nil {
		return nil
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, dir := range []string{"etc/", "proc/", "dev/", "sys/"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	_, err := e.ask(ctx, archive.Bytes(), "import", "-", probeImage)
	return err
}

// inspect runs jailinit's look around in a jail, and returns what it says.
func (b *Backend) inspect(ctx context.Context, spec sandbox.Spec) (map[string]string, error) {
	out, exit, err := sandbox.Output(ctx, trial{b, essential}, spec)
	if err != nil {
		return nil, err
	}
	if !exit.Success() {
		return nil, fmt.Errorf("a program in it ended with %v", exit)
	}
	found := map[string]string{}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		found[key] = value
	}
	return found, nil
}

// essential is what a jail for looking around has to enforce: what it finds
// decides about the others.
var essential = []sandbox.Feature{
	sandbox.FeatureFiles, sandbox.FeatureProcesses, sandbox.FeatureIPC, sandbox.FeatureNetwork, sandbox.FeaturePrivileges,
	sandbox.FeatureKill, sandbox.FeatureTemporary, sandbox.FeatureSyscalls, sandbox.FeatureImage,
}

// features turns what was found in a jail into what the backend enforces.
func features(found map[string]string) []sandbox.Feature {
	f := []sandbox.Feature{sandbox.FeatureKill, sandbox.FeatureFileSize, sandbox.FeatureOpenFiles, sandbox.FeatureImage}
	for _, c := range []struct {
		feature sandbox.Feature
		holds   bool
	}{
		{sandbox.FeatureFiles, found["root"] == "read-only"},
		{sandbox.FeatureProcesses, found["first"] == "1"},
		{sandbox.FeatureIPC, found["ipc"] == "empty"},
		{sandbox.FeatureNetwork, found["interfaces"] == "lo"},
		{sandbox.FeatureSyscalls, found["filter"] == "2"},
		{sandbox.FeaturePrivileges, found["gain"] == "1" && found["capabilities"] == "0" && found["uid"] != "0"},
		{sandbox.FeatureTemporary, found["temporary"] == "memory"},
		{sandbox.FeatureLandlock, found["landlock"] != ""},
	} {
		if c.holds {
			f = append(f, c.feature)
		}
	}
	return f
}

// try makes a jail of the image, and looks for the program in it.
func (c *checks) try(ctx context.Context, b *Backend, id string) {
	spec := c.spec
	spec.Args, spec.Image = []string{jailinit.Path, jailinit.Look, c.spec.Args[0]}, cmp.Or(imageID(id), spec.Image)
	key := id + "\x00" + strings.Join(spec.Env, "\x00") + "\x00" + c.spec.Args[0]
	b.mu.Lock()
	_, known := b.tried[key]
	b.mu.Unlock()
	if known {
		return
	}
	found, err := b.inspect(ctx, spec)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		c.found("container", fmt.Sprintf("no jail can be made of image %s: %v", c.spec.Image, err), "penstock doctor says more")
	case found["program"] == "":
		c.found("program", fmt.Sprintf("image %s has no program %s in the PATH of the job", c.spec.Image, c.spec.Args[0]),
			fmt.Sprintf("bake it in: a Dockerfile with FROM %s and a RUN line that installs it; deploy/images shows how", c.spec.Image))
	default:
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.tried == nil {
			b.tried = map[string]bool{}
		}
		b.tried[key] = true
	}
}

// Ready returns spec as it is: the readiness check itself starts the trial.
func (t trial) Ready(_ context.Context, spec sandbox.Spec) (sandbox.Spec, error) { return spec, nil }
