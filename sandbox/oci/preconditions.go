package oci

import (
	"cmp"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/sandbox"
)

// Preconditions reports everything for which spec cannot start, each with what
// to do about it. Where nothing else is in the way it tries: it makes a jail
// of the image and looks for the program in it, once for each image and
// program.
func (b *Backend) Preconditions(ctx context.Context, spec sandbox.Spec) []Problem {
	_, problems := b.examine(ctx, spec)
	return problems
}

// examine returns the problems, and without any the id of the image.
func (b *Backend) examine(ctx context.Context, spec sandbox.Spec) (id string, problems []Problem) {
	c := checks{spec: spec}
	e, err := b.engine()
	if err != nil {
		c.found("engine", err.Error(), "install docker or podman; sandboxes without a container need neither")
	}
	c.init(b)
	c.places()
	if imageErr := validateImage(spec.Image); imageErr != nil {
		c.found("image", imageErr.Error(), "name an image of this host: --image NAME")
		spec.Image = ""
	}
	if err != nil {
		return "", c.problems
	}
	if !c.local(e) {
		return "", c.problems
	}
	a, err := e.about(ctx)
	if err != nil {
		c.daemon(e, err)
		return "", c.problems
	}
	c.engine(e, a)
	if spec.Image != "" {
		id = c.image(ctx, e)
	}
	if len(c.problems) == 0 {
		c.try(ctx, b, id)
	}
	return id, c.problems
}

// Ready returns the preconditions of spec that are not met as a [PreconditionError], and else
// spec with its image by its id: a tag that moves now makes no difference to what is started
// and what is said of it. [sandbox.Start] asks it first.
func (b *Backend) Ready(ctx context.Context, spec sandbox.Spec) (sandbox.Spec, error) {
	id, problems := b.examine(ctx, spec)
	if len(problems) > 0 {
		return spec, &PreconditionError{problems}
	}
	spec.Image = cmp.Or(imageID(id), spec.Image)
	return spec, nil
}

type checks struct {
	spec     sandbox.Spec
	problems []Problem
}

func (c *checks) found(check, message, fix string) {
	c.problems = append(c.problems, Problem{Check: check, Message: message, Fix: fix})
}

// init: the first program inside is ours, and the image need not have a C
// library of the same kind.
func (c *checks) init(b *Backend) {
	path, err := b.init()
	if err != nil {
		c.found("init", err.Error(), "restart the program")
		return
	}
	f, err := elf.Open(path)
	if err != nil {
		c.found("init", fmt.Sprintf("%s cannot be read: %v", path, err), "")
		return
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			c.found("init", path+" needs a C library, which an image may lack or have in another version",
				"build the program with CGO_ENABLED=0")
		}
	}
}

// places: what the Spec wants to show has to be there, and be a directory
// where it has to be.
func (c *checks) places() {
	dir := func(field, path string) {
		if path == "" {
			return
		}
		if st, err := os.Stat(path); err != nil {
			c.found("mount", fmt.Sprintf("%s cannot be shown: %v", field, err), "make it, or name another")
		} else if !st.IsDir() {
			c.found("mount", fmt.Sprintf("%s: %s is not a directory", field, path), "name a directory")
		}
	}
	dir("workspace", c.spec.Workspace)
	dir("home", c.spec.Home)
	for _, m := range c.spec.Mounts {
		if _, err := os.Stat(m.Source); err != nil {
			c.found("mount", fmt.Sprintf("%s cannot be shown: %v", m.Source, err), "make it, or leave the mount out")
		}
	}
}

// local: the workspace is a directory of this host, so the engine has to be
// one of this host too.
func (c *checks) local(e engine) bool {
	if e.host == "" || strings.HasPrefix(e.host, "unix:///") {
		return true
	}
	c.found("daemon", fmt.Sprintf("the %s daemon at %s is not on this host, and cannot show the workspace in a container", e.name, e.host),
		"run a worker on the daemon's host, or name a daemon of this one: unix:///var/run/docker.sock")
	return false
}

// daemon tells the reasons apart for which an engine does not answer.
func (c *checks) daemon(e engine, err error) {
	socket := strings.TrimPrefix(e.host, "unix://")
	switch {
	case e.host == "":
		c.found("daemon", fmt.Sprintf("%s does not answer: %v", e.name, err), e.name+" info says more")
	case errors.Is(access(socket), os.ErrNotExist):
		c.found("daemon", fmt.Sprintf("no %s daemon listens at %s", e.name, socket), "sudo systemctl start docker")
	case errors.Is(access(socket), os.ErrPermission):
		c.found("permission", "this user may not speak to the docker daemon at "+socket,
			"use rootless docker or podman; or sudo usermod -aG docker $USER and log in again, which gives the rights of root")
	default:
		c.found("daemon", fmt.Sprintf("the %s daemon at %s does not answer: %v", e.name, socket, err), "sudo systemctl restart docker")
	}
}

// engine: the runtime that was asked for, and users.
func (c *checks) engine(e engine, a about) {
	if e.runtime != "" {
		_, inPath := exec.LookPath(e.runtime)
		if !slices.Contains(a.runtimes, e.runtime) && (e.name == "docker" || inPath != nil) {
			c.found("runtime", fmt.Sprintf("%s does not know the runtime %s", e.name, e.runtime),
				fmt.Sprintf("install it and name it in the engine's configuration; known are: %s", strings.Join(a.runtimes, ", ")))
		}
	}
}

// image returns the identity of the Spec's image, or "" where it cannot be used.
func (c *checks) image(ctx context.Context, e engine) string {
	out, err := e.ask(ctx, nil, "image", "inspect", c.spec.Image)
	var images []struct{ ID, Architecture, Os string }
	if err == nil {
		err = json.Unmarshal(out, &images)
	}
	if err != nil || len(images) == 0 {
		c.found("image", fmt.Sprintf("%s has no image %s on this host, and does not fetch one for a job", e.name, c.spec.Image),
			fmt.Sprintf("%s pull %s; or %s build --tag %s DIRECTORY", e.name, c.spec.Image, e.name, c.spec.Image))
		return ""
	}
	i := images[0]
	if i.Os != "" && i.Os != "linux" {
		c.found("image", fmt.Sprintf("image %s is for %s", c.spec.Image, i.Os), "use an image for linux")
	}
	if i.Architecture != "" && machine(i.Architecture) != string(e.arch) {
		c.found("architecture", fmt.Sprintf("image %s is for %s, and this host is %s", c.spec.Image, i.Architecture, e.arch),
			fmt.Sprintf("%s pull --platform linux/%s %s", e.name, e.arch, c.spec.Image))
	}
	return i.ID
}
