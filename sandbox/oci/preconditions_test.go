package oci_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/sandbox/oci"
)

// fake is an engine's program that answers as told.
func fake(t *testing.T, info, image string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "engine")
	script := "#!/bin/sh\ncase \"$*\" in\n*info*) " + info + " ;;\n*image*inspect*) " + image + " ;;\n*) echo unexpected \"$@\" >&2; exit 1 ;;\nesac\n"
	if err := exectest.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	goodInfo  = `echo '{"Architecture":"x86_64","Runtimes":{"runc":{}},"MemoryLimit":true}'`
	noImage   = `echo 'Error: No such image' >&2; exit 1`
	armImage  = `echo '[{"Id":"sha256:1","Architecture":"riscv","Os":"linux"}]'`
	winImage  = `echo '[{"Id":"sha256:1","Architecture":"amd64","Os":"windows"}]'`
	noDaemon  = `echo '{"ServerErrors":["Cannot connect to the Docker daemon"]}'; exit 1`
	podmanBad = `echo 'Error: cannot clone: no subuid ranges' >&2; exit 125`
)

// Everything that keeps a container from starting is reported at once, and
// says what to do.
func TestPreconditionsAreReportedTogether(t *testing.T) {
	good := os.Getenv(initVariable)
	socket := "unix://" + filepath.Join(t.TempDir(), "docker.sock")
	here := t.TempDir()
	for name, c := range map[string]struct {
		backend *oci.Backend
		spec    sandbox.Spec
		want    map[string]string // a check, and a part of what it says to do
	}{
		"no engine":  {&oci.Backend{Engine: "nerdctl", Init: good}, sandbox.Spec{Image: "i"}, map[string]string{"engine": "install"}},
		"no program": {&oci.Backend{Engine: "chroot", Init: good}, sandbox.Spec{Image: "i"}, map[string]string{"engine": ""}},
		"another host": {&oci.Backend{Path: "/bin/true", Host: "tcp://192.0.2.1:2375", Init: good}, sandbox.Spec{Image: "i"},
			map[string]string{"daemon": "unix:///"}},
		"another host by name": {&oci.Backend{Path: "/bin/true", Host: "ssh://user@other", Init: good}, sandbox.Spec{Image: "i"},
			map[string]string{"daemon": "unix:///"}},
		"no daemon": {&oci.Backend{Engine: "docker", Path: fake(t, noDaemon, noImage), Host: socket, Init: good}, sandbox.Spec{Image: "i"},
			map[string]string{"daemon": "systemctl start docker"}},
		"a broken podman": {&oci.Backend{Engine: "podman", Path: fake(t, podmanBad, noImage), Init: good}, sandbox.Spec{Image: "i"},
			map[string]string{"daemon": "podman info"}},
		"everything else": {
			&oci.Backend{Engine: "docker", Path: fake(t, goodInfo, noImage), Runtime: "runsc", Init: "/bin/sh"},
			sandbox.Spec{Image: "acme/agent:7", Workspace: "/nowhere/ws", Home: "/etc/passwd", Mounts: []sandbox.Mount{{Source: "/nowhere/cache", Target: "/opt/c"}}},
			map[string]string{"image": "docker pull acme/agent:7", "runtime": "known are: runc", "init": "CGO_ENABLED=0", "mount": "directory"},
		},
		"no image named": {&oci.Backend{Engine: "docker", Path: fake(t, goodInfo, noImage), Init: good}, sandbox.Spec{Workspace: here},
			map[string]string{"image": "--image"}},
		"another machine": {&oci.Backend{Engine: "docker", Path: fake(t, goodInfo, armImage), Init: good}, sandbox.Spec{Image: "i"},
			map[string]string{"architecture": "--platform linux/"}},
		"another system": {&oci.Backend{Engine: "docker", Path: fake(t, goodInfo, winImage), Init: good}, sandbox.Spec{Image: "i"},
			map[string]string{"image": "linux"}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			c.spec.Args = []string{"true"}
			got := map[string]string{}
			for _, p := range c.backend.Preconditions(t.Context(), c.spec) {
				got[p.Check] += p.Fix + "\n"
				if p.Message == "" {
					t.Errorf("%+v says nothing", p)
				}
			}
			for check, fix := range c.want {
				if said, ok := got[check]; !ok || !strings.Contains(said, fix) {
					t.Errorf("check %s: got %q, want %q in it", check, said, fix)
				}
			}
			if len(got) != len(c.want) {
				t.Errorf("got %q, want the checks of %q", got, c.want)
			}
		})
	}
}

// A jail is made of the image that was found ready, by its id: whoever moves the tag
// meanwhile changes nothing.
func TestAnImageIsStartedByItsID(t *testing.T) {
	digits := strings.Repeat("0a", 32)
	for name, c := range map[string]struct{ engine, says, want string }{
		"docker":           {"docker", "sha256:" + digits, "sha256:" + digits},
		"podman":           {"podman", digits, "sha256:" + digits},
		"an id of no form": {"docker", "sha256:1", "acme/agent:7"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			info := goodInfo
			if c.engine == "podman" {
				info = `echo '{"host":{"arch":"amd64"}}'`
			}
			b := &oci.Backend{Engine: c.engine, Path: fake(t, info, `echo '[{"Id":"`+c.says+`","Os":"linux"}]'`), Init: os.Getenv(initVariable)}
			b.Trust(c.says, "true")
			spec, err := b.Ready(t.Context(), sandbox.Spec{Args: []string{"true"}, Image: "acme/agent:7"})
			if err != nil || spec.Image != c.want {
				t.Fatalf("got %q, %v; want %q", spec.Image, err, c.want)
			}
			command, err := b.Command(spec.WithDefaults())
			if err != nil {
				t.Fatal(err)
			}
			if root := strings.HasPrefix(c.want, "sha256:"); root != (command.Root() == c.want) || !slices.Contains(command.Args, c.want) {
				t.Errorf("the root is %q, and the engine gets %q", command.Root(), command.Args)
			}
		})
	}
}

// The engine itself says that the container is of the image that the process names, although
// the image has another name.
func TestTheRootIsTheImageThatRan(t *testing.T) {
	b := backend(t, "docker")
	p, err := sandbox.Start(t.Context(), b, withImage(sandbox.Spec{Args: []string{"sleep", "1000"}, Label: "root.1"}), sandbox.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(t.Context())
	own := kept(t, b)
	if len(own) != 1 {
		t.Fatalf("got %q, want one token", own)
	}
	if record := inspect(t, "penstock-"+own[0]); p.Root() == "" || !strings.Contains(record, `"Image": "`+p.Root()+`"`) {
		t.Errorf("the root is %q, and the engine's record: %s", p.Root(), record)
	}
}

// Start asks before anything begins.
func TestStartRefusesWithAllReasons(t *testing.T) {
	b := &oci.Backend{Engine: "docker", Path: fake(t, goodInfo, noImage), Init: "/bin/sh"}
	_, err := sandbox.Run(t.Context(), b, sandbox.Spec{Args: []string{"true"}, Image: "acme/agent:7"}, sandbox.Streams{})
	_, unsupported := err.(*sandbox.UnsupportedError)
	e, ok := errors.AsType[*oci.PreconditionError](err)
	if !unsupported || !ok || len(e.Problems) != 2 || !strings.Contains(err.Error(), "docker pull acme/agent:7") || !strings.Contains(err.Error(), "CGO_ENABLED=0") {
		t.Errorf("got %v, want both problems", err)
	}
}

// An image without the agent's program is found before the job begins.
func TestAProgramThatIsNotInTheImage(t *testing.T) {
	b := backend(t, "docker")
	problems := b.Preconditions(t.Context(), withImage(sandbox.Spec{Args: []string{"no-such-agent"}}))
	if len(problems) != 1 || problems[0].Check != "program" || !strings.Contains(problems[0].Message, "no-such-agent") {
		t.Errorf("got %v, want the program named", problems)
	}
	if problems := b.Preconditions(t.Context(), withImage(sandbox.Spec{Args: []string{"sh"}})); len(problems) != 0 {
		t.Errorf("of sh: got %v", problems)
	}
}
