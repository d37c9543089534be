package installcmd

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/deploy/systemd"
)

// A host is a root directory that the command is called on.
type host struct {
	*testing.T
	root string
}

func newHost(t *testing.T) host {
	t.Parallel()
	return host{t, t.TempDir()}
}

// call returns what the command prints, and its error.
func (h host) call(args ...string) (string, error) {
	h.Helper()
	cfg, format, progress := cli.Defaults(), cli.JSON, cli.ProgressQuiet
	var out bytes.Buffer
	w := console.New(&out, func(string) string { return "" })
	cmd := New(cli.Shell{Out: w, Err: w, Config: &cfg, Format: &format, Progress: &progress})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append([]string{"--root", h.root, "--program", "/usr/local/bin/penstock"}, args...))
	err := cmd.Execute()
	return out.String(), err
}

// changes installs, and returns what happened to each file, in their order.
func (h host) changes(args ...string) string {
	h.Helper()
	out, err := h.call(append(args, "--systemd")...)
	if err != nil {
		h.Fatal(err)
	}
	var plan []planned
	if err := json.Unmarshal([]byte(out), &plan); err != nil {
		h.Fatal(err)
	}
	var words []string
	for _, p := range plan {
		words = append(words, p.Change)
	}
	return strings.Join(words, " ")
}

func (h host) read(path string) string {
	h.Helper()
	text, err := os.ReadFile(filepath.Join(h.root, path))
	if err != nil {
		h.Fatal(err)
	}
	return string(text)
}

func (h host) write(path, text string) {
	h.Helper()
	if err := os.WriteFile(filepath.Join(h.root, path), []byte(text), 0o644); err != nil {
		h.Fatal(err)
	}
}

// expect compares what happened to the files: unit, user, directories, settings.
func (h host) expect(got, want string) {
	h.Helper()
	if got != want {
		h.Errorf("files are %s, want %s", got, want)
	}
}

const unit = "/etc/systemd/system/penstock-worker.service"

// Installing again changes nothing; what an earlier version has written is replaced by
// what this one would write. Settings stay.
func TestInstallAgain(t *testing.T) {
	h := newHost(t)
	h.expect(h.changes("--worker"), "created created created created")
	if text := h.read(unit); !strings.Contains(text, "\nExecStart=/usr/local/bin/penstock worker ") || strings.Contains(text, packaged) {
		t.Errorf("the unit does not start the program that was named:\n%s", text)
	}
	h.expect(h.changes("--worker"), "unchanged unchanged unchanged unchanged")
	h.write("/etc/penstock/worker.yaml", "server: nats://broker.example\n")
	h.write(unit, seal("[Service]\n# of an earlier version\n"))
	h.expect(h.changes("--worker"), "updated unchanged unchanged kept")
	if text := h.read(unit); strings.Contains(text, "earlier") {
		t.Errorf("the unit is still\n%s", text)
	}
	h.expect(h.changes(), "created created created created")
	err := fs.WalkDir(os.DirFS(h.root), ".", func(path string, _ fs.DirEntry, err error) error {
		if strings.Contains(path, ".penstock-") {
			t.Errorf("left behind: %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A file that was changed by hand is replaced only by force. Without it nothing is written.
func TestInstallKeepsChanges(t *testing.T) {
	h := newHost(t)
	h.changes("--worker")
	users := "/etc/sysusers.d/penstock-worker.conf"
	h.write(users, seal("u earlier\n"))
	h.write("/etc/penstock/worker.yaml", "log: {level: debug}\n")
	for name, mine := range map[string]string{"a line more": h.read(unit) + "Nice=5\n", "another file": "[Service]\n", "masked": ""} {
		h.write(unit, mine)
		_, err := h.call("--systemd", "--worker")
		if err == nil || !strings.Contains(err.Error(), unit+" was changed by hand") {
			t.Errorf("%s: got %v", name, err)
		}
		if h.read(unit) != mine || h.read(users) != seal("u earlier\n") {
			t.Errorf("%s: something was written", name)
		}
	}
	h.expect(h.changes("--worker", "--force"), "replaced updated unchanged kept")
	if got := h.read("/etc/penstock/worker.yaml"); got != "log: {level: debug}\n" {
		t.Errorf("settings are now\n%s", got)
	}
}

func TestInstallRefuses(t *testing.T) {
	h := newHost(t)
	for want, args := range map[string][]string{
		"--systemd is missing":              {},
		"not an absolute path":              {"--systemd", "--program", "penstock"},
		"letters, digits":                   {"--systemd", "--program", "/opt/my tools/penstock"},
		"a service does not see /home/me/p": {"--systemd", "--program", "/home/me/p"},
		"a service does not see /tmp/p":     {"--systemd", "--program", "/tmp/p"},
	} {
		_, err := h.call(args...)
		if cli.Code(err) != cli.ExitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", args, err, want)
		}
	}
	if left, err := os.ReadDir(h.root); err != nil || len(left) > 0 {
		t.Errorf("it wrote %v, %v", left, err)
	}
}

// What is printed is what is written, and printing writes nothing.
func TestInstallPrints(t *testing.T) {
	h := newHost(t)
	out, err := h.call("--systemd", "--print")
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(h.root); err != nil || len(left) > 0 {
		t.Errorf("it wrote %v, %v", left, err)
	}
	var files []file
	if err := json.Unmarshal([]byte(out), &files); err != nil {
		t.Fatal(err)
	}
	h.changes()
	for _, f := range files {
		if got := h.read(f.Path); got != f.Content {
			t.Errorf("%s was written as\n%s", f.Path, got)
		}
	}
	if len(files) != 4 {
		t.Errorf("%d files", len(files))
	}
}

// A comment of a unit names no program, or that of the package would be replaced in it; and
// the settings that begin a service are settings of this program.
func TestFiles(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"penstock.service", "penstock-worker.service"} {
		text, err := systemd.Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), packaged); n != 1 {
			t.Errorf("%s names the program %d times", name, n)
		}
	}
	for _, name := range []string{"server.yaml", "worker.yaml"} {
		text, err := systemd.Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		// With the examples that are comments, too.
		text = regexp.MustCompile(`(?m)^# (\w+:| )`).ReplaceAll(text, []byte("$1"))
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		cfg := cli.Defaults()
		if err := cfg.Load(New(cli.Shell{Config: &cfg}).Flags(), file, nil); err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
}
