package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/penstock/backupcmd"
)

// backups are the names of the backups in a directory, oldest first, and those of what else is there.
func (f *fixture) backups(dir string) (backups, other []string) {
	f.Helper()
	entries, err := os.ReadDir(dir)
	f.must(err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "penstock-") {
			backups = append(backups, e.Name())
		} else if e.Name() != ".penstock-backup.lock" {
			other = append(other, e.Name())
		}
	}
	return backups, other
}

// Backups come again and again, each of them verified, while the pool works; as many are kept as
// was asked for, and what else is in the directory stays. A second process is refused.
func TestBackupEvery(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "1")
	dir := t.TempDir()
	f.must(os.WriteFile(filepath.Join(dir, "penstock-notes.backup"), nil, 0o600))
	every := f.start("next backup", "backup", dir, "--every", "1s", "--keep", "2", "-o", "jsonl")
	seen := map[string]bool{}
	f.eventually(90*time.Second, "4 backups were taken", func() bool {
		names, _ := f.backups(dir)
		for _, name := range names {
			seen[name] = true
		}
		return len(seen) >= 4+1 // and the notes
	})
	if out, code, told := f.try("backup", dir); code != cli.ExitUnexpected || !strings.Contains(told, "in use by process") || !strings.Contains(told, "hint") {
		t.Errorf("a second process: %d, %s%s", code, out, told)
	}
	f.run("wait", "--timeout", patience(60), f.submit("echo done >new.txt"))
	f.must(every.Process.Signal(syscall.SIGTERM))
	if err := every.Wait(); err != nil {
		t.Errorf("stopped: %v", err)
	}
	names, other := f.backups(dir)
	if len(names) != 3 || len(other) > 0 || !slices.Contains(names, "penstock-notes.backup") {
		t.Errorf("the directory has %q, and %q", names, other)
	}
	for line := range strings.Lines(every.log.String()) {
		var b backupcmd.Summary
		if strings.HasPrefix(line, "{") && (json.Unmarshal([]byte(line), &b) != nil || !b.Verified) {
			t.Errorf("a backup that was not verified: %s", line)
		}
	}
	f.run("restore", filepath.Join(dir, names[0]), "--dry-run")

	// A restart takes none before it is due.
	again := f.start("next backup", "backup", dir, "--every", "1h")
	f.must(again.Process.Signal(syscall.SIGTERM))
	if err := again.Wait(); err != nil {
		t.Errorf("stopped while it waits: %v", err)
	}
	if now, _ := f.backups(dir); !slices.Equal(now, names) {
		t.Errorf("after a restart the directory has %q, want %q", now, names)
	}
	// What is too old goes, but not the last one there is.
	f.must(os.Remove(filepath.Join(dir, names[1])))
	f.must(os.Rename(filepath.Join(dir, names[0]), filepath.Join(dir, "penstock-20200101T000000Z.backup")))
	f.run("backup", dir, "--keep-for", "30d")
	if now, _ := f.backups(dir); len(now) != 2 || slices.Contains(now, "penstock-20200101T000000Z.backup") {
		t.Errorf("with --keep-for the directory has %q", now)
	}
	if out, code, told := f.try("backup", filepath.Join(dir, "file"), "--every", "1h"); code != cli.ExitUsage || !strings.Contains(told, "mkdir") {
		t.Errorf("--every with a file: %d, %s%s", code, out, told)
	}
}

// A process that takes backups may be killed at any moment: what it leaves is no backup, and the next
// process removes it.
func TestBackupEveryKilled(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "1")
	f.run("wait", "--timeout", patience(60), f.submit("head -c 20000000 /dev/urandom >big.bin"))
	dir := t.TempDir()
	f.run("backup", dir)
	good, _ := f.backups(dir)
	// Once while it writes, and once while it verifies.
	for _, at := range []string{"KV_ps_jobs: ", "OBJ_ps_artifacts: "} {
		p := f.start(at, "backup", dir, "--every", "1ms", "--keep", "1")
		p.kill()
		names, _ := f.backups(dir)
		for _, name := range names {
			f.run("restore", filepath.Join(dir, name), "--dry-run")
		}
		if len(names) == 0 {
			t.Errorf("%s: the backup %s is gone", at, good)
		}
	}
	f.run("backup", dir, "--verify", "--keep", "1")
	if names, other := f.backups(dir); len(names) != 1 || len(other) > 0 {
		t.Errorf("the directory has %q, and %q", names, other)
	}
}
