package sandbox_test

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
)

func TestValidateNamesTheField(t *testing.T) {
	for field, change := range map[string]func(*sandbox.Spec){
		"Args":             func(s *sandbox.Spec) { s.Args = nil },
		"Args[1]":          func(s *sandbox.Spec) { s.Args = []string{"a", "b\x00c"} },
		"Env[0]":           func(s *sandbox.Spec) { s.Env = []string{"NOVALUE"} },
		"Env[1]":           func(s *sandbox.Spec) { s.Env = []string{"A=b", "C=\x00"} },
		"Dir":              func(s *sandbox.Spec) { s.Dir = "relative" },
		"Workspace":        func(s *sandbox.Spec) { s.Workspace = "/a/../b" },
		"Home":             func(s *sandbox.Spec) { s.Home = "/" },
		"Mounts[0].Source": func(s *sandbox.Spec) { s.Mounts = []sandbox.Mount{{Source: "--bind", Target: "/x"}} },
		"Mounts[0].Target": func(s *sandbox.Spec) { s.Mounts = []sandbox.Mount{{Source: "/a", Target: "/workspace/sub"}} },
		"Mounts[1].Target": func(s *sandbox.Spec) {
			s.Mounts = []sandbox.Mount{{Source: "/a", Target: "/x"}, {Source: "/a", Target: "/proc/1"}}
		},
		"Files[0].Path": func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "/usr/bin/x"}} },
		"Files[1].Path": func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "/etc/a"}, {Path: "/etc/a\nb"}} },
		"Files[0].Mode": func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "/etc/a", Mode: 0o4755}} },
		"Preset":        func(s *sandbox.Spec) { s.Preset = "lax" },
		"Network":       func(s *sandbox.Spec) { s.Network = "host" },
		"Listen":        func(s *sandbox.Spec) { s.Listen = []string{"127.0.0.1:3128"} },
		"Limits.Memory": func(s *sandbox.Spec) { s.Limits.Memory = -1 },
		"Limits.CPUs":   func(s *sandbox.Spec) { s.Limits.CPUs = -0.5 },
		"Limits.PIDs":   func(s *sandbox.Spec) { s.Limits.PIDs = 2 },
		"Label":         func(s *sandbox.Spec) { s.Label = "../x" },
		"Grace":         func(s *sandbox.Spec) { s.Grace = -time.Second },
	} {
		spec := sandbox.Spec{Args: []string{"true"}}
		if err := spec.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&spec)
		err := spec.Validate()
		if e, ok := err.(*sandbox.FieldError); !ok || e.Field != field {
			t.Errorf("got %v, want an error of field %s", err, field)
		}
	}
}

func TestValidateReadsAddresses(t *testing.T) {
	for address, valid := range map[string]bool{
		"127.0.0.1:3128": true, "127.9.8.7:1": true, "[::1]:443": true, "0.0.0.0:80": true, "[::]:80": true,
		"udp/127.0.0.1:53": true, "udp/0.0.0.0:53": true, "udp/[::]:53": true,
		"": false, "127.0.0.1": false, ":80": false, "127.0.0.1:0": false, "127.0.0.1:65536": false, "localhost:80": false,
		"192.0.2.1:80": false, "[::ffff:127.0.0.1]:80": false, "[::1%lo]:80": false, "[fe80::1]:80": false,
		"tcp/127.0.0.1:80": false, "udp/udp/127.0.0.1:80": false, "UDP/127.0.0.1:53": false, "127.0.0.1:80\x00": false,
	} {
		spec := sandbox.Spec{Args: []string{"true"}, Network: sandbox.NetworkGate, Listen: []string{"127.0.0.1:1024", address}}
		err := spec.Validate()
		if e, ok := err.(*sandbox.FieldError); valid != (err == nil) || !valid && (!ok || e.Field != "Listen[1]") {
			t.Errorf("%q: got %v, want valid: %v", address, err, valid)
		}
	}
}

func TestAllowDoesNotChangeTheOriginal(t *testing.T) {
	base := sandbox.Spec{Args: []string{"true"}}.Allow(sandbox.FeatureCPU)
	a, b := base.Allow(sandbox.FeatureMemory), base.Allow(sandbox.FeaturePIDs)
	strict := fixed{sandbox.FeatureFiles}
	for _, c := range []struct {
		spec sandbox.Spec
		has  sandbox.Feature
	}{{a, sandbox.FeaturePIDs}, {b, sandbox.FeatureMemory}} {
		c.spec.Limits = sandbox.Limits{Memory: 1 << 30, PIDs: 100, CPUs: 1}
		_, err := sandbox.Start(t.Context(), strict, c.spec, sandbox.Streams{})
		e, ok := err.(*sandbox.UnsupportedError)
		if !ok || !slices.Contains(e.Missing, c.has) || slices.Contains(e.Missing, sandbox.FeatureCPU) {
			t.Errorf("got %v, want %s missing and cpu allowed", err, c.has)
		}
	}
}
