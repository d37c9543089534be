package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// containerImage is made by deploy/images/debian-root.sh.
const containerImage = "penstock/test:1"

// staticProgram is built once for all tests that need it, with the flags of the
// other builds of a test run: another flag would compile all packages again.
var staticProgram = sync.OnceValues(func() (string, error) {
	program := filepath.Join(builtDir, "penstock")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program: %w: %s", err, out)
	}
	return program, nil
})

// containerFixture is a fixture whose program is linked statically, as it is when
// it is installed: containers have the C library of their image.
func containerFixture(t *testing.T) *fixture {
	t.Helper()
	if out, err := exec.Command("docker", "image", "inspect", containerImage).CombinedOutput(); err != nil {
		skip(t, "docker", "docker: %v: %s; make the image with deploy/images/debian-root.sh %s", err, strings.TrimSpace(string(out)), containerImage)
	}
	f := newFixture(t)
	f.useDocker()
	return f
}

// useDocker has a fixture run jobs in docker's containers.
func (f *fixture) useDocker() {
	f.Helper()
	program, err := staticProgram()
	f.must(err)
	f.program = program
	f.env = append(f.env, "PENSTOCK_WORKER_ENGINE=docker")
}

// containers lists the tokens of a job's containers, running or not.
func (f *fixture) containers(job string) []string {
	f.Helper()
	out, err := exec.Command("docker", "ps", "--all", "--filter", "label=penstock-jail", "--format", `{{.Label "penstock-jail"}}`).Output()
	f.must(err)
	return slices.DeleteFunc(strings.Fields(string(out)), func(token string) bool { return !strings.HasPrefix(token, job) })
}

// What a job runs, it runs in its image, and the result is that of any job.
func TestAJobInAContainer(t *testing.T) {
	t.Parallel()
	f := containerFixture(t)
	patch := filepath.Join(t.TempDir(), "patch")
	// Only the image has a list of packages: other jails have no /var.
	in := "test -d /var/lib/dpkg && "
	out := f.run("run", "--repo", f.repo, "--isolation", "container", "--image", containerImage, "--patch", patch, "-o", "json",
		"--setup", in+"echo setup > setup.txt", "--check", in+"grep -q agent new.txt", "--",
		"sh", "-c", in+`grep -q setup setup.txt && test -s "$PENSTOCK_PROMPT_FILE" && git log --oneline && penstock result '"told"' && echo agent > new.txt`)
	for _, want := range []string{`"outcome":"success"`, `"value":"told"`, `"isolation":"container"`, `"backend":"oci"`} {
		if !strings.Contains(out, want) {
			t.Errorf("%s is missing in %s", want, out)
		}
	}
	if b, err := os.ReadFile(patch); err != nil || !strings.Contains(string(b), "+agent") {
		t.Errorf("the patch is %q, err %v", b, err)
	}
	// Other tests have containers at the same time.
	first, _, _ := strings.Cut(out, "\n") // the last line is no event
	events := f.decode(first)
	if len(events) == 0 || uuid.Validate(events[0].Job) != nil {
		t.Fatalf("the output names no job: %s", out)
	}
	left := f.containers(events[0].Job)
	if len(left) > 0 {
		t.Errorf("containers are left: %q", left)
	}
	// The receipt names the image by its id at the engine, and not by its name alone.
	image, err := exec.Command("docker", "image", "inspect", "--format", "{{.Id}}", containerImage).Output()
	f.must(err)
	fetched := filepath.Join(t.TempDir(), "fetched")
	f.run("job", "artifacts", events[0].Job, "--out", fetched)
	signed := f.run("receipt", "verify", filepath.Join(fetched, "receipt.json"), "--patch", patch, "-o", "json")
	for _, want := range []string{"\"roots\": [\n    \"" + strings.TrimSpace(string(image)) + "\"\n  ]", `"image": "` + containerImage + `"`} {
		if !strings.Contains(signed, want) {
			t.Errorf("%s is missing in the receipt\n%s", want, signed)
		}
	}
	_, code, stderr := f.try("run", "--repo", f.repo, "--isolation", "container", "--image", "penstock/absent:1", "--max-attempts", "1", "--", "true")
	if code != 4 || !strings.Contains(stderr, "image_missing") || !strings.Contains(stderr, "docker pull penstock/absent:1") {
		t.Errorf("without the image: code %d, %s", code, stderr)
	}
	if _, code, stderr := f.try("run", "--repo", f.repo, "--isolation", "container", "--", "true"); code != 2 || !strings.Contains(stderr, "image") {
		t.Errorf("without an image's name: code %d, %s", code, stderr)
	}
}

// Agents of the image that deploy/images/agents.Dockerfile describes do jobs. That image takes
// minutes to build, so deploy/images/try.sh builds it and runs this.
func TestAgentsOfTheImage(t *testing.T) {
	t.Parallel()
	image := os.Getenv("PENSTOCK_TEST_AGENTS_IMAGE")
	if image == "" {
		t.Skip("PENSTOCK_TEST_AGENTS_IMAGE names no image; deploy/images/try.sh builds one")
	}
	for _, agent := range realAgents[:3] { // which it has
		t.Run(agent.name, func(t *testing.T) {
			t.Parallel()
			f, _ := agent.pool(t, func(write func(string) agenttest.Step) []agenttest.Step {
				return []agenttest.Step{write("written by $(uname -s)"), agenttest.Say("done")}
			})
			f.useDocker()
			patch := filepath.Join(t.TempDir(), "patch")
			args := []string{"run", "CARRY", "--agent", agent.name, "--repo", f.repo, "--isolation", "container", "--image", image, "--patch", patch, "-o", "json",
				"--setup", "for program in claude codex gemini node rg python3 git; do $program --version || exit; done"}
			if agent.model != "" {
				args = append(args, "--model", agent.model)
			}
			out := f.run(args...)
			for _, want := range []string{`"outcome":"success"`, `"backend":"oci"`} {
				if !strings.Contains(out, want) {
					t.Errorf("%s is missing in %s", want, out)
				}
			}
			if b, err := os.ReadFile(patch); err != nil || !strings.Contains(string(b), "+written by Linux") {
				t.Errorf("the patch is %q, err %v", b, err)
			}
		})
	}
}

// A worker that is killed leaves no container behind its successor's start.
func TestAKilledWorkerLeavesNoContainer(t *testing.T) {
	t.Parallel()
	f := containerFixture(t)
	f.serve()
	w := f.worker()
	id := f.submit("sleep 1000", "--isolation", "container", "--image", containerImage)
	var killed string
	f.eventually(60*time.Second, "the container runs", func() bool {
		running := f.containers(id)
		killed = strings.Join(running, " ")
		return len(running) == 1
	})
	w.kill()
	f.worker()
	f.eventually(60*time.Second, "the container of the killed worker is gone", func() bool { return !slices.Contains(f.containers(id), killed) })
	f.run("job", "cancel", id)
	f.eventually(60*time.Second, "no container is left", func() bool { return len(f.containers(id)) == 0 })
}
