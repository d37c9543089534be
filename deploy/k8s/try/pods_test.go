package try

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// levels are those of Pod Security that a namespace can enforce, strictest first, and baseline
// as it was before it let pods with user namespaces have a /proc of their own.
var levels = []struct{ level, version string }{
	{"restricted", "latest"},
	{"baseline", "v1.34"},
	{"baseline", "latest"},
	{"privileged", "latest"},
}

// strictest is the first of the levels that admits a kind of pod, and why the one before it
// does not.
var strictest = map[string]struct {
	level int
	why   string
}{
	"server":         {0, ""},
	"broker":         {0, ""},
	"worker":         {0, ""},
	"worker, nested": {2, "procMount"},
	"seccomp":        {3, "hostPath"},
}

// Each pod of each value set is admitted from the level on that docs/how-to/kubernetes.md
// names, and gets no token.
func TestPods(t *testing.T) {
	// A class that nodes would have; pods that name one which is missing are refused.
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "gvisor"}, Handler: "runsc"}
	if _, err := client.NodeV1().RuntimeClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	spaces := make([]string, len(levels))
	for i, l := range levels {
		spaces[i] = fmt.Sprintf("pods-%d", i)
		namespace(t, spaces[i], "pod-security.kubernetes.io/enforce="+l.level, "pod-security.kubernetes.io/enforce-version="+l.version)
		for _, component := range []string{"server", "broker", "worker"} {
			must(t, "kubectl", "--namespace", spaces[i], "create", "serviceaccount", "penstock-"+component)
		}
	}
	seen := map[string]bool{}
	for _, set := range sets {
		out := must(t, "helm", append([]string{"template", "penstock", chart, "--namespace", "pods", "--kube-version", "1.37.0"}, values(set)...)...)
		for _, object := range parse(t, out) {
			of, ok := pod(t, object)
			if !ok {
				continue
			}
			kind := of.Labels["app.kubernetes.io/component"]
			if of.Spec.HostUsers != nil && !*of.Spec.HostUsers {
				kind += ", nested"
			}
			seen[kind] = true
			for i, space := range spaces {
				if err := admitted(t, of, space, kind, i); err != nil {
					t.Errorf("%s %s: %v", set, name(object), err)
				}
			}
		}
	}
	for kind := range strictest {
		if !seen[kind] {
			t.Errorf("no value set has the pod %q", kind)
		}
	}
}

// admitted asks whether a namespace that enforces a level admits a pod, and compares.
func admitted(t *testing.T, of *corev1.Pod, space, kind string, level int) error {
	t.Helper()
	made, err := client.CoreV1().Pods(space).Create(t.Context(), of, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	want, known := strictest[kind]
	l := levels[level]
	switch {
	case !known:
		return fmt.Errorf("pods of the kind %q are not known here", kind)
	case level >= want.level && err != nil:
		return err
	case level >= want.level:
		if tokens(made) {
			return fmt.Errorf("%s has a token", kind)
		}
		return nil
	case err == nil:
		return fmt.Errorf("%s:%s admits %s", l.level, l.version, kind)
	case !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), fmt.Sprintf("violates PodSecurity %q", l.level+":"+l.version)):
		return err
	case level == want.level-1 && !strings.Contains(err.Error(), want.why):
		return fmt.Errorf("want a refusal for %s: %w", want.why, err)
	}
	return nil
}

// tokens reports whether a volume of a pod holds a token for the API.
func tokens(of *corev1.Pod) bool {
	return slices.ContainsFunc(of.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.ServiceAccountToken != nil
		})
	})
}

// A pod gets a token if its specification does not decline it: the test above would see one.
func TestTokensAreSeen(t *testing.T) {
	namespace(t, "tokens")
	of := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "any"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "any", Image: "any"}}}}
	made, err := client.CoreV1().Pods("tokens").Create(t.Context(), of, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	if !tokens(made) {
		t.Errorf("no token in %v", made.Spec.Volumes)
	}
}
