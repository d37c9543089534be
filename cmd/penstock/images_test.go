package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/cmd/internal/cli"
)

// exists tells what is wrong with a command line of this program: a command, an argument or a
// flag that it does not have.
func exists(args []string) string {
	root := (&app{cfg: cli.Defaults(), format: cli.Table}).root(nil)
	cmd, rest, err := root.Find(args)
	switch {
	case err != nil:
		return err.Error()
	case cmd == root:
		return "no command"
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err.Error()
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		return err.Error()
	}
	return ""
}

// port is that of an address.
func port(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// The images run commands that exist, show the ports on which these listen unless told
// otherwise, and check their health at the address of their own process.
func TestTheImagesNameOnlyWhatExists(t *testing.T) {
	t.Parallel()
	defaults := cli.Defaults()
	for _, image := range []struct {
		name  string
		runs  []string
		ports []string
		admin string
	}{
		{"server", []string{"penstock"}, []string{defaults.Serve.Listen, defaults.Serve.HTTP, defaults.Serve.Admin}, defaults.Serve.Admin},
		{"worker", []string{"tini", "--", "penstock"}, []string{defaults.Worker.Admin}, defaults.Worker.Admin},
	} {
		var config struct {
			User, WorkingDir string
			Env, Entrypoint  []string
			Cmd              []string
			ExposedPorts     map[string]struct{}
			Volumes          map[string]struct{}
			Healthcheck      struct{ Test []string }
		}
		text, err := os.ReadFile("../../deploy/images/" + image.name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &config); err != nil {
			t.Fatal(err)
		}
		if wrong := exists(config.Cmd); wrong != "" || !slices.Equal(config.Entrypoint, image.runs) {
			t.Errorf("%s runs %q %q: %s", image.name, config.Entrypoint, config.Cmd, wrong)
		}
		test := config.Healthcheck.Test
		if len(test) != 4 || test[1] != "penstock" {
			t.Fatalf("%s checks its health by %q", image.name, test)
		}
		at, err := url.Parse(test[3])
		if wrong := exists(test[2:]); err != nil || wrong != "" || at.Host != image.admin || at.Path != "/readyz" {
			t.Errorf("%s checks its health by %q: %v %s; its admin address is %s", image.name, test, err, wrong, image.admin)
		}
		for _, address := range image.ports {
			if _, ok := config.ExposedPorts[port(t, address)+"/tcp"]; !ok || len(config.ExposedPorts) != len(image.ports) {
				t.Errorf("%s shows the ports %v, and listens on %v", image.name, config.ExposedPorts, image.ports)
			}
		}
		if _, ok := config.Volumes[config.WorkingDir]; !ok || !slices.Contains(config.Env, "PENSTOCK_DATA="+config.WorkingDir) || config.User == "" {
			t.Errorf("%s has the volumes %v, and its data elsewhere: %v", image.name, config.Volumes, config.Env)
		}
	}
}

// The seccomp profile is docker's default and one rule, for jails.
func TestTheSeccompProfileAddsOneRule(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/images/seccomp.json")
	if err != nil {
		t.Fatal(err)
	}
	var profile map[string]any
	if err := json.Unmarshal(text, &profile); err != nil {
		t.Fatal(err)
	}
	rules, _ := profile["syscalls"].([]any)
	if len(rules) == 0 {
		t.Fatal("it has no rules")
	}
	added, _ := rules[len(rules)-1].(map[string]any)
	var names []string
	list, _ := added["names"].([]any)
	for _, name := range list {
		names = append(names, name.(string))
	}
	if got, want := strings.Join(names, " "), "clone mount pivot_root sethostname umount2 unshare"; got != want {
		t.Errorf("the rule is for %s, want %s", got, want)
	}
	profile["syscalls"] = rules[:len(rules)-1]
	rest, err := json.Marshal(profile) // with its keys in order
	if err != nil {
		t.Fatal(err)
	}
	// That of the default profile which seccomp.sh names, written in the same way.
	const want = "a894b5730caa168d88da7fffe8ace974ad05fb84547e1766fa879d75d3ac6ba2"
	if sum := sha256.Sum256(rest); hex.EncodeToString(sum[:]) != want {
		t.Errorf("the other rules are not those of the default profile: %x", sum)
	}
}
