package oci_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
)

func TestAttacks(t *testing.T) { sandboxtest.Run(t, backend(t, "docker"), withImage) }

func TestCompatible(t *testing.T) { sandboxtest.Compatible(t, backend(t, "docker"), withImage) }

func TestKill(t *testing.T) { sandboxtest.Kill(t, backend(t, "docker"), 3, withImage) }

func TestActivity(t *testing.T) { sandboxtest.Active(t, backend(t, "docker"), withImage) }

func TestRunnerKilled(t *testing.T) {
	t.Setenv(engineVariable, "docker")
	sandboxtest.RunnerKilled(t, backend(t, "docker"), false)
}

// The second engine: the same jail, by the rows that engines do differently.
func TestPodman(t *testing.T) {
	b := backend(t, "podman")
	t.Run("kill", func(t *testing.T) { sandboxtest.Kill(t, b, 1, withImage) })
	t.Run("files", func(t *testing.T) { carries(t, b) })
}

func TestDocker(t *testing.T) { carries(t, backend(t, "docker")) }

// carries looks at what goes in and comes out: a workspace, a home, mounts,
// files, a large input and output, an exit code, a listener.
func carries(t *testing.T, b sandbox.Backend) {
	workspace, home, data := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), `d,a"t=a`)
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	script := `set -e
test "$(id -un)" = agent && test "$HOME" = /home/agent && test "$SECRET" = s3cret
echo home > ~/h && echo workspace > w && echo data > /opt/data/d && echo tmp > /tmp/t && echo run > /run/r
test "$(cat /etc/own)" = own && /opt/run && test "$(hostname)" = job && getent hosts job >/dev/null
! echo x > /etc/own && ! echo x > /x && ! touch /jail/meet/x
ls /jail/meet | wc -l
(exec 3<>/dev/tcp/127.0.0.1/3128 && cat <&3) && cat
exit 7`
	input := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	var out, said bytes.Buffer
	p, err := sandbox.Start(t.Context(), b, withImage(sandbox.Spec{
		Args: []string{"bash", "-c", script}, Workspace: workspace, Home: home,
		Env:     []string{"PATH=/usr/bin:/bin", "HOME=/home/agent", "SECRET=s3cret"},
		Mounts:  []sandbox.Mount{{Source: data, Target: "/opt/data", Writable: true}},
		Files:   []sandbox.File{{Path: "/etc/own", Data: []byte("own")}, {Path: "/opt/run", Data: []byte("#!/bin/sh\n"), Mode: 0o755}},
		Network: sandbox.NetworkGate, Listen: []string{"127.0.0.1:3128"},
	}), sandbox.Streams{Stdin: bytes.NewReader(input), Stdout: &out, Stderr: &said})
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.Listeners()[0].Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "from outside\n"); err != nil {
		t.Error(err)
	}
	c.Close()
	exit, err := p.Wait()
	want := "0\nfrom outside\n" + string(input)
	if err != nil || exit.Code != 7 || out.String() != want {
		t.Errorf("got %d bytes %.100q and %v, err %v; want %d; it said %s", out.Len(), out.String(), exit, err, len(want), said.String())
	}
	for path, text := range map[string]string{filepath.Join(workspace, "w"): "workspace", filepath.Join(home, "h"): "home", filepath.Join(data, "d"): "data"} {
		if got, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(got)) != text {
			t.Errorf("%s: got %q, err %v", path, got, err)
		}
	}
}

// Neither the engine's command line nor what it remembers of a container reveals
// the environment, the files or the arguments of the agent.
func TestTheEngineKnowsNoSecret(t *testing.T) {
	b := backend(t, "docker")
	const secret = "t0ken-5a17"
	p, err := sandbox.Start(t.Context(), b, withImage(sandbox.Spec{
		Args: []string{"sh", "-c", "sleep 1000 # " + secret}, Env: []string{"PATH=/usr/bin:/bin", "TOKEN=" + secret},
		Files: []sandbox.File{{Path: "/etc/own", Data: []byte(secret)}}, Label: "secret.1",
	}), sandbox.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(t.Context())
	own := kept(t, b)
	if len(own) != 1 || !strings.HasPrefix(own[0], "secret.1_") {
		t.Fatalf("got %q, want one token", own)
	}
	if record := inspect(t, "penstock-"+own[0]); strings.Contains(record, secret) || !strings.Contains(record, "no-new-privileges") {
		t.Errorf("the engine's record: %s", record)
	}
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range files {
		if c, _ := os.ReadFile(f); strings.Contains(string(c), own[0]) {
			seen++
			if strings.Contains(string(c), secret) {
				t.Errorf("%s holds the secret: %q", f, c)
			}
		}
	}
	if seen < 2 {
		t.Errorf("%d processes of the mechanism were found, want the engine's and ours", seen)
	}
}

func inspect(t *testing.T, container string) string {
	t.Helper()
	out, err := exec.Command("docker", "inspect", container).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
