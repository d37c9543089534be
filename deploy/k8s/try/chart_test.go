package try

import (
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// upgrade installs the release penstock in a namespace named like the release's test, or
// changes it to other values.
func upgrade(t *testing.T, namespace, set string, more ...string) error {
	t.Helper()
	args := append([]string{"upgrade", "--install", "penstock", chart, "--namespace", namespace}, values(set)...)
	_, err := command("", "helm", append(args, more...)...)
	return err
}

// From each value set one gets to each other one: no field is in the way that cannot be
// changed, and what the new set has no more is gone.
func TestUpgradesBetweenSets(t *testing.T) {
	namespace(t, "upgrades")
	for i, from := range sets {
		for _, to := range sets[i+1:] {
			for _, set := range []string{from, to} { // and back, with the next
				if err := upgrade(t, "upgrades", set); err != nil {
					t.Fatal(err)
				}
				installed(t, "upgrades")
			}
		}
	}
	must(t, "helm", "uninstall", "penstock", "--namespace", "upgrades")
	if left := live(t, "upgrades"); len(left) > 0 {
		t.Errorf("left after helm uninstall: %v", left)
	}
}

// installed checks that a namespace has the objects of the release, and no others.
func installed(t *testing.T, namespace string) {
	t.Helper()
	var want []string
	for _, object := range parse(t, must(t, "helm", "get", "manifest", "penstock", "--namespace", namespace)) {
		want = append(want, name(object))
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(live(t, namespace))); !slices.Equal(got, want) {
		t.Errorf("objects:\n%q\nwant\n%q", got, want)
	}
}

// An upgrade without a change writes nothing, so no pod is restarted by it.
func TestUpgradeWithoutChange(t *testing.T) {
	namespace(t, "unchanged")
	for _, set := range sets {
		if err := upgrade(t, "unchanged", set); err != nil {
			t.Fatal(err)
		}
		before := live(t, "unchanged")
		if err := upgrade(t, "unchanged", set); err != nil {
			t.Fatal(err)
		}
		if after := live(t, "unchanged"); !maps.Equal(before, after) {
			t.Errorf("%s: a second upgrade changed objects:\n%v\n%v", set, before, after)
		}
	}
}

// An upgrade leaves the number of pods to the autoscaler.
func TestUpgradeKeepsScale(t *testing.T) {
	namespace(t, "scaled")
	if err := upgrade(t, "scaled", "cluster.yaml"); err != nil {
		t.Fatal(err)
	}
	must(t, "kubectl", "--namespace", "scaled", "scale", "--replicas=7", "deployment/penstock-worker-gpu")
	if err := upgrade(t, "scaled", "cluster.yaml", "--set", "workers.gpu.settings.worker.retain=1h"); err != nil {
		t.Fatal(err)
	}
	deployment, err := client.AppsV1().Deployments("scaled").Get(t.Context(), "penstock-worker-gpu", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := *deployment.Spec.Replicas; got != 7 {
		t.Errorf("replicas: %d, want 7", got)
	}
}

// The size of a volume is what cannot be changed, and docs/how-to/kubernetes.md says the way
// around it: what that page says to delete is made anew by the upgrade.
func TestVolumeSize(t *testing.T) {
	for _, c := range []struct{ set, object, value string }{
		{"one-node.yaml", "statefulset/penstock-server", "server.storage.size=40Gi"},
		{"cluster.yaml", "statefulset/penstock-broker", "broker.cluster.storage.size=40Gi"},
	} {
		of := "size-" + strings.TrimSuffix(c.set, ".yaml")
		namespace(t, of)
		if err := upgrade(t, of, c.set); err != nil {
			t.Fatal(err)
		}
		err := upgrade(t, of, c.set, "--set", c.value)
		if err == nil || !strings.Contains(err.Error(), "is invalid: spec.volumeClaimTemplates") {
			t.Errorf("%s: %v", c.value, err)
		}
		// Without --cascade=orphan, which a controller would have to carry out.
		must(t, "kubectl", "--namespace", of, "delete", c.object)
		if err := upgrade(t, of, c.set, "--set", c.value); err != nil {
			t.Error(err)
		}
	}
}
