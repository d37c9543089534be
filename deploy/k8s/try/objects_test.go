package try

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

const (
	chart = "../../helm/penstock"
	ours  = "app.kubernetes.io/instance=penstock" // what all objects of the chart have
)

// sets are the value sets; the first is the defaults.
var sets = []string{"", "one-node.yaml", "cluster.yaml", "keda.yaml", "external.yaml", "plain.yaml"}

func values(set string) []string {
	if set == "" {
		return nil
	}
	return []string{"--values", filepath.Join(chart, "ci", set)}
}

// definitions applies those of KEDA and of the Prometheus operator. The vendored schemas say
// which files of which modules they were made of.
func definitions(dir string) error {
	schemas, err := filepath.Glob("../../helm/schemas/*.json")
	if err != nil || len(schemas) == 0 {
		return fmt.Errorf("no schemas in deploy/helm: %w", err)
	}
	for _, file := range schemas {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var made struct {
			Comment string `json:"$comment"`
		}
		if err := json.Unmarshal(content, &made); err != nil {
			return err
		}
		module, of, _ := strings.Cut(made.Comment, " ")
		source, err := download(dir, module)
		if err != nil {
			return err
		}
		// By the server, since they are larger than what a client may note of them.
		if _, err := command("", "kubectl", "apply", "--server-side", "--filename", filepath.Join(source, of)); err != nil {
			return err
		}
	}
	_, err = command("", "kubectl", "wait", "--for", "condition=Established", "--timeout", "2m", "customresourcedefinitions", "--all")
	return err
}

// download is the directory of a module that this one does not require.
func download(dir, module string) (string, error) {
	cmd := exec.Command("go", "mod", "download", "-json", module)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go mod download %s: %w\n%s", module, err, out)
	}
	var at struct{ Dir string }
	err = json.Unmarshal(out, &at)
	return at.Dir, err
}

// namespace makes one as controllers would, with an account for pods that name none. labels
// are words as of kubectl label.
func namespace(t *testing.T, name string, labels ...string) {
	t.Helper()
	must(t, "kubectl", "create", "namespace", name)
	must(t, "kubectl", "--namespace", name, "create", "serviceaccount", "default")
	if len(labels) > 0 {
		must(t, "kubectl", append([]string{"label", "namespace", name}, labels...)...)
	}
}

// parse reads the objects of a YAML stream.
func parse(t *testing.T, stream string) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for _, document := range strings.Split("\n"+stream, "\n---") {
		var content map[string]any
		if err := yaml.Unmarshal([]byte(document), &content); err != nil {
			t.Fatal(err)
		}
		if content != nil {
			all = append(all, &unstructured.Unstructured{Object: content})
		}
	}
	return all
}

// A name is the kind and the name of an object.
func name(object *unstructured.Unstructured) string {
	return object.GetKind() + "/" + object.GetName()
}

// live returns the version of each object of ours in a namespace, whatever its kind.
func live(t *testing.T, namespace string) map[string]string {
	t.Helper()
	_, lists, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	objects := dynamic.NewForConfigOrDie(config)
	versions := map[string]string{}
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range list.APIResources {
			if !resource.Namespaced || !slices.Contains(resource.Verbs, "list") {
				continue
			}
			found, err := objects.Resource(group.WithResource(resource.Name)).Namespace(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: ours})
			if err != nil {
				t.Fatal(err)
			}
			for _, object := range found.Items {
				versions[name(&object)] = object.GetResourceVersion()
			}
		}
	}
	return versions
}

// pod is what controllers would make of an object: its template, with a volume for each claim.
func pod(t *testing.T, object *unstructured.Unstructured) (*corev1.Pod, bool) {
	t.Helper()
	path := []string{"spec", "template"}
	switch object.GetKind() {
	case "ScaledJob":
		path = []string{"spec", "jobTargetRef", "template"}
	case "StatefulSet", "Deployment", "DaemonSet":
	default:
		return nil, false
	}
	template, found, err := unstructured.NestedMap(object.Object, path...)
	if err != nil || !found {
		t.Fatalf("%s: no template: %v", name(object), err)
	}
	made := &corev1.Pod{}
	convert(t, template, made)
	made.Name = object.GetName() + "-0"
	claims, _, err := unstructured.NestedSlice(object.Object, "spec", "volumeClaimTemplates")
	if err != nil {
		t.Fatal(err)
	}
	for _, claim := range claims {
		var of corev1.PersistentVolumeClaim
		convert(t, claim, &of)
		source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: of.Name + "-" + made.Name}}
		made.Spec.Volumes = append(made.Spec.Volumes, corev1.Volume{Name: of.Name, VolumeSource: source})
	}
	return made, true
}

func convert(t *testing.T, from, to any) {
	t.Helper()
	raw, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(raw, to)
	}
	if err != nil {
		t.Fatal(err)
	}
}
