package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/dispatcher/httpapi"
)

// A pod is what the test reads of a pod in deploy/k8s.
type pod struct {
	Grace      int `yaml:"terminationGracePeriodSeconds"`
	Containers []struct {
		Name          string
		Command, Args []string
		Env           []struct{ Name string }
		Startup       probe `yaml:"startupProbe"`
		Liveness      probe `yaml:"livenessProbe"`
		Readiness     probe `yaml:"readinessProbe"`
	}
}

type probe struct {
	HTTP struct{ Path, Port string } `yaml:"httpGet"`
}

// A manifest is an object of deploy/k8s: what it has of pods and triggers.
type manifest struct {
	Kind string
	Spec struct {
		Template     struct{ Spec pod }
		JobTargetRef struct{ Template struct{ Spec pod } } `yaml:"jobTargetRef"`
		Triggers     []struct{ Metadata map[string]string }
		Groups       any // of a PrometheusRule
	}
}

func manifests(t *testing.T) map[string][]manifest {
	t.Helper()
	files, err := filepath.Glob("../../deploy/k8s/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	all := map[string][]manifest{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for decoder := yaml.NewDecoder(strings.NewReader(string(content))); ; {
			var m manifest
			if err = decoder.Decode(&m); err != nil {
				break
			}
			all[file] = append(all[file], m)
		}
		if !errors.Is(err, io.EOF) {
			t.Fatalf("%s: %v", file, err)
		}
	}
	return all
}

// The commands of the manifests exist, with their flags, the values of these, and the variables;
// the probes ask what the program answers; and a pod has more time to end than its worker
// takes. "make chart" checks the rest.
func TestTheManifestsNameOnlyWhatExists(t *testing.T) {
	t.Parallel()
	variables := map[string]bool{}
	settingsOf(reflect.TypeFor[cli.Config](), cli.EnvPrefix, variables)
	commands := 0
	for file, objects := range manifests(t) {
		for _, m := range objects {
			for _, p := range []pod{m.Spec.Template.Spec, m.Spec.JobTargetRef.Template.Spec} {
				for _, c := range p.Containers {
					if len(c.Command) != 1 || c.Command[0] != "penstock" {
						continue
					}
					commands++
					a := &app{cfg: cli.Defaults(), format: cli.Table}
					at, rest, err := a.root(c.Args).Find(c.Args)
					if err == nil {
						err = at.ParseFlags(rest)
					}
					if err != nil {
						t.Errorf("%s: %s: penstock %s: %v", file, c.Name, strings.Join(c.Args, " "), err)
					}
					if drain := time.Duration(p.Grace) * time.Second; at.Name() == "worker" && drain < a.cfg.Worker.Drain+time.Minute {
						t.Errorf("%s: the worker drains for %v, and its pod ends after %v", file, a.cfg.Worker.Drain, drain)
					}
					for _, v := range c.Env {
						if strings.HasPrefix(v.Name, cli.EnvPrefix) && !variables[v.Name] {
							t.Errorf("%s: %s: there is no variable %s", file, c.Name, v.Name)
						}
					}
					if at.Name() == "server" { // of NATS, with probes of its own
						continue
					}
					if c.Startup.HTTP.Path != "/livez" || c.Liveness.HTTP.Path != "/livez" || c.Readiness.HTTP.Path != "/readyz" {
						t.Errorf("%s: %s: the probes are %v, %v, %v", file, c.Name, c.Startup, c.Liveness, c.Readiness)
					}
				}
			}
		}
	}
	if commands < 8 {
		t.Errorf("the manifests have %d commands of penstock", commands)
	}
}

// What KEDA asks is a route, and what it reads is a number in the answer.
func TestTheTriggersAskWhatIsAnswered(t *testing.T) {
	t.Parallel()
	triggers := 0
	for file, objects := range manifests(t) {
		for _, m := range objects {
			for _, trigger := range m.Spec.Triggers {
				triggers++
				_, path, _ := strings.Cut(strings.TrimPrefix(trigger.Metadata["url"], "https://"), "/")
				route, _, _ := strings.Cut("GET /"+path, "?")
				answer := answerOf(route)
				if answer == nil {
					t.Errorf("%s: there is no route %s", file, route)
					continue
				}
				if kind := fieldOf(answer, trigger.Metadata["valueLocation"]); kind != reflect.Int {
					t.Errorf("%s: the field %q of %s is %v, want a number", file, trigger.Metadata["valueLocation"], route, kind)
				}
				if n, err := strconv.Atoi(trigger.Metadata["targetValue"]); err != nil || n < 1 {
					t.Errorf("%s: targetValue %q", file, trigger.Metadata["targetValue"])
				}
			}
		}
	}
	if triggers < 4 {
		t.Errorf("the manifests have %d triggers", triggers)
	}
}

// The rules of Prometheus are in the manifests as they are: whoever changes them runs
// "make chart UPDATE=1".
func TestTheManifestsHaveTheRules(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../deploy/prometheus/penstock.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	var rules struct{ Groups any }
	if err := yaml.Unmarshal(content, &rules); err != nil {
		t.Fatal(err)
	}
	found := false
	for file, objects := range manifests(t) {
		for _, m := range objects {
			if m.Kind != "PrometheusRule" {
				continue
			}
			found = true
			if !reflect.DeepEqual(m.Spec.Groups, rules.Groups) {
				t.Errorf("%s has other rules than deploy/prometheus: run make chart UPDATE=1", file)
			}
		}
	}
	if !found {
		t.Error("no manifest has rules")
	}
}

func answerOf(pattern string) reflect.Type {
	for _, route := range httpapi.Routes() {
		if route.Method+" "+route.Path == pattern {
			return route.Answer
		}
	}
	return nil
}

func fieldOf(object reflect.Type, name string) reflect.Kind {
	for i := range object.NumField() {
		if tag, _, _ := strings.Cut(object.Field(i).Tag.Get("json"), ","); tag == name {
			return object.Field(i).Type.Kind()
		}
	}
	return reflect.Invalid
}

// settingsOf gathers the variables of the settings.
func settingsOf(object reflect.Type, prefix string, to map[string]bool) {
	for i := range object.NumField() {
		field := object.Field(i)
		if more := field.Tag.Get("envPrefix"); more != "" {
			settingsOf(field.Type, prefix+more, to)
		}
		if name := field.Tag.Get("env"); name != "" {
			to[prefix+name] = true
		}
	}
}
