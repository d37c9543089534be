package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Where what is vendored comes from. The modules are read by -write alone, so that they bring
// nothing into this one.
const (
	kedaModule     = "github.com/kedacore/keda/v2@v2.21.0"
	operatorModule = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
)

var definitions = []struct{ module, file, schema string }{
	{kedaModule, "config/crd/bases/keda.sh_scaledjobs.yaml", "scaledjob_v1alpha1.json"},
	{kedaModule, "config/crd/bases/keda.sh_scaledobjects.yaml", "scaledobject_v1alpha1.json"},
	{kedaModule, "config/crd/bases/keda.sh_triggerauthentications.yaml", "triggerauthentication_v1alpha1.json"},
	{operatorModule, "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml", "servicemonitor_v1.json"},
	{operatorModule, "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml", "podmonitor_v1.json"},
	{operatorModule, "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml", "prometheusrule_v1.json"},
}

// TestVendored writes, with -write, the schemas of custom resources anew. Without it, it holds
// what is there to where it says that it comes from. This file comes before that of the
// templates, which are made of its results.
func TestVendored(t *testing.T) {
	for _, d := range definitions {
		file := filepath.Join("schemas", d.schema)
		if *rewrite {
			var crd struct {
				Spec struct {
					Versions []struct {
						Schema struct {
							OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
						} `json:"schema"`
					} `json:"versions"`
				} `json:"spec"`
			}
			if err := yaml.Unmarshal(source(t, d.module, d.file), &crd); err != nil {
				t.Fatal(err)
			}
			schema := closed(crd.Spec.Versions[0].Schema.OpenAPIV3Schema).(map[string]any)
			schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
			schema["$comment"] = d.module + " " + d.file
			write(t, file, schema)
		}
		var schema struct {
			Comment string `json:"$comment"`
		}
		read(t, file, &schema)
		if schema.Comment != d.module+" "+d.file {
			t.Errorf("%s is of %q, want %s %s: run make chart UPDATE=1", file, schema.Comment, d.module, d.file)
		}
	}
}

// source reads a file of a module.
func source(t *testing.T, module, file string) []byte {
	t.Helper()
	cmd := exec.Command("go", "mod", "download", "-json", module)
	cmd.Dir = t.TempDir() // not this module, which does not require it
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go mod download %s: %v\n%s", module, err, out)
	}
	var at struct{ Dir string }
	if err := json.Unmarshal(out, &at); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(at.Dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// closed turns the schema of a definition into one that refuses unknown fields. A pod is left
// open, since it is decoded as what Kubernetes has; descriptions are left out.
func closed(node any) any {
	object, ok := node.(map[string]any)
	if !ok {
		return node
	}
	properties, ok := object["properties"].(map[string]any)
	if ok {
		if object["x-kubernetes-preserve-unknown-fields"] != true && object["additionalProperties"] == nil {
			object["additionalProperties"] = false
		}
		for name, property := range properties {
			if name == "jobTargetRef" {
				properties[name] = map[string]any{"type": "object"}
				continue
			}
			properties[name] = closed(property)
		}
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if object[key] != nil {
			object[key] = closed(object[key])
		}
	}
	delete(object, "description")
	delete(object, "format") // of Kubernetes, as int32
	if object["x-kubernetes-int-or-string"] == true {
		return map[string]any{"type": []string{"integer", "string"}}
	}
	for key := range object {
		if strings.HasPrefix(key, "x-kubernetes-") || key == "nullable" {
			delete(object, key)
		}
	}
	return object
}

// A profile is one of the Open Container Initiative, as runtimes of Kubernetes read it. They
// know no conditions: each rule of docker's that has one is decided here.
type profile struct {
	Comment       string   `json:"comment"`
	DefaultAction string   `json:"defaultAction"`
	DefaultErrno  int      `json:"defaultErrnoRet"`
	Architectures []string `json:"architectures"`
	Syscalls      []rule   `json:"syscalls"`
}

type rule struct {
	Names  []string   `json:"names"`
	Action string     `json:"action"`
	Errno  *int       `json:"errnoRet,omitempty"`
	Args   []argument `json:"args,omitempty"`
}

type argument struct {
	Index    int    `json:"index"`
	Value    uint64 `json:"value"`
	ValueTwo uint64 `json:"valueTwo,omitempty"`
	Op       string `json:"op"`
}

// TestProfile holds the profile of mode nested to that of the images, deploy/images/seccomp.json,
// which it is made from.
func TestProfile(t *testing.T) {
	const file = "penstock/files/seccomp.json"
	want := flat(t)
	if *rewrite {
		write(t, file, want)
	}
	var have profile
	read(t, file, &have)
	if !reflect.DeepEqual(have, want) {
		t.Errorf("%s is not what deploy/images/seccomp.json makes: run make chart UPDATE=1", file)
	}
	for name, want := range map[string]bool{
		"openat": true, "execve": true, "clone": true, "mount": true, "pivot_root": true, "unshare": true,
		"clone3": false, "bpf": false, "init_module": false, "setns": false, "reboot": false, "open_by_handle_at": false,
	} {
		if got := have.allows(name); got != want {
			t.Errorf("%s: allowed is %v, want %v", name, got, want)
		}
	}
}

// allows reports whether a system call is allowed whatever its arguments are.
func (p profile) allows(name string) bool {
	return slices.ContainsFunc(p.Syscalls, func(r rule) bool {
		return r.Action == "SCMP_ACT_ALLOW" && len(r.Args) == 0 && slices.Contains(r.Names, name)
	})
}

// A condition of docker's profile.
type condition struct {
	Caps   []string `json:"caps"`
	Arches []string `json:"arches"`
}

// holds reports whether a condition holds on amd64 and arm64 without capabilities: names that
// one of them does not have are harmless there.
func (c condition) holds() bool {
	ours := func(arch string) bool { return arch == "amd64" || arch == "arm64" }
	return len(c.Caps) == 0 && (len(c.Arches) == 0 || slices.ContainsFunc(c.Arches, ours))
}

func flat(t *testing.T) profile {
	t.Helper()
	var from struct {
		DefaultAction string `json:"defaultAction"`
		DefaultErrno  int    `json:"defaultErrnoRet"`
		Syscalls      []struct {
			rule
			Includes condition `json:"includes"`
			Excludes condition `json:"excludes"`
		} `json:"syscalls"`
	}
	read(t, "../images/seccomp.json", &from)
	to := profile{
		Comment:       "deploy/images/seccomp.json, for programs without capabilities on amd64 and arm64",
		DefaultAction: from.DefaultAction, DefaultErrno: from.DefaultErrno,
		Architectures: []string{"SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32", "SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"},
	}
	jail := from.Syscalls[len(from.Syscalls)-1].Names // whatever other rules say of them
	for i, r := range from.Syscalls {
		// A rule for a lack of capabilities applies; one for other architectures does not.
		if !r.Includes.holds() {
			continue
		}
		if i < len(from.Syscalls)-1 {
			r.Names = slices.DeleteFunc(r.Names, func(name string) bool { return slices.Contains(jail, name) })
		}
		if len(r.Names) > 0 {
			to.Syscalls = append(to.Syscalls, r.rule)
		}
	}
	return to
}

func write(t *testing.T, file string, value any) {
	t.Helper()
	content, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(content, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string, value any) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, value); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", file, err))
	}
}
