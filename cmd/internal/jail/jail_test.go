package jail

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/policy"
)

func parse(t *testing.T, args ...string) *Flags {
	t.Helper()
	var f Flags
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f.Add(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return &f
}

func TestFlags(t *testing.T) {
	got, err := parse(t, "--backend", "bwrap", "--preset", "offline", "--network", "allowlist", "--allow-host", "a,b", "--memory", "1GiB",
		"--disk", "2GiB", "--output-rate", "3KiB", "--traffic", "4KiB", "--pids", "5", "--allow-weaker", "memory").Sandbox()
	want := jobs.Sandbox{Backend: "bwrap", Preset: "offline", Network: jobs.NetworkAllowlist, AllowHosts: []string{"a", "b"}, AllowWeaker: []string{"memory"}}
	want.Limits.Memory, want.Limits.Disk, want.Limits.OutputRate, want.Limits.Traffic, want.Limits.PIDs = 1<<30, 2<<30, 3<<10, 4<<10, 5
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := parse(t).Sandbox(); err != nil || !reflect.DeepEqual(got, jobs.Sandbox{}) {
		t.Errorf("without flags: %+v, %v", got, err)
	}
	for _, flag := range []string{"memory", "disk", "output-rate", "traffic"} {
		_, err := parse(t, "--"+flag, "much").Sandbox()
		if cli.Code(err) != cli.ExitUsage || !strings.Contains(err.Error(), "--"+flag+": ") {
			t.Errorf("--%s much: %v", flag, err)
		}
	}
	if _, err := parse(t, "--env", "A").ParseEnv(); cli.Code(err) != cli.ExitUsage || !strings.Contains(err.Error(), `--env: "A" is not NAME=VALUE`) {
		t.Errorf("--env A: %v", err)
	}
}

func TestLoadPolicy(t *testing.T) {
	cfg := cli.Defaults()
	if p, err := LoadPolicy(&cfg); err != nil || p.File() != "" {
		t.Errorf("without one: %q, %v", p.File(), err)
	}
	cfg.Policy = filepath.Join(t.TempDir(), "policy.yaml")
	if _, err := LoadPolicy(&cfg); cli.Code(err) != cli.ExitUsage {
		t.Errorf("a file that is not there: %v", err)
	}
	if err := os.WriteFile(cfg.Policy, []byte("network: none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if p, err := LoadPolicy(&cfg); err != nil || p.File() != cfg.Policy {
		t.Errorf("got %q, %v", p.File(), err)
	}
}

// A violation is stored in the data directory, or reported where it cannot be.
func TestKeep(t *testing.T) {
	var said bytes.Buffer
	report := func(err error) { said.WriteString(err.Error()) }
	cfg := cli.Config{Data: t.TempDir()}
	store := Violations(&cfg)
	Keep(store, report)(policy.Violation{Kind: policy.KindHost, What: "example.org:443"})
	if found, err := store.Find(policy.Query{}); err != nil || len(found) != 1 || said.Len() > 0 {
		t.Errorf("stored %v, %v, said %q", found, err, said.String())
	}
	cfg.Data = filepath.Join(cfg.Data, "violations.jsonl")
	Keep(Violations(&cfg), report)(policy.Violation{Kind: policy.KindHost})
	if !strings.Contains(said.String(), "not a directory") {
		t.Errorf("said %q", said.String())
	}
}
