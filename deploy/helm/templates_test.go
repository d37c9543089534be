// Package chart checks the Helm chart and the manifests made from it: "make chart" runs it.
package chart

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	kubernetes "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

var rewrite = flag.Bool("write", false, "write the manifests, the schemas and the profile again")

// sets are the value sets, each with the file of its manifests, if it has one.
var sets = []struct{ name, values, manifests string }{
	{"defaults", "", ""},
	{"one-node", "one-node.yaml", "one-node.yaml"},
	{"cluster", "cluster.yaml", "cluster.yaml"},
	{"keda", "keda.yaml", "keda.yaml"},
	{"external", "external.yaml", ""},
	{"plain", "plain.yaml", ""},
}

// program is Helm: what HELM names, else that of this module, which is built once.
var program = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("HELM"); path != "" {
		return path, nil
	}
	out, err := exec.Command("go", "tool", "-n", "helm").Output()
	return strings.TrimSpace(string(out)), err
})

func helm(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatalf("build Helm: %v", err)
	}
	cmd := exec.Command(path, args...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err = cmd.Run(); err != nil {
		err = fmt.Errorf("helm %s: %w\n%s%s", strings.Join(args, " "), err, out.String(), said.String())
	}
	return out.String(), err
}

func values(name string) []string {
	if name == "" {
		return nil
	}
	return []string{"--values", filepath.Join("penstock", "ci", name)}
}

// template renders a value set, or more values after it.
func template(t *testing.T, set string, more ...string) (string, error) {
	t.Helper()
	args := append([]string{"template", "penstock", "penstock", "--namespace", "penstock", "--kube-version", "1.37.0"}, values(set)...)
	return helm(t, append(args, more...)...)
}

func TestLint(t *testing.T) {
	for _, set := range sets {
		t.Run(set.name, func(t *testing.T) {
			out, err := helm(t, append([]string{"lint", "--strict", "penstock"}, values(set.values)...)...)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(out, "[WARNING]") {
				t.Error(out)
			}
		})
	}
}

// Every object that Kubernetes knows has no field that it does not know; every other one is
// as the schema of its definition says.
func TestObjects(t *testing.T) {
	seen := map[string]bool{}
	for _, set := range sets {
		t.Run(set.name, func(t *testing.T) {
			out, err := template(t, set.values)
			if err != nil {
				t.Fatal(err)
			}
			for _, document := range documents(out) {
				kind, err := check(document)
				if err != nil {
					t.Errorf("%v\n%s", err, document)
				}
				seen[kind] = true
			}
		})
	}
	for _, kind := range []string{"StatefulSet", "Deployment", "DaemonSet", "NetworkPolicy", "PodDisruptionBudget", "ServiceMonitor", "PodMonitor", "PrometheusRule", "ScaledJob", "ScaledObject", "TriggerAuthentication"} {
		if !seen[kind] {
			t.Errorf("no value set has a %s", kind)
		}
	}
}

// Every object names its namespace: addresses in it have that name, so an apply elsewhere must
// not succeed.
func TestObjectsNameTheirNamespace(t *testing.T) {
	for _, set := range sets {
		out, err := template(t, set.values)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range documents(out) {
			var object struct {
				Kind     string `json:"kind"`
				Metadata struct {
					Name      string `json:"name"`
					Namespace string `json:"namespace"`
				} `json:"metadata"`
			}
			if err := yaml.Unmarshal([]byte(document), &object); err != nil {
				t.Fatal(err)
			}
			if object.Metadata.Namespace != "penstock" {
				t.Errorf("%s: %s %s is in the namespace %q, want penstock", set.name, object.Kind, object.Metadata.Name, object.Metadata.Namespace)
			}
		}
	}
}

// What checks objects finds the mistakes that it is for.
func TestMistakesAreFound(t *testing.T) {
	for _, c := range []struct{ set, old, new string }{
		{"one-node.yaml", "hostUsers: false", "hostUser: false"},
		{"one-node.yaml", "procMount: Unmasked", "procmount: Unmasked"},
		{"one-node.yaml", "terminationGracePeriodSeconds: 660", "terminationGracePeriodSeconds: 11m"},
		{"keda.yaml", "strategy: gradual", "strategy: default"},
		{"keda.yaml", "authenticationRef:", "authentication:"},
		{"cluster.yaml", "behavior: currentReplicasIfHigher", "behavior: keep"},
		{"cluster.yaml", "podMetricsEndpoints:", "endpoints:"},
	} {
		out, err := template(t, c.set)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out, c.old) {
			t.Errorf("%s: %q is not in it", c.set, c.old)
			continue
		}
		found := false
		for _, document := range documents(strings.ReplaceAll(out, c.old, c.new)) {
			if _, err := check(document); err != nil {
				found = true
			}
		}
		if !found {
			t.Errorf("%s: %q in place of %q is accepted", c.set, c.new, c.old)
		}
	}
}

func TestNonsenseIsRefused(t *testing.T) {
	for _, c := range []struct{ values, says string }{
		{"server.replicas=two", "replicas"},
		{"server.replicas=2", "embedded"},
		{"server.replica=1", "replica"},
		{"worker.mode=jail", "mode"},
		{"worker.mode=pod", "kind ScaledJob"},
		{"worker.kind=ScaledJob", "scale.enabled"},
		{"workers.default.slots=0", "slots"},
		{"workers.Default.slots=1", "Default"},
		{"worker.queues={a,a}", "queues"},
		{"worker.queues={Default}", "queues"},
		{"broker.mode=external", "broker.url"},
		{"broker.url=nats://user:password@a:4222", "url"},
		{"broker.cluster.replicas=2", "replicas"},
		{"keda.url=http://pool.example", "url"},
		{"worker.scale.enabled=true,server.http.enabled=false", "keda.url"},
		{"monitoring.job=pool", "job"},
		{"worker.seccompProfile=../worker.json", "seccompProfile"},
		{"image.pullPolicy=Sometimes", "pullPolicy"},
		{"user=0", "user"},
	} {
		_, err := template(t, "", "--set", c.values)
		if err == nil {
			t.Errorf("%s is accepted", c.values)
		} else if !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: want an error about %q, got: %v", c.values, c.says, err)
		}
	}
}

// The manifests are what the chart makes of its value sets.
func TestManifestsAreCurrent(t *testing.T) {
	for _, set := range sets {
		if set.manifests == "" {
			continue
		}
		out, err := template(t, set.values)
		if err != nil {
			t.Fatal(err)
		}
		head := "# Made by \"make chart UPDATE=1\" from the chart and deploy/helm/penstock/ci/" + set.values + "; docs/how-to/kubernetes.md says how to use it.\n"
		golden(t, filepath.Join("..", "k8s", set.manifests), head+out)
	}
}

func golden(t *testing.T, file, want string) {
	t.Helper()
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not current; run make chart UPDATE=1", file)
	}
}

// documents are those of a YAML stream that hold an object.
func documents(stream string) []string {
	var all []string
	for _, document := range strings.Split("\n"+stream, "\n---") {
		var content any
		if yaml.Unmarshal([]byte(document), &content) == nil && content == nil {
			continue
		}
		all = append(all, document)
	}
	return all
}

var strict = kjson.NewSerializerWithOptions(kjson.DefaultMetaFactory, kubernetes.Scheme, kubernetes.Scheme, kjson.SerializerOptions{Yaml: true, Strict: true})

// check returns the kind of an object, and what is wrong with it.
func check(document string) (string, error) {
	raw, err := yaml.YAMLToJSONStrict([]byte(document))
	if err != nil {
		return "", err
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return "", err
	}
	kind := schema.FromAPIVersionAndKind(head.APIVersion, head.Kind)
	if kubernetes.Scheme.Recognizes(kind) {
		_, _, err := strict.Decode([]byte(document), nil, nil)
		return head.Kind, err
	}
	custom, err := definition(kind)
	if err != nil {
		return head.Kind, err
	}
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return head.Kind, err
	}
	if err := custom.Validate(instance); err != nil {
		return head.Kind, err
	}
	return head.Kind, jobTemplate(head.Kind, raw)
}

// jobTemplate checks the pod of a ScaledJob as one of Kubernetes: its definition leaves most
// of it open.
func jobTemplate(kind string, raw []byte) error {
	if kind != "ScaledJob" {
		return nil
	}
	var object struct {
		Spec struct {
			JobTargetRef json.RawMessage `json:"jobTargetRef"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &object); err != nil {
		return err
	}
	job := fmt.Sprintf(`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"x"},"spec":%s}`, object.Spec.JobTargetRef)
	_, _, err := strict.Decode([]byte(job), nil, nil)
	return err
}

// definition is the vendored schema of a custom resource.
func definition(kind schema.GroupVersionKind) (*jsonschema.Schema, error) {
	file := filepath.Join("schemas", fmt.Sprintf("%s_%s.json", strings.ToLower(kind.Kind), kind.Version))
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: neither Kubernetes nor schemas/ knows it", kind)
	}
	return jsonschema.NewCompiler().Compile(file)
}
