package main

import (
	"bytes"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/penstock/aboutcmd"
)

const composeDir = "../../deploy/compose/"

// A composition is what a file of compose says, as far as ours use it: other keys, and those
// that are misspelled, are refused.
type composition struct {
	Name     string             `yaml:"name"`
	Services map[string]service `yaml:"services"`
	Secrets  map[string]struct {
		File string `yaml:"file"`
	} `yaml:"secrets"`
	Volumes  map[string]any `yaml:"volumes"`
	XService any            `yaml:"x-service"`
	XBroker  any            `yaml:"x-broker"`
	XPool    any            `yaml:"x-pool"`
}

// A service is one of them.
type service struct {
	Image       string            `yaml:"image"`
	Profiles    []string          `yaml:"profiles"`
	Command     []string          `yaml:"command"`
	Environment map[string]string `yaml:"environment"`
	EnvFile     []any             `yaml:"env_file"`
	Secrets     []any             `yaml:"secrets"`
	Volumes     []string          `yaml:"volumes"`
	Ports       []string          `yaml:"ports"`
	CapDrop     []string          `yaml:"cap_drop"`
	SecurityOpt []string          `yaml:"security_opt"`
	ReadOnly    bool              `yaml:"read_only"`
	Tmpfs       []string          `yaml:"tmpfs"`
	Healthcheck struct {
		Test []string `yaml:"test"`
	} `yaml:"healthcheck"`
	StopGrace time.Duration `yaml:"stop_grace_period"`
	Restart   string        `yaml:"restart"`
	Logging   any           `yaml:"logging"`
	Deploy    any           `yaml:"deploy"`
	DependsOn any           `yaml:"depends_on"`
}

// ours tells whether the service runs one of our images.
func (s service) ours() bool { return strings.HasPrefix(s.Image, "${PENSTOCK_") }

// holds are the names of the service's secrets.
func (s service) holds() []string {
	var names []string
	for _, one := range s.Secrets {
		switch one := one.(type) {
		case string:
			names = append(names, one)
		case map[string]any:
			names = append(names, one["source"].(string))
		}
	}
	return names
}

// readCompose reads the pool with one server, and the one with three brokers, which is the
// first with what the second file says of it.
func readCompose(t *testing.T) (one, three composition) {
	t.Helper()
	read := func(name string) (file composition) {
		text, err := os.ReadFile(composeDir + name)
		if err != nil {
			t.Fatal(err)
		}
		decoder := yaml.NewDecoder(bytes.NewReader(text))
		decoder.KnownFields(true)
		if err := decoder.Decode(&file); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return file
	}
	one, over := read("compose.yaml"), read("compose.cluster.yaml")
	three = composition{Services: maps.Clone(one.Services), Secrets: maps.Clone(one.Secrets)}
	maps.Copy(three.Secrets, over.Secrets)
	for name, changed := range over.Services {
		base, ok := one.Services[name]
		if !ok {
			three.Services[name] = changed
			continue
		}
		environment := maps.Clone(base.Environment)
		maps.Copy(environment, changed.Environment)
		base.Environment, base.Secrets = environment, slices.Concat(base.Secrets, changed.Secrets)
		three.Services[name] = base
	}
	return one, three
}

// The services of compose run commands that exist, with settings that exist, secrets that
// secrets.sh makes and files that are there.
func TestComposeNamesOnlyWhatExists(t *testing.T) {
	t.Parallel()
	one, three := readCompose(t)
	made, err := os.ReadFile(composeDir + "secrets.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, pool := range []composition{one, three} {
		for name, s := range pool.Services {
			checkCommands(t, name, s)
			checkSettings(t, name, s)
			for _, secret := range s.holds() {
				file := pool.Secrets[secret].File
				stem, _, _ := strings.Cut(secret, ".")
				if file != "secrets/"+secret || !strings.Contains(string(made), stem) {
					t.Errorf("%s: secrets.sh does not make the secret %s", name, secret)
				}
			}
			paths := slices.Clone(s.Volumes)
			for _, option := range s.SecurityOpt {
				if profile, ok := strings.CutPrefix(option, "seccomp="); ok {
					paths = append(paths, profile)
				}
			}
			for _, path := range paths {
				host, _, _ := strings.Cut(path, ":")
				if _, err := os.Stat(filepath.Join(composeDir, host)); strings.HasPrefix(host, ".") && err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
}

// checkCommands looks at what a service runs.
func checkCommands(t *testing.T, name string, s service) {
	t.Helper()
	if !s.ours() {
		return
	}
	if len(s.Command) > 0 {
		if wrong := exists(s.Command); wrong != "" {
			t.Errorf("%s runs %q: %s", name, s.Command, wrong)
		}
	}
	if test := s.Healthcheck.Test; len(test) > 0 {
		if len(test) < 3 || test[1] != "penstock" {
			t.Fatalf("%s checks its health by %q", name, test)
		}
		if wrong := exists(test[2:]); wrong != "" {
			t.Errorf("%s checks its health by %q: %s", name, test, wrong)
		}
	}
	if !slices.Equal(s.CapDrop, []string{"ALL"}) || !s.ReadOnly || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
		t.Errorf("%s may do more than it needs: cap_drop %q, read_only %v, security_opt %q", name, s.CapDrop, s.ReadOnly, s.SecurityOpt)
	}
}

// checkSettings looks at the environment of a service.
func checkSettings(t *testing.T, name string, s service) {
	t.Helper()
	if !s.ours() {
		return
	}
	var known string
	for _, topic := range aboutcmd.Topics() {
		known += topic.Long
	}
	variable := regexp.MustCompile(`\$\{[A-Z_]+:-([^}]*)\}`)
	environment := map[string]string{}
	for key, value := range s.Environment {
		value = variable.ReplaceAllString(value, "$1")
		environment[key] = value
		if strings.HasPrefix(key, "PENSTOCK_") && !strings.Contains(known, "  "+key+"\n") {
			t.Errorf("%s: there is no setting %s", name, key)
		}
		if secret, ok := strings.CutPrefix(value, "/run/secrets/"); ok && !slices.Contains(s.holds(), secret) {
			t.Errorf("%s: %s names a secret that the service does not have: %s", name, key, secret)
		}
	}
	var config cli.Config
	if err := config.Load(pflag.NewFlagSet("", pflag.ContinueOnError), "", environment); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// What one service of compose says of another is true: addresses, ports, names of
// certificates, and how long a worker may take to stop.
func TestComposeServicesFindEachOther(t *testing.T) {
	t.Parallel()
	_, pool := readCompose(t)
	serve, worker := pool.Services["serve"], pool.Services["worker"]
	if drain := cli.Defaults().Worker.Drain; worker.StopGrace <= drain {
		t.Errorf("a worker has %v to stop, and drains for %v", worker.StopGrace, drain)
	}
	if at := port(t, serve.Environment["PENSTOCK_SERVE_HTTP"]); !strings.HasSuffix(serve.Ports[0], ":"+at) {
		t.Errorf("serve listens on %s, and the host has %q", at, serve.Ports)
	}
	// The images check the health of these ports, too.
	defaults := cli.Defaults()
	scraped := read(t, "../../deploy/prometheus/prometheus-compose.yml")
	for name, admin := range map[string][2]string{
		"serve":  {serve.Environment["PENSTOCK_SERVE_ADMIN"], defaults.Serve.Admin},
		"worker": {worker.Environment["PENSTOCK_WORKER_ADMIN"], defaults.Worker.Admin},
	} {
		if at := port(t, admin[0]); at != port(t, admin[1]) || !strings.Contains(scraped, "names: ["+name+"], type: A, port: "+at+",") {
			t.Errorf("%s shows its metrics on port %s, which the image or Prometheus do not expect", name, at)
		}
	}
	secrets, broker := read(t, composeDir+"secrets.sh"), read(t, composeDir+"broker.conf")
	for _, address := range strings.Split(serve.Environment["PENSTOCK_SERVER"], ",") {
		at, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		host := at.Hostname()
		if s, ok := pool.Services[host]; !ok || s.Environment["BROKER"] != host {
			t.Errorf("there is no broker %s that knows its name", host)
		}
		if !strings.Contains(secrets, "DNS:"+host+",") || !strings.Contains(broker, `"nats://`+host+`:6222"`) {
			t.Errorf("%s has no certificate, or no route", host)
		}
	}
	if serve.Environment["PENSTOCK_SERVER"] != worker.Environment["PENSTOCK_SERVER"] {
		t.Error("server and workers have different brokers")
	}
	if !strings.Contains(read(t, composeDir+"grafana/dashboards.yaml"), "path: /srv/penstock/grafana\n") ||
		!slices.Contains(pool.Services["grafana"].Volumes, "../grafana:/srv/penstock/grafana:ro") {
		t.Error("Grafana has its dashboards elsewhere")
	}
}

// read returns the text of a file.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
