package sandboxtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
)

// personal are files of a user's home that agents must not have.
var personal = []struct{ name, path string }{
	{"an SSH key", ".ssh/id_rsa"}, {"credentials of a cloud", ".aws/credentials"}, {"a netrc file", ".netrc"},
	{"tokens of a registry", ".npmrc"}, {"the history of a shell", ".bash_history"}, {"another repository", "private/.git/config"},
	{"stored passwords of git", ".git-credentials"}, {"credentials of containers", ".docker/config.json"},
	{"a code host's token", ".config/gh/hosts.yml"}, {"a cluster's credentials", ".kube/config"},
}

// startFiles are files of a home that the host's programs execute or obey.
var startFiles = []struct{ name, path string }{
	{"a shell's start file", ".bashrc"}, {"a program of the search path", ".local/bin/git"}, {"an agent's settings", ".claude/settings.json"},
	{"the user's git settings", ".gitconfig"}, {"the user's SSH settings", ".ssh/config"}, {"a service of the user", ".config/systemd/user/x.service"},
}

// newHome makes a user's home with all of these.
func newHome(dir string) error {
	for _, f := range slices.Concat(personal, startFiles) {
		path := filepath.Join(dir, f.path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(secret), 0o666); err != nil {
			return err
		}
	}
	return nil
}

// personalRows try to reach the home of the user that runs the jail. Inside there
// is another home, which is empty.
func personalRows(h *host) []attack {
	var rows []attack
	for _, f := range personal {
		rows = append(rows, attack{name: "read " + f.name, probe: "read-any", want: "ENOENT", works: "ok",
			args: []string{filepath.Join(h.home, f.path), filepath.Join(sandbox.HomePath, f.path)}})
	}
	for _, f := range startFiles {
		path := filepath.Join(h.home, f.path)
		rows = append(rows, attack{name: "change " + f.name, probe: "write", args: []string{path}, want: "ENOENT",
			after: func(t *testing.T, _ string) {
				if b, err := os.ReadFile(path); err != nil || string(b) != secret {
					t.Errorf("%s is now %q, err %v", path, b, err)
				}
			}})
	}
	rows = append(rows, attack{name: "change a start file of its own home", probe: "write", args: []string{sandbox.HomePath + "/.bashrc"}, want: "ok",
		after: func(t *testing.T, _ string) {
			home, err := os.UserHomeDir()
			if err != nil {
				return // then there is none to spoil
			}
			if b, _ := os.ReadFile(filepath.Join(home, ".bashrc")); strings.Contains(string(b), written) {
				t.Error("the start file of the host's user was written")
			}
		}})
	return withFeature(sandbox.FeatureFiles, rows)
}

// reachRows: other processes, by more than their number, and services of the
// host by the names they have everywhere.
func reachRows(h *host) []attack {
	rows := withFeature(sandbox.FeatureFiles, []attack{
		{name: "look through the root of the first process", probe: "read", args: []string{"/proc/1/root" + filepath.Join(h.dir, "secret.txt")},
			want: "ENOENT EACCES EPERM"},
		{name: "connect to a socket that the host left in the workspace", probe: "connect", args: []string{"unix", "left.sock"},
			want: "ok ECONNREFUSED EACCES", works: "ok", before: leaveSocket}, // the workspace is the agent's: docs/explanation/threat-model.md says so
		{name: "execute what exists in memory only", probe: "memory-execute", want: "exit-7", works: "exit-7"}, // no boundary: it could write a file
		{name: "leave nothing in the workspace when killed", probe: "wait", want: "waiting",
			during: func(t *testing.T, p *sandbox.Process) {
				if err := p.Close(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
			},
			after: func(t *testing.T, ws string) {
				if got, _ := list([]string{ws}); got != "[link]" {
					t.Errorf("the workspace holds %s afterwards", got)
				}
			}},
		{name: "find secrets in the arguments of the mechanism", probe: "wait", want: "waiting", spec: withToken, during: tokenIsHidden},
	})
	for _, s := range []struct{ name, network, address string }{
		{"the user's bus", "unix", fmt.Sprintf("/run/user/%d/bus", os.Getuid())}, {"the system's bus", "unix", "/run/dbus/system_bus_socket"},
		{"the service manager", "unix", "/run/systemd/private"}, {"the journal", "unixgram", "/run/systemd/journal/socket"},
		{"an engine of containers", "unix", "/run/docker.sock"}, {"another engine of containers", "unix", "/run/containerd/containerd.sock"},
		{"the cache of names", "unix", "/run/nscd/socket"}, {"the screen", "unix", "/tmp/.X11-unix/X0"},
	} {
		rows = append(rows, attack{name: "connect to " + s.name, feature: sandbox.FeatureFiles, probe: "connect",
			args: []string{s.network, s.address}, want: "ENOENT EACCES"})
	}
	return append(rows, withFeature(sandbox.FeatureSyscalls, []attack{
		{name: "trace the parent", probe: "trace-parent", want: "EPERM"},
		{name: "read the memory of a child", probe: "child-memory", want: "EPERM", works: "ok"},
		{name: "take a descriptor of a child", probe: "child-descriptor", want: "EPERM ENOSYS", works: "ok ENOSYS EPERM"},
	})...)
}

// leaveSocket opens a socket by a short name: a path of sockets has no more
// than 108 bytes.
func leaveSocket(t *testing.T, workspace string) {
	dir, err := os.Open(workspace)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/left.sock", dir.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // by a descriptor that is reused by then
	t.Cleanup(func() { l.Close() })
}

const jailToken = "t0ken-77f2-of-a-jail"

func withToken(s *sandbox.Spec) {
	s.Env = []string{"PATH=/usr/bin:/bin", "TOKEN=" + jailToken}
	s.Files = []sandbox.File{{Path: "/etc/own", Data: []byte(jailToken)}}
}

// tokenIsHidden looks where every user of the host can look.
func tokenIsHidden(t *testing.T, _ *sandbox.Process) {
	if found := carrying(jailToken); len(found) > 0 {
		t.Errorf("the host's list of processes tells %q", found)
	}
}

// dialHost tries a port of every address of the host.
func dialHost(port string) error {
	hosts := []string{"127.0.0.1", "::1"}
	addresses, err := net.InterfaceAddrs()
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok {
			hosts = append(hosts, n.IP.String())
		}
	}
	for _, h := range hosts {
		c, e := net.DialTimeout("tcp", net.JoinHostPort(h, port), time.Second)
		if err = e; e == nil {
			return c.Close()
		}
	}
	return err
}
