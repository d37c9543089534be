package oci

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/seccomp"
)

// Engines lists the engines that a Backend can use, the preferred one first.
func Engines() []string { return []string{"docker", "podman", "nerdctl"} }

// askTimeout bounds one question to an engine: 20 ms where its daemon lives.
const askTimeout = 20 * time.Second

// engine finds the engine without asking it anything.
func (b *Backend) engine() (engine, error) {
	e := engine{name: b.Engine, path: b.Path, host: b.Host, runtime: b.Runtime, arch: seccomp.Native(), uid: os.Geteuid(), gid: os.Getegid()}
	if e.name != "" && !slices.Contains(Engines(), e.name) {
		return e, fmt.Errorf("unknown container engine %q; known are %s", e.name, strings.Join(Engines(), ", "))
	}
	if e.host != "" && e.name == "" {
		e.name = "docker" // the only one that has a daemon with an address
	}
	candidates := Engines()
	if e.name != "" {
		candidates = []string{e.name}
	}
	for _, name := range candidates {
		path := e.path
		if path == "" {
			path, _ = exec.LookPath(name)
		}
		if path != "" {
			e.name, e.path = name, path
			break
		}
	}
	if e.path == "" {
		return e, fmt.Errorf("no container engine is here: %w", &exec.Error{Name: strings.Join(candidates, ", "), Err: exec.ErrNotFound})
	}
	e.own = e.uid != 0
	e.openFiles, e.processes = ownLimits()
	if e.name == "docker" {
		e.address()
	}
	e.environment()
	return e, nil
}

// address chooses docker's daemon. It is always named, so that neither a
// variable nor a context of the command line tool can lead to another machine.
func (e *engine) address() {
	mine := fmt.Sprintf("/run/user/%d/docker.sock", e.uid)
	if e.host == "" {
		e.host = "unix:///var/run/docker.sock"
		if _, err := os.Stat(mine); err == nil && e.uid != 0 {
			e.host = "unix://" + mine
		}
	}
	e.own = e.uid != 0 && e.host == "unix://"+mine
}

// environment is what the engine's command line tool finds: not ours, which
// may hold secrets or point to another machine.
func (e *engine) environment() {
	e.env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	if u, err := user.LookupId(strconv.Itoa(e.uid)); err == nil {
		e.env = append(e.env, "HOME="+u.HomeDir)
	}
	if e.uid != 0 {
		e.env = append(e.env, fmt.Sprintf("XDG_RUNTIME_DIR=/run/user/%d", e.uid))
	}
}

// ask runs a command of the engine and returns what it prints. The error is
// what the engine says itself.
func (e engine) ask(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, e.path, e.command(args...)[1:]...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = e.env, "/", time.Second
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &said
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s %s: %w", e.name, args[0], context.Cause(ctx))
	}
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return out.Bytes(), errors.New(strings.TrimSpace(said.String()))
	}
	return out.Bytes(), err
}

// An about is what an engine says of itself.
type about struct {
	arch     string
	runtimes []string
	features []sandbox.Feature
}

// about asks the engine.
func (e engine) about(ctx context.Context) (about, error) {
	if e.name == "podman" {
		return e.aboutPodman(ctx)
	}
	out, err := e.ask(ctx, nil, "info", "--format", "{{json .}}")
	var said struct {
		ServerErrors                                   []string
		Architecture                                   string
		Runtimes                                       map[string]any
		MemoryLimit, CPUCfsQuota, CPUShares, PidsLimit bool
	}
	// docker describes itself even where its daemon does not answer.
	if decoding := json.Unmarshal(out, &said); decoding != nil && err == nil {
		err = decoding
	}
	if len(said.ServerErrors) > 0 {
		err = errors.New(said.ServerErrors[0])
	}
	if err != nil {
		return about{}, err
	}
	a := about{arch: said.Architecture}
	for name := range said.Runtimes {
		a.runtimes = append(a.runtimes, name)
	}
	a.enforces(map[sandbox.Feature]bool{
		sandbox.FeatureMemory: said.MemoryLimit, sandbox.FeatureCPU: said.CPUCfsQuota,
		sandbox.FeatureCPUWeight: said.CPUShares, sandbox.FeaturePIDs: said.PidsLimit,
	})
	return a, nil
}

func (e engine) aboutPodman(ctx context.Context) (about, error) {
	out, err := e.ask(ctx, nil, "info", "--format", "json")
	if err != nil {
		return about{}, err
	}
	var said struct {
		Host struct {
			Arch              string   `json:"arch"`
			CgroupControllers []string `json:"cgroupControllers"`
		} `json:"host"`
	}
	if err := json.Unmarshal(out, &said); err != nil {
		return about{}, fmt.Errorf("podman info: %w", err)
	}
	a := about{arch: said.Host.Arch}
	has := func(c string) bool { return slices.Contains(said.Host.CgroupControllers, c) }
	a.enforces(map[sandbox.Feature]bool{
		sandbox.FeatureMemory: has("memory"), sandbox.FeatureCPU: has("cpu"),
		sandbox.FeatureCPUWeight: has("cpu"), sandbox.FeaturePIDs: has("pids"),
	})
	return a, nil
}

func (a *about) enforces(limits map[sandbox.Feature]bool) {
	for f, yes := range limits {
		if yes {
			a.features = append(a.features, f)
		}
	}
	slices.Sort(a.features)
}

// machine translates what engines call an architecture into Go's word.
func machine(arch string) string {
	switch arch {
	case "x86_64":
		return "amd64"
	case "aarch64":
		return "arm64"
	}
	return arch
}
