package try

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The manifests are for the namespace penstock, and one follows on the other there: whoever
// changes from one to another meets no field that cannot be changed.
func TestManifests(t *testing.T) {
	files, err := filepath.Glob("../*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("manifests: %v, err %v", files, err)
	}
	namespace(t, "penstock")
	for _, way := range [][]string{{"apply"}, {"apply", "--server-side"}} {
		for _, file := range files {
			t.Run(strings.Join(way, " ")+" "+filepath.Base(file), func(t *testing.T) {
				apply := append(way, "--filename", file)
				must(t, "kubectl", apply...)
				before := live(t, "penstock")
				content, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				for _, object := range parse(t, string(content)) {
					if before[name(object)] == "" {
						t.Errorf("%s is not in the namespace penstock", name(object))
					}
				}
				must(t, "kubectl", apply...)
				if after := live(t, "penstock"); !maps.Equal(before, after) {
					t.Errorf("a second %s changed objects:\n%v\n%v", way, before, after)
				}
			})
		}
		for _, file := range files {
			must(t, "kubectl", "delete", "--ignore-not-found", "--wait=false", "--filename", file)
		}
		if left := live(t, "penstock"); len(left) > 0 {
			t.Fatalf("left after kubectl delete: %v", left)
		}
	}
}

// The server finds mistakes, among them some that no schema has.
func TestMistakesAreRefused(t *testing.T) {
	namespace(t, "mistakes")
	for _, c := range []struct{ file, old, new, says string }{
		{"one-node.yaml", "hostUsers: false", "hostUser: false", ".spec.template.spec.hostUser: field not declared in schema"},
		{"one-node.yaml", "hostUsers: false", "hostUsers: true", "procMount"},
		{"one-node.yaml", "port: https", "port: https-of-the-pool", "must be no more than 15 characters"},
		{"cluster.yaml", "maxUnavailable: 1", "maxUnavailable: one", "maxUnavailable"},
		{"cluster.yaml", "behavior: currentReplicasIfHigher", "behavior: keep", "spec.fallback.behavior"},
		{"keda.yaml", "restartPolicy: Never", "restartPolicies: Never", ".spec.jobTargetRef.template.spec.restartPolicies: field not declared in schema"},
	} {
		content, err := os.ReadFile(filepath.Join("..", c.file))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(content), c.old) {
			t.Errorf("%s: %q is not in it", c.file, c.old)
			continue
		}
		stream := strings.ReplaceAll(string(content), "namespace: penstock\n", "namespace: mistakes\n")
		apply := []string{"apply", "--server-side", "--dry-run=server", "--filename", "-"}
		if _, err := command(stream, "kubectl", apply...); err != nil {
			t.Errorf("%s as it is: %v", c.file, err)
		}
		_, err = command(strings.ReplaceAll(stream, c.old, c.new), "kubectl", apply...)
		if err == nil {
			t.Errorf("%s: %q in place of %q is accepted", c.file, c.new, c.old)
		} else if !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: want an error about %q, got: %v", c.file, c.says, err)
		}
	}
}
