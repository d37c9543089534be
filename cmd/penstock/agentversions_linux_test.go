package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha512"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// robot is the program of a package: it tells its version and where it is, and writes wherever it
// must not. A job whose prompt is WAIT goes on until it is ended.
const robot = `#!/bin/sh
echo "robot VERSION at $(command -v robot)"
own=$(readlink -f "$(command -v robot)")
for at in "$own" "${own%/*}/new" "${0%/*}/../package.json" "$(command -v robot)"; do
	if (echo evil >>"$at") 2>/dev/null; then echo "WROTE $at"; fi
done
echo VERSION >version.txt
case $PENSTOCK_PROMPT in WAIT*) echo waits; sleep 600;; esac
`

// A registry serves versions of one package as the registry of npm does.
type registry struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex
	tarballs map[string][]byte
	latest   string        // of them
	hold     atomic.Bool   // tarballs are begun, and never end
	held     chan struct{} // a tarball has begun
	dropped  chan struct{} // npm has gone
}

const robotPackage = "@acme/robot"

func newRegistry(t *testing.T, versions ...string) *registry {
	t.Helper()
	r := &registry{t: t, tarballs: map[string][]byte{}, held: make(chan struct{}, 1), dropped: make(chan struct{}, 1)}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	for _, version := range versions {
		r.publish(version)
	}
	return r
}

// publish adds a version, whose scripts would leave a trace.
func (r *registry) publish(version string) { r.publishAs(version, robot) }

func (r *registry) publishAs(version, program string) {
	described := fmt.Sprintf(`{"name":%q,"version":%q,"bin":{"robot":"robot.sh"},"scripts":{"preinstall":"touch ran","install":"touch ran","postinstall":"touch ran"}}`, robotPackage, version)
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	files := tar.NewWriter(zipped)
	for name, text := range map[string]string{"package.json": described, "robot.sh": strings.ReplaceAll(program, "VERSION", version)} {
		if err := files.WriteHeader(&tar.Header{Name: "package/" + name, Mode: 0o755, Size: int64(len(text))}); err != nil {
			r.t.Fatal(err)
		}
		if _, err := files.Write([]byte(text)); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := files.Close(); err != nil {
		r.t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tarballs[version] = b.Bytes()
	r.latest = version
}

func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	version, tarball := strings.CutPrefix(req.URL.Path, "/tarball/")
	if tarball && r.hold.Load() {
		r.begin(w, req)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if tarball {
		_, _ = w.Write(r.tarballs[version])
		return
	}
	if req.URL.Path != "/"+robotPackage {
		http.Error(w, `{"error":"not found"}`, http.StatusNotFound)
		return
	}
	versions := map[string]any{}
	for version, data := range r.tarballs {
		sum := sha512.Sum512(data)
		versions[version] = map[string]any{
			"name": robotPackage, "version": version, "bin": map[string]string{"robot": "robot.sh"}, "hasInstallScript": true,
			"dist": map[string]string{"tarball": r.URL + "/tarball/" + version, "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])},
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"name": robotPackage, "dist-tags": map[string]string{"latest": r.latest}, "versions": versions})
}

// begin sends the beginning of a tarball, until npm goes away.
func (r *registry) begin(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Length", "100000")
	_, _ = w.Write([]byte{0x1f, 0x8b})
	w.(http.Flusher).Flush()
	r.held <- struct{}{}
	<-req.Context().Done()
	r.dropped <- struct{}{}
}

// versionsFixture is a fixture whose settings have the agent robot, whose package is in a registry
// of the test's own.
func versionsFixture(t *testing.T, versions ...string) (*fixture, *registry) {
	t.Helper()
	needNPM(t)
	f, r := newFixture(t), newRegistry(t, versions...)
	f.robots(r)
	return f, r
}

func needNPM(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		skip(t, "npm", "no npm in PATH, which comes with Node.js")
	}
}

func (f *fixture) robots(r *registry) {
	f.Helper()
	f.env = append(f.env, f.robotSettings(f.TempDir()), "npm_config_registry="+r.URL)
}

// robotSettings writes settings with the agent robot below a directory, and returns the variable by
// which they are found.
func (f *fixture) robotSettings(dir string) string {
	f.Helper()
	f.must(os.Mkdir(filepath.Join(dir, "penstock"), 0o755))
	f.must(os.WriteFile(filepath.Join(dir, "penstock", "config.yaml"),
		[]byte(`agents: {robot: {protocol: command, package: "`+robotPackage+`", command: [robot]}}`), 0o644))
	return "XDG_CONFIG_HOME=" + dir
}

// A versionLine is what agent install and agent versions say of a version.
type versionLine struct {
	Agent, Package, Version, Program, Digest, Changed string
	Bytes                                             int64
	Files                                             int
}

func (f *fixture) versions() []versionLine {
	f.Helper()
	var all []versionLine
	f.must(json.Unmarshal([]byte(f.run("agent", "versions", "-o", "json")), &all))
	return all
}

func (f *fixture) install(what string) versionLine {
	f.Helper()
	var one versionLine
	f.must(json.Unmarshal([]byte(f.run("agent", "install", what, "-o", "json")), &one))
	return one
}

func (f *fixture) robot(version, prompt string, args ...string) string {
	f.Helper()
	return strings.TrimSpace(f.run(append([]string{"submit", "-o", "id", "--repo", f.repo, "--agent", "robot", "--agent-version", version, prompt}, args...)...))
}

// printed is all output of a job's programs.
func (f *fixture) printed(id string) string {
	f.Helper()
	var b strings.Builder
	for _, e := range f.events(id) {
		if e.Raw != nil {
			fmt.Fprintln(&b, e.Raw.Text)
		}
	}
	return b.String()
}

// installed is the directory of a version, which is in use or not.
func (f *fixture) installed(version string) string {
	return filepath.Join(f.data, "agents", "npm", "@acme+robot", version)
}

// Two versions of an agent run side by side, each in jails that cannot change it, and it is known
// afterwards which one it was. No script of a package has run.
func TestVersionsOfAnAgentRunSideBySide(t *testing.T) {
	t.Parallel()
	f, r := versionsFixture(t, "1.0.0", "2.0.0")
	one, two := f.install("robot@1.0.0"), f.install("robot@2.0.0")
	if one.Digest == two.Digest || len(one.Digest) != 64 || one.Package != robotPackage || one.Files < 3 || one.Bytes == 0 {
		t.Errorf("installed are %+v and %+v", one, two)
	}
	if again := f.install("robot@2.0.0"); again.Digest != two.Digest {
		t.Errorf("installed again it is %+v, not %+v", again, two)
	}
	if out := f.run("agent", "ls"); !strings.Contains(out, "1.0.0 2.0.0") {
		t.Errorf("agent ls does not name the versions:\n%s", out)
	}
	f.serve("--slots", "2")
	f.runSideBySide([]versionLine{one, two})
	if files, err := filepath.Glob(filepath.Join(f.data, "agents", "npm", "*", "*", "tree", "node_modules", "@acme", "robot", "ran")); err != nil || len(files) > 0 {
		t.Errorf("scripts of the package ran: %v, %v", files, err)
	}
	f.run("agent", "versions", "--verify")
	r.Close()
	f.env = append(f.env, "npm_config_cache="+t.TempDir(), "npm_config_fetch_retries=0") // else npm knows the package, and waits for a minute
	if _, code, told := f.try("agent", "install", "robot@1.2.3"); code != 7 || !strings.Contains(told, "npm ping") {
		t.Errorf("without a registry the exit code is %d: %s", code, told)
	}
	f.onlyVersions("1.0.0", "2.0.0")
}

// runSideBySide runs a job with each of some versions at the same time.
func (f *fixture) runSideBySide(versions []versionLine, args ...string) {
	f.Helper()
	running := map[string]versionLine{}
	for _, v := range versions {
		running[f.robot(v.Version, "go", args...)] = v
	}
	for id, want := range running {
		f.run("wait", "--timeout", patience(60), id)
		said, rec := f.printed(id), f.record(id)
		if !strings.Contains(said, "robot "+want.Version+" at "+f.installed(want.Version)+"/tree/bin/robot") || strings.Contains(said, "WROTE") {
			f.Errorf("the job with version %s says:\n%s", want.Version, said)
		}
		if rec.AgentVersion != want.Version || !strings.Contains(f.run("job", "diff", id), "+"+want.Version) {
			f.Errorf("the record names version %q, want %s", rec.AgentVersion, want.Version)
		}
		f.wasRun(id, want)
	}
}

//go:embed testdata/versions.sh
var versionsScript []byte

// agentsVariable names a store of agents in which versions of the agent robot are installed.
const agentsVariable = "PENSTOCK_TEST_AGENTS"

// What holds of versions in jails of bubblewrap holds in units of systemd. They are installed here,
// and run in a container that was booted with it.
func TestVersionsOfAnAgentUnderSystemd(t *testing.T) {
	t.Parallel()
	sandboxtest.ContainerRoot(t)
	f, _ := versionsFixture(t, "1.0.0", "2.0.0")
	f.install("robot@1.0.0")
	f.install("robot@2.0.0")
	out := t.TempDir()
	f.must(os.CopyFS(filepath.Join(out, "agents"), os.DirFS(filepath.Join(f.data, "agents"))))
	sandboxtest.Boot(t, out, versionsScript)
	said, err := os.ReadFile(filepath.Join(out, "log"))
	f.must(err)
	if !strings.Contains(string(said), "--- PASS: TestVersionsOfAnAgentAreUnits") {
		t.Errorf("in the container:\n%s", said)
	}
}

// Versions that were installed on another host run in units of systemd.
func TestVersionsOfAnAgentAreUnits(t *testing.T) {
	t.Parallel()
	store := os.Getenv(agentsVariable)
	if store == "" {
		t.Skip("TestVersionsOfAnAgentUnderSystemd boots a container for it")
	}
	f := newFixture(t)
	f.env = append(f.env, f.robotSettings(t.TempDir()))
	f.must(os.MkdirAll(f.data, 0o700))
	f.must(os.CopyFS(filepath.Join(f.data, "agents"), os.DirFS(store)))
	f.run("agent", "versions", "--verify")
	f.serve("--slots", "2")
	all := f.versions()
	f.runSideBySide(all, "--backend", "systemd")
	for _, rec := range f.list() {
		for _, e := range f.events(rec.ID) {
			if e.Kind == jobs.JailStarted && !strings.Contains(string(e.Data), `"backend":"systemd"`) {
				t.Errorf("the jail is %s", e.Data)
			}
		}
	}
	if len(all) != 2 {
		t.Errorf("installed are %+v, want two versions", all)
	}
}

// wasRun wants a version in the job's events, in its result and in its receipt.
func (f *fixture) wasRun(id string, want versionLine) {
	f.Helper()
	for _, e := range f.events(id) {
		if e.Kind == jobs.JailStarted && !strings.Contains(string(e.Data), fmt.Sprintf(`"agent_version":%q,"agent_digest":%q`, want.Version, want.Digest)) {
			f.Errorf("job %s: the jail's event is %s", id, e.Data)
		}
	}
	if out := f.run("wait", id, "-o", "jsonl"); !strings.Contains(out, fmt.Sprintf(`"agent_version":%q,"agent_digest":%q`, want.Version, want.Digest)) {
		f.Errorf("job %s: the result is %s", id, out)
	}
	dir := f.TempDir()
	f.run("job", "artifacts", id, "--out", dir)
	signed, err := os.ReadFile(filepath.Join(dir, "receipt.json"))
	f.must(err)
	var envelope struct{ Payload []byte }
	f.must(json.Unmarshal(signed, &envelope))
	if !strings.Contains(string(envelope.Payload), fmt.Sprintf(`"name":"%s@%s","digest":{"sha256":%q}`, want.Agent, want.Version, want.Digest)) {
		f.Errorf("job %s: the receipt is %s", id, envelope.Payload)
	}
}

// onlyVersions wants nothing in the store but these versions.
func (f *fixture) onlyVersions(versions ...string) {
	f.Helper()
	var found, left []string
	entries, err := os.ReadDir(filepath.Join(f.data, "agents", "npm", "@acme+robot"))
	if !os.IsNotExist(err) {
		f.must(err)
	}
	for _, e := range entries {
		found = append(found, e.Name())
	}
	entries, err = os.ReadDir(filepath.Join(f.data, "agents"))
	f.must(err)
	for _, e := range entries {
		if e.Name() != "npm" {
			left = append(left, e.Name())
		}
	}
	if strings.Join(found, " ") != strings.Join(versions, " ") || len(left) > 0 {
		f.Errorf("the store has the versions %q, want %q, and besides them %q", found, versions, left)
	}
}

// A version has one digest on all hosts, whichever registry it comes from and whatever the user's
// npm is told.
func TestAVersionHasOneDigest(t *testing.T) {
	t.Parallel()
	f, _ := versionsFixture(t, "1.0.0")
	one := f.install("robot@1.0.0")
	other, _ := versionsFixture(t, "1.0.0")
	other.env = append(other.env, "npm_config_omit_lockfile_registry_resolved=true", "npm_config_package_lock=true")
	if two := other.install("robot@1.0.0"); two.Digest != one.Digest || two.Files != one.Files {
		t.Errorf("installed from two registries are %+v and %+v", one, two)
	}
}

// A job waits for its version, and no attempt of it is lost meanwhile. It begins when the version
// is there, without a restart of the worker.
func TestAJobWaitsForTheVersionOfItsAgent(t *testing.T) {
	t.Parallel()
	f, r := versionsFixture(t, "1.0.0")
	for what, want := range map[string]struct {
		code int
		told string
	}{
		"robot@9.9.9":   {5, "npm view " + robotPackage + " versions"},
		"robot@latest":  {2, "name one exactly"},
		"robot":         {2, "name one exactly"},
		"nothing@1.0.0": {5, "penstock agent ls"},
		"acp@1.0.0":     {2, "agents.acp.package"},
	} {
		if _, code, told := f.try("agent", "install", what); code != want.code || !strings.Contains(told, want.told) {
			t.Errorf("agent install %s: exit code %d, want %d: %s", what, code, want.code, told)
		}
	}
	for args, want := range map[string]int{
		"--agent robot --agent-version ^1.0.0":          2,
		"--agent-version 1.0.0 -- true":                 2,
		"--agent robot --agent-version 1.0.0 --dry-run": 0,
		"--agent acp --agent-version 1.0.0 --dry-run":   0, // which the pool refuses
	} {
		if _, code, told := f.try(append([]string{"submit", "--repo", f.repo, "x"}, strings.Fields(args)...)...); code != want {
			t.Errorf("submit %s: exit code %d, want %d: %s", args, code, want, told)
		}
	}
	if _, code, told := f.try("run", "--repo", f.repo, "--agent", "robot", "--agent-version", "1.0.0", "x"); code != 5 || !strings.Contains(told, "penstock agent install robot@1.0.0") {
		t.Errorf("run without the version: exit code %d: %s", code, told)
	}
	f.serve("--slots", "1")
	id := f.robot("2.0.0", "go")
	f.eventually(60*time.Second, "the pool says what the job waits for", func() bool {
		return strings.Contains(f.run("why", id), "penstock agent install robot@2.0.0")
	})
	r.publish("2.0.0")
	f.install("robot@2.0.0")
	f.run("wait", "--timeout", patience(60), id)
	if rec := f.record(id); rec.Outcome != jobs.Success || rec.Attempt != 1 {
		t.Errorf("the job ended as %s after attempt %d: %s", rec.Outcome, rec.Attempt, rec.Message)
	}
}

// A version whose files were changed is not started, and costs no job an attempt. Installed anew
// it is used again.
func TestAVersionThatWasChangedIsNotStarted(t *testing.T) {
	t.Parallel()
	f, _ := versionsFixture(t, "1.0.0")
	f.install("robot@1.0.0")
	f.serve("--slots", "1")
	f.run("wait", "--timeout", patience(60), f.robot("1.0.0", "go")) // its files are known to the worker by now
	program := filepath.Join(f.installed("1.0.0"), "tree", "node_modules", "@acme", "robot", "robot.sh")
	file, err := os.OpenFile(program, os.O_APPEND|os.O_WRONLY, 0)
	f.must(err)
	_, err = file.WriteString("echo TAMPERED\n")
	f.must(err)
	f.must(file.Close())
	id := f.robot("1.0.0", "go")
	f.eventually(60*time.Second, "the attempt ends", func() bool {
		rec := f.record(id)
		return rec.Reason == jobs.AgentVersion && rec.State != jobs.Executing
	})
	if rec := f.record(id); rec.Counted != 0 || !strings.Contains(rec.Message, "node_modules/@acme/robot/robot.sh has changed") {
		t.Errorf("%d attempts count; the message is %q", rec.Counted, rec.Message)
	}
	if out, code, told := f.try("agent", "versions", "--verify"); code != 1 || !strings.Contains(out, "changed") || !strings.Contains(told, "robot.sh has changed") {
		t.Errorf("versions --verify: exit code %d\n%s%s", code, out, told)
	}
	f.run("agent", "remove", "robot@1.0.0")
	f.onlyVersions()
	f.install("robot@1.0.0")
	f.run("wait", "--timeout", patience(90), id)
	if rec := f.record(id); rec.Outcome != jobs.Success || rec.Counted != 0 || strings.Contains(f.printed(id), "TAMPERED") {
		t.Errorf("the job ended as %s, with %d attempts that count: %s", rec.Outcome, rec.Counted, f.printed(id))
	}
}

// A version that a job runs with is not removed.
func TestAVersionInUseIsNotRemoved(t *testing.T) {
	t.Parallel()
	f, _ := versionsFixture(t, "1.0.0")
	f.install("robot@1.0.0")
	f.serve("--slots", "1")
	id := f.robot("1.0.0", "WAIT")
	f.eventually(60*time.Second, "the agent runs", func() bool { return strings.Contains(f.printed(id), "waits") })
	if _, code, told := f.try("agent", "remove", "robot@1.0.0"); code != 1 || !strings.Contains(told, "in use by a job") {
		t.Errorf("remove: exit code %d: %s", code, told)
	}
	f.run("job", "cancel", id)
	f.try("wait", "--timeout", patience(60), id)
	f.eventually(60*time.Second, "the worker has let go of it", func() bool {
		_, code, told := f.try("agent", "remove", "robot@1.0.0")
		if code != 0 && !strings.Contains(told, "in use") {
			t.Fatalf("remove: exit code %d: %s", code, told)
		}
		return code == 0
	})
	f.onlyVersions()
	if _, code, told := f.try("agent", "remove", "robot@1.0.0"); code != 5 {
		t.Errorf("removed again: exit code %d: %s", code, told)
	}
}

// An installation that is killed leaves nothing that counts as installed, npm ends with it, and
// the next one removes what it left.
func TestAKilledInstallationLeavesNothing(t *testing.T) {
	t.Parallel()
	f, r := versionsFixture(t, "1.0.0")
	r.hold.Store(true)
	p := f.command("agent", "install", "robot@1.0.0")
	f.must(p.Start())
	<-r.held
	f.must(p.Process.Kill())
	_ = p.Wait() // killed
	<-r.dropped
	if all := f.versions(); len(all) > 0 {
		t.Errorf("what was killed is installed: %+v", all)
	}
	r.hold.Store(false)
	f.install("robot@1.0.0")
	f.onlyVersions("1.0.0")
	f.run("agent", "versions", "--verify")
}

// Two who install the same version at once both have it.
func TestTwoInstallOneVersionAtOnce(t *testing.T) {
	t.Parallel()
	f, _ := versionsFixture(t, "1.0.0", "2.0.0")
	var g sync.WaitGroup
	for _, what := range []string{"robot@1.0.0", "robot@1.0.0", "robot@2.0.0"} {
		g.Go(func() {
			if _, code, told := f.try("agent", "install", what); code != 0 {
				t.Errorf("install %s: exit code %d: %s", what, code, told)
			}
		})
	}
	g.Wait()
	f.onlyVersions("1.0.0", "2.0.0")
	f.run("agent", "versions", "--verify")
}

// A user without rights installs and runs versions in a data directory of their own.
func TestAnyUserInstallsVersions(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user; for any other user the tests beside this one show it")
	}
	f, _ := versionsFixture(t, "1.0.0")
	const other = 65534
	home, err := os.MkdirTemp("/opt", "penstock-test-") //nolint:usetesting // open to other users
	f.must(err)
	t.Cleanup(func() { os.RemoveAll(home) })
	f.must(os.Chmod(home, 0o755))
	bin, own := filepath.Join(home, "bin"), filepath.Join(home, "own")
	f.must(os.Mkdir(bin, 0o755))
	f.program = filepath.Join(bin, "penstock")
	copyProgram(t, lookPath(t, "penstock"), f.program)
	settings := f.robotSettings(home)
	f.must(os.Mkdir(own, 0o700))
	f.must(os.Chown(own, other, other))
	for _, args := range [][]string{{"agent", "install", "robot@1.0.0"}, {"run", "--isolation", "none", "--agent", "robot", "--agent-version", "1.0.0", "-o", "jsonl", "x"}} {
		cmd := f.command(args...)
		cmd.Dir = own
		cmd.Env = append(cmd.Env, settings, "PENSTOCK_DATA="+filepath.Join(own, "data"), "HOME="+own, "TMPDIR="+own, "PATH="+bin+":/usr/local/bin:/usr/bin:/bin")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: other, Gid: other}}
		out, err := cmd.CombinedOutput()
		if err != nil || args[0] == "run" && (!strings.Contains(string(out), "robot 1.0.0 at "+own) || strings.Contains(string(out), "WROTE")) {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
}

// In a container the version is the one of the host, whatever the image has.
func TestAVersionInAContainer(t *testing.T) {
	t.Parallel()
	needNPM(t)
	f := containerFixture(t)
	f.robots(newRegistry(t, "1.0.0"))
	f.install("robot@1.0.0")
	out := f.run("run", "--repo", f.repo, "--isolation", "container", "--image", containerImage, "--agent", "robot", "--agent-version", "1.0.0", "-o", "jsonl", "x")
	if !strings.Contains(out, "robot 1.0.0 at "+f.installed("1.0.0")) || strings.Contains(out, "WROTE") {
		t.Errorf("the agent says:\n%s", out)
	}
	f.run("agent", "versions", "--verify")
}

// The newest versions of an agent are installed and tested, and a table tells what changes between
// them and from what was kept of an earlier run.
func TestDriftOfAnAgent(t *testing.T) {
	t.Parallel()
	requireJail(t)
	f, r := versionsFixture(t, "1.0.0", "2.0.0", "10.0.0", "10.0.0-linux-x64")
	kept := filepath.Join(t.TempDir(), "robot.json")
	out, code, told := f.try("agent", "drift", "robot", "--newest", "2", "--only", "prompt,isolation", "--write", kept)
	if code != 1 || !strings.Contains(told, "2.0.0: workspace") || !strings.Contains(told, "10.0.0: workspace") {
		t.Errorf("versions that leave litter: exit code %d: %s", code, told)
	}
	for _, line := range []string{"|  | 2.0.0 | 10.0.0 |", "| `workspace` | **failed**: it left version.txt | **failed**: it left version.txt |"} {
		if !strings.Contains(out, line) {
			t.Errorf("the table lacks %q:\n%s", line, out)
		}
	}
	for known, want := range map[string]int{"2.0.0:workspace,10.0.0:workspace": 0, "2.0.0:workspace": 1, "10.0.0:workspace,2.0.0:prompt": 1} {
		out, code, told := f.try("agent", "drift", "robot", "2.0.0", "10.0.0", "--only", "workspace", "--known", known)
		if code != want || !strings.Contains(out, "| **failed**: it left version.txt | **failed**: it left version.txt |") {
			t.Errorf("known to fail are %s: exit code %d, want %d: %s%s", known, code, want, out, told)
		}
	}
	f.onlyVersions("10.0.0", "2.0.0")
	r.publishAs("11.0.0", "#!/bin/sh\necho tidy VERSION\n")
	out = f.run("agent", "drift", "robot", "--newest", "1", "--only", "prompt,isolation", "--kept", kept)
	if !strings.Contains(out, "|  | 10.0.0 (kept) | 11.0.0 |") || !strings.Contains(out, "| `workspace` | **failed**: it left version.txt | yes |") {
		t.Errorf("the table is\n%s", out)
	}
	var reports []struct{ Version string }
	f.must(json.Unmarshal([]byte(f.run("agent", "drift", "robot", "11.0.0", "--only", "prompt", "-o", "json")), &reports))
	if len(reports) != 1 || reports[0].Version != "11.0.0" {
		t.Errorf("the reports are %+v", reports)
	}
	for what, args := range map[string][]string{
		"is no check":               {"robot", "--only", "nonsense"},
		"has no result":             {"claude", "--kept", kept},
		`"1.0.0:x" is no version`:   {"robot", "--known", "1.0.0:x"},
		`"workspace" is no version`: {"robot", "--known", "workspace"},
	} {
		if _, code, told := f.try(append([]string{"agent", "drift"}, args...)...); code != 2 || !strings.Contains(told, what) {
			t.Errorf("agent drift %q: exit code %d: %s", args, code, told)
		}
	}
}

// realVersions are two versions of each real agent in its registry.
var realVersions = map[string][]string{
	"claude":   {"2.1.331", "2.1.332"},
	"codex":    {"0.168.0", "0.169.0"},
	"gemini":   {"0.60.0", "0.61.0"},
	"opencode": {"1.18.32", "1.18.33"},
}

// Two versions of a real agent, from its registry, run a job each: by PENSTOCK_TEST_AGENT_VERSIONS
// of the agents that it names, else of the one with which this is the fastest.
func TestTwoVersionsOfRealAgents(t *testing.T) {
	t.Parallel()
	needNPM(t)
	if out, err := exec.Command("npm", "view", "@openai/codex@0.168.0", "version").CombinedOutput(); err != nil {
		skip(t, "npm", "the registry of npm cannot be reached: %v: %s", err, out)
	}
	wanted := cmp.Or(os.Getenv("PENSTOCK_TEST_AGENT_VERSIONS"), "codex")
	for _, agent := range realAgents {
		if !slices.Contains(strings.Split(wanted, ","), agent.name) {
			continue
		}
		t.Run(agent.name, func(t *testing.T) {
			t.Parallel()
			agent.versions(t, realVersions[agent.name])
		})
	}
}

// versions installs versions of an agent, and runs a job with each.
func (a realAgent) versions(t *testing.T, versions []string) {
	f, _ := a.pool(t, func(func(string) agenttest.Step) []agenttest.Step {
		return []agenttest.Step{
			// Gemini CLI runs no command with another one in $(…).
			a.shell(a.name + " --version >version.txt; command -v " + a.name + " | xargs readlink -f | (read at; echo evil >>$at && echo wrote >version.txt); cat version.txt"),
			agenttest.Say("done"),
		}
	})
	cache, err := exec.Command("npm", "config", "get", "cache").Output()
	f.must(err)
	f.env = append(f.env, "npm_config_cache="+strings.TrimSpace(string(cache))) // of the user, since these are large
	for _, version := range versions {
		began := time.Now()
		v := f.install(a.name + "@" + version)
		t.Logf("%s@%s: %d files, %d MiB, installed in %.1f s", a.name, version, v.Files, v.Bytes>>20, time.Since(began).Seconds())
	}
	f.serve("--slots", "2")
	var began []talk
	all := f.versions()
	for _, v := range all {
		began = append(began, a.begin(f, "--agent-version", v.Version))
	}
	for i, k := range began {
		f.run("wait", "--timeout", patience(90), k.id)
		if diff := f.run("job", "diff", k.id); !strings.Contains(diff, all[i].Version) || strings.Contains(diff, "+wrote") {
			t.Errorf("version %s ran as\n%s", all[i].Version, diff)
		}
		f.wasRun(k.id, all[i])
	}
	if len(began) != 2 {
		t.Errorf("%d versions are installed, want 2", len(began))
	}
	f.run("agent", "versions", "--verify")
}
