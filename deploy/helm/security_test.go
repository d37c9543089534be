package chart

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// standards are the Pod Security Standards that a namespace can enforce, strictest first, and
// baseline as it was before Kubernetes 1.35, which let pods with users of their own have a whole
// /proc.
var standards = []api.LevelVersion{
	{Level: api.LevelRestricted, Version: api.LatestVersion()},
	{Level: api.LevelBaseline, Version: api.MajorMinorVersion(1, 34)},
	{Level: api.LevelBaseline, Version: api.LatestVersion()},
	{Level: api.LevelPrivileged, Version: api.LatestVersion()},
}

// strictest is the first of the standards that admits a kind of pod, and what the one before
// it refuses, as docs/how-to/kubernetes.md says.
var strictest = map[string]struct {
	standard int
	refused  string
}{
	"server":         {0, ""},
	"broker":         {0, ""},
	"worker":         {0, ""},
	"worker, nested": {2, "procMount"},
	"seccomp":        {3, "hostPath volumes"},
}

// Each pod of each value set is judged by the code with which the API server judges it.
func TestPodSecurity(t *testing.T) {
	judge, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, set := range sets {
		out, err := template(t, set.values)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range documents(out) {
			pod, ok := podTemplate(t, document)
			if !ok {
				continue
			}
			kind := pod.Labels["app.kubernetes.io/component"]
			if pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers {
				kind += ", nested"
			}
			seen[kind] = true
			want, known := strictest[kind]
			if !known {
				t.Errorf("%s: pods of the kind %q are not known here", set.name, kind)
				continue
			}
			for i, standard := range standards {
				verdict := policy.AggregateCheckResults(judge.EvaluatePod(standard, &pod.ObjectMeta, &pod.Spec))
				if verdict.Allowed != (i >= want.standard) {
					t.Errorf("%s: %s admits %s: %v (%s)", set.name, standard, kind, verdict.Allowed, verdict.ForbiddenDetail())
				}
				if i == want.standard-1 && !strings.Contains(verdict.ForbiddenDetail(), want.refused) {
					t.Errorf("%s: %s refuses %s for %s, want %s", set.name, standard, kind, verdict.ForbiddenDetail(), want.refused)
				}
			}
			if token := pod.Spec.AutomountServiceAccountToken; token == nil || *token {
				t.Errorf("%s: %s has a token of Kubernetes", set.name, kind)
			}
		}
	}
	for kind := range strictest {
		if !seen[kind] {
			t.Errorf("no value set has the pod %q", kind)
		}
	}
}

// podTemplate is the pod of an object, if it has one, with a volume for each claim: those are
// what the set of a StatefulSet adds.
func podTemplate(t *testing.T, document string) (corev1.PodTemplateSpec, bool) {
	t.Helper()
	type withPod struct {
		Template     *corev1.PodTemplateSpec        `json:"template"`
		VolumeClaims []corev1.PersistentVolumeClaim `json:"volumeClaimTemplates"`
	}
	var object struct {
		metav1.TypeMeta
		Spec json.RawMessage `json:"spec"`
	}
	var spec struct {
		withPod
		JobTargetRef withPod `json:"jobTargetRef"`
	}
	raw, err := yaml.YAMLToJSON([]byte(document))
	if err == nil {
		err = json.Unmarshal(raw, &object)
	}
	switch object.Kind {
	case "ScaledJob", "StatefulSet", "Deployment", "DaemonSet":
	default:
		return corev1.PodTemplateSpec{}, false
	}
	if err == nil {
		err = json.Unmarshal(object.Spec, &spec)
	}
	pod := spec.Template
	if object.Kind == "ScaledJob" {
		pod = spec.JobTargetRef.Template
	}
	if err != nil || pod == nil {
		t.Fatalf("%s without a pod: %v", object.Kind, err)
	}
	for _, claim := range spec.VolumeClaims {
		source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}}
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: source})
	}
	return *pod, true
}
