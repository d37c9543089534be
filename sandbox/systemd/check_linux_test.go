package systemd

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox"
)

// report is what the script says in a good jail.
const report = `ns-pid pid:[1]
ns-net net:[2]
ns-ipc ipc:[3]
ns-user user:[4]
ns-mnt mnt:[5]
ns-uts uts:[6]
Uid: 1000	1000	1000	1000
CapPrm: 0000000000000000
CapEff: 0000000000000000
NoNewPrivs: 1
Max file size             3145728              3145728              bytes
Max open files            99                   99                   files
processes 3
interface lo:
end of report
`

func TestEveryWallThatHasFallenIsNamed(t *testing.T) {
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Skip(err)
	}
	for _, c := range []struct{ from, to, want string }{
		{"", "", ""},
		{"net:[2]", own, "no net namespace"},
		{"ns-user user:[4]\n", "", "no user namespace"},
		{"processes 3", "processes 140", "140 processes"},
		{"interface lo:", "interface lo:\ninterface eth0:", "interface eth0"},
		{"interface lo:\n", "", "no loopback"},
		{"end of", "sees /root\nend of", "sees /root"},
		{"end of", "writes /usr\nend of", "write to /usr"},
		{"end of", "cannot-write /tmp\nend of", "cannot write to /tmp"},
		{"end of", "fills /tmp\nend of", "fill /tmp"},
		{"end of", "set-uid /tmp/s\nend of", "set-uid"},
		{"Uid: 1000", "Uid: 0", "user 0"},
		{"CapEff: 0000000000000000", "CapEff: 0000000000200000", "capabilities"},
		{"CapPrm: 0000000000000000\n", "", "capabilities"},
		{"NoNewPrivs: 1", "NoNewPrivs: 0", "gain privileges"},
	} {
		seen, err := observe(strings.NewReader(strings.Replace(report, c.from, c.to, 1)))
		if err != nil {
			t.Fatal(err)
		}
		got := seen.fallen()
		if (c.want == "") != (len(got) == 0) || !strings.Contains(strings.Join(got, "; "), c.want) {
			t.Errorf("with %q: got %q, want %q", c.to, got, c.want)
		}
	}
	if _, err := observe(strings.NewReader(strings.TrimSuffix(report, "end of report\n"))); err == nil {
		t.Error("a report without its end was accepted")
	}
}

func TestALimitCountsOnlyWhereItIsInForce(t *testing.T) {
	root := t.TempDir()
	write := func(file, content string) {
		t.Helper()
		path := filepath.Join(root, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content+"\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if got := inForce(root, "/u"); len(got) > 0 {
		t.Errorf("without a control group: got %v", got)
	}
	write("u/memory.max", "max")
	write("u/memory.swap.max", "0")
	write("u/pids.max", "115")
	write("u/cpu.max", "90000 100000")
	write("u/cpu.weight", "77")
	want := []sandbox.Feature{sandbox.FeaturePIDs, sandbox.FeatureCPU, sandbox.FeatureCPUWeight}
	if got := inForce(root, "/u"); !slices.Equal(got, want) {
		t.Errorf("version 2, memory not limited: got %v, want %v", got, want)
	}
	write("u/memory.max", "103809024")
	if got := inForce(root, "/u"); !slices.Contains(got, sandbox.FeatureMemory) {
		t.Errorf("version 2: got %v", got)
	}
	write("pids/v1/pids.max", "115")
	write("cpu/v1/cpu.cfs_quota_us", "90000")
	want = []sandbox.Feature{sandbox.FeaturePIDs, sandbox.FeatureCPU}
	if got := inForce(root, "/v1"); !slices.Equal(got, want) {
		t.Errorf("version 1: got %v, want %v", got, want)
	}
}

func TestFailuresNameTheWayOut(t *testing.T) {
	for said, want := range map[string]string{
		"Unknown assignment: PrivateIPC=yes":                     "250 or newer",
		"Failed to connect to bus: No such file or directory":    "dbus",
		"Main processes terminated with: code=exited/status=217": "",
	} {
		if got := wayOut(said, 0); !strings.Contains(got, want) || (want == "" && got != "") {
			t.Errorf("%q: got %q, want %q", said, got, want)
		}
	}
	if got := wayOut("Failed to connect to bus: Connection refused", 1000); !strings.Contains(got, "loginctl enable-linger 1000") {
		t.Errorf("as a user: got %q", got)
	}
	if got := (tools{user: 4_000_000}).reachable(); got == nil {
		t.Error("a user who does not exist has a manager")
	}
}

func TestUnitsAreNamedByTheirTokens(t *testing.T) {
	list := "penstock-job.1_4pis-17-99-1.service loaded active running a jail of penstock\n" +
		"penstock-_4pis-17-99-2.service loaded failed failed a jail of penstock\n\n"
	if got := tokens(list); !slices.Equal(got, []string{"job.1_4pis-17-99-1", "_4pis-17-99-2"}) {
		t.Errorf("got %q", got)
	}
}

// A worker asks for leftovers on every host.
func TestWithoutAManagerNothingIsKept(t *testing.T) {
	if kept, err := (&Backend{Path: "/nowhere/systemd-run"}).Kept(t.Context()); (tools{user: os.Geteuid()}).reachable() != nil && (err != nil || len(kept) > 0) {
		t.Errorf("got %q, err %v", kept, err)
	}
}
