package pool

import (
	"bytes"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/jobs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// call is a command's shell on a data directory.
func call(t *testing.T, data string) cli.Shell {
	t.Helper()
	cfg, format, progress := cli.Defaults(), cli.Table, cli.ProgressQuiet
	cfg.Data = data
	w := console.New(&bytes.Buffer{}, func(string) string { return "" })
	return cli.Shell{Out: w, Err: w, Config: &cfg, Format: &format, Progress: &progress}
}

// Where no pool runs, a command runs one; another one finds it, and both work with the
// same jobs. When they have closed it, nothing is left.
func TestOpen(t *testing.T) {
	t.Parallel()
	shell := call(t, t.TempDir())
	own, err := Open(t.Context(), shell, "run", Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := own.Close(); err != nil {
			t.Error(err)
		}
	}()
	other, err := Open(t.Context(), shell, "read", Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	}()
	if !own.Own() || other.Own() || other.Owner != "run" {
		t.Errorf("the first runs the broker: %v; the second: %v, and it found that of %q", own.Own(), other.Own(), other.Owner)
	}
	submitted, err := other.Submit(t.Context(), jobs.Job{Isolation: jobs.IsolationNone, Agent: jobs.Agent{Name: "command", Command: []string{"true"}}}, "cli")
	if err != nil {
		t.Fatal(err)
	}
	if rec, err := own.Client.Get(t.Context(), submitted.ID); err != nil || rec.ID != submitted.ID {
		t.Errorf("got %q, %v, want job %s", rec.ID, err, submitted.ID)
	}
}

// A command that only reads makes no data directory for a path that was mistyped.
func TestReadWithoutAPool(t *testing.T) {
	t.Parallel()
	shell := call(t, filepath.Join(t.TempDir(), "mistyped"))
	p, err := Open(t.Context(), shell, "read", Hooks{})
	if cli.Code(err) != cli.ExitNotFound {
		t.Errorf("got %v, %v, want the exit code of what is not found", p, err)
	}
}

func TestRedacted(t *testing.T) {
	t.Parallel()
	for servers, want := range map[string]string{
		"nats://a:4222": "nats://a:4222",
		"nats://user:secret@a:4222,nats://b:4222": "nats://user:xxxxx@a:4222,nats://b:4222",
		"nats://token@a:4222":                     "nats://xxxxx@a:4222",
		"nats://a:secret@%":                       "(not a URL)",
	} {
		if got := Redacted(servers); got != want {
			t.Errorf("%s is shown as %s, want %s", servers, got, want)
		}
	}
}
