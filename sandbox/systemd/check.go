package systemd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/sandbox"
)

// Check starts a unit, and lets a shell in it and itself outside look whether
// each wall stands. A unit without its walls is an error, which names them: the
// manager has ignored a property. A limit without effect is a missing feature.
func (b *Backend) Check(ctx context.Context) ([]sandbox.Feature, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.enforced != nil {
		return b.enforced, nil
	}
	t, err := b.tools()
	if err != nil {
		return nil, err
	}
	if err := t.reachable(); err != nil {
		return nil, err
	}
	seen, groups, err := b.look(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("no jail can be made here: %w%s", err, wayOut(err.Error(), t.user))
	}
	if fallen := seen.fallen(); len(fallen) > 0 {
		return nil, fmt.Errorf("no jail can be made here: this systemd starts a unit without its walls: %s; "+
			"use a newer systemd, or another backend", strings.Join(fallen, "; "))
	}
	b.enforced = slices.Concat(walls(), seen.limits(), groups)
	return b.enforced, nil
}

// reachable tells why there is no manager, without waiting for one.
func (t tools) reachable() error {
	if _, err := os.Stat("/run/systemd/system"); errors.Is(err, fs.ErrNotExist) {
		return errors.New("this host, or container, was not booted with systemd; use another backend")
	}
	if t.user == 0 {
		return nil
	}
	if _, err := os.Stat(runtimeDir(t.user) + "/bus"); err != nil {
		return fmt.Errorf("the user has no manager of services: %w; as root: loginctl enable-linger %d, and install dbus-user-session", err, t.user)
	}
	return nil
}

// wayOut is what to do about a failure in systemd's own words.
func wayOut(said string, user int) string {
	switch {
	case strings.Contains(said, "Unknown assignment"), strings.Contains(said, "unrecognized option"):
		return "; systemd 250 or newer is needed"
	case strings.Contains(said, "Failed to connect to bus") && user == 0:
		return "; install and start dbus"
	case strings.Contains(said, "Failed to connect to bus"):
		return fmt.Sprintf("; as root: loginctl enable-linger %d", user)
	case strings.Contains(said, "namespaces") && user != 0, strings.Contains(said, "217/USER"), strings.Contains(said, "226/NAMESPACE"):
		return "; user namespaces are off, or restricted, for this user; run as root, or allow them"
	}
	return ""
}

// A trial is a backend that believes in itself.
type trial struct{ sandbox.Backend }

func (trial) Check(context.Context) ([]sandbox.Feature, error) {
	return append(walls(), sandbox.FeatureMemory, sandbox.FeatureCPU, sandbox.FeaturePIDs, sandbox.FeatureCPUWeight,
		sandbox.FeatureFileSize, sandbox.FeatureOpenFiles), nil
}

// Command lets systemd-run say how the unit ended, which otherwise would stand
// in the agent's output.
func (t trial) Command(spec sandbox.Spec) (*sandbox.Command, error) {
	c, err := t.Backend.Command(spec)
	if err == nil {
		c.Args = slices.DeleteFunc(c.Args, func(a string) bool { return a == "--quiet" })
	}
	return c, err
}

// tried are limits whose values are recognised again.
var tried = sandbox.Limits{
	Memory: 99 << 20, PIDs: 99, CPUs: 0.9, CPUWeight: 77, FileSize: 3 << 20, OpenFiles: 99, TmpSize: 1 << 20, ShmSize: 1 << 20,
}

// look runs the script, and looks at the unit's control group meanwhile.
func (b *Backend) look(ctx context.Context, t tools) (observation, []sandbox.Feature, error) {
	spec := sandbox.Spec{
		// Several trials of one process may go on at once; each has to find its own unit.
		Args: []string{"/bin/sh", "-c", script}, Label: fmt.Sprintf("check.%d.%s", os.Getpid(), strings.ToLower(rand.Text())), Limits: tried,
	}
	r, w := io.Pipe()
	defer r.Close()
	var complaint strings.Builder
	p, err := sandbox.Start(ctx, trial{b}, spec, sandbox.Streams{StdinPipe: true, Stdout: w, Stderr: &complaint})
	if err != nil {
		return nil, nil, err
	}
	defer p.Close(context.WithoutCancel(ctx))
	go func() { // ends with the jail
		<-p.Done()
		w.Close()
	}()
	seen, err := observe(r)
	if err != nil {
		return nil, nil, err
	}
	groups, err := t.groups(ctx, spec.Label)
	if err != nil {
		return nil, nil, err
	}
	p.Stdin().Close()
	exit, err := p.Wait()
	if err == nil && !exit.Success() {
		err = fmt.Errorf("a program in it ended with %v: %s", exit, strings.TrimSpace(complaint.String()))
	}
	return seen, groups, err
}
