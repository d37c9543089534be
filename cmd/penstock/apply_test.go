package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox/exectest"
)

// programs are the settings of git that name a program, with %s for it. Those
// with a name in the middle are called for by an attribute, a remote or a
// command of that name.
var programs = []string{
	"filter.fmt.clean=%s", "filter.fmt.smudge=%s",
	"filter.info.smudge=%s", "filter.info.clean=%s", "filter.glob.smudge=%s", "filter.glob.clean=%s", "filter.lfs.smudge=%s", "filter.lfs.process=%s", "filter.lfs.required=true",
	"diff.external=%s", "diff.fmt.command=%s", "diff.fmt.textconv=%s", "diff.guitool=trap", "difftool.trap.cmd=%s",
	"merge.fmt.driver=%s", "merge.default=fmt", "merge.tool=trap", "mergetool.trap.cmd=%s", "mergetool.trap.path=%s",
	"core.fsmonitor=%s", "core.hooksPath=tools/hooks", "core.editor=%s", "sequence.editor=%s", "core.pager=%s",
	"core.sshCommand=%s", "core.askPass=%s", "core.gitProxy=%s", "core.alternateRefsCommand=%s",
	"pager.apply=%s", "pager.diff=%s", "pager.status=%s", "pager.config=%s", "pager.rev-parse=%s", "interactive.diffFilter=%s",
	"alias.apply=!%s", "alias.status=!%s", "alias.read-tree=!%s", "alias.rev-parse=!%s", "alias.trap=!%s",
	"gpg.program=%s", "gpg.openpgp.program=%s", "gpg.ssh.program=%s", "gpg.ssh.defaultKeyCommand=%s", "gpg.x509.program=%s",
	"gpg.format=ssh", "commit.gpgSign=true", "tag.gpgSign=true", "log.showSignature=true", "merge.verifySignatures=true", "push.gpgSign=true",
	"credential.helper=!%s", "credential.https://example.org.helper=%s",
	"remote.origin.url=ext::%s", "remote.origin.uploadpack=%s", "remote.origin.receivepack=%s", "remote.origin.vcs=trap", "protocol.ext.allow=always",
	"remote.origin.promisor=true", "extensions.partialClone=origin",
	"submodule.sub.update=!%s", "submodule.recurse=true", "uploadpack.packObjectsHook=%s",
	"trailer.fmt.command=%s", "trailer.fmt.cmd=%s", "web.browser=trap", "browser.trap.cmd=%s", "man.trap.cmd=%s", "help.browser=trap",
	"tar.trap.command=%s", "sendemail.smtpServer=%s", "sendemail.toCmd=%s", "imap.tunnel=%s", "guitool.trap.cmd=%s", "init.templateDir=tools",
	"hook.trap.command=%s", "hook.trap.event=post-checkout", "hook.second.command=%s", "hook.second.event=reference-transaction",
	"core.attributesFile=tools/attributes", "gc.auto=1", "gc.recentObjectsHook=%s", "maintenance.auto=true", "fetch.writeCommitGraph=true",
}

var gitHooks = strings.Fields(`applypatch-msg pre-applypatch post-applypatch pre-commit pre-merge-commit prepare-commit-msg commit-msg post-commit
	pre-rebase post-checkout post-merge pre-push pre-receive update proc-receive post-receive post-update reference-transaction push-to-checkout
	pre-auto-gc post-rewrite sendemail-validate fsmonitor-watchman post-index-change`)

// arm makes a repository whose configuration, and that of its user, names
// programs of the repository wherever git takes one. Each of them leaves a mark.
func (f *fixture) arm(mark string) {
	f.Helper()
	for _, dir := range []string{"tools/hooks", "tools/absolute", ".git/hooks"} {
		f.must(os.MkdirAll(filepath.Join(f.repo, dir), 0o755))
	}
	write := func(name, text string, mode os.FileMode) {
		f.must(os.WriteFile(filepath.Join(f.repo, name), []byte(text), mode))
	}
	harmless, trap := "#!/bin/sh\nexec cat\n", fmt.Sprintf("#!/bin/sh\necho \"$0 $*\" >> %s\nexec cat\n", mark)
	write("tools/fmt.sh", harmless, 0o755)
	write("tools/attributes", "*.glob filter=glob\n", 0o644)
	write(".gitattributes", "*.lfs filter=lfs\n", 0o644)
	write("data.lfs", "pointer\n", 0o644)
	for _, hook := range gitHooks {
		write("tools/hooks/"+hook, harmless, 0o755)
	}
	write(".git/info/attributes", "*.info filter=info\n", 0o644)
	f.git("-C", f.repo, "add", "-A")
	f.git("-C", f.repo, "commit", "-qm", "tools")
	for _, hook := range gitHooks {
		write(".git/hooks/"+hook, trap, 0o755)
	}
	absolute := filepath.Join(f.TempDir(), "trap")
	f.must(exectest.WriteFile(absolute, []byte(trap), 0o755))
	global := filepath.Join(f.TempDir(), "gitconfig")
	for _, entry := range programs {
		key, value, _ := strings.Cut(entry, "=")
		theirs, ours := value, value
		if strings.Contains(value, "%s") {
			theirs, ours = fmt.Sprintf(value, "./tools/fmt.sh"), fmt.Sprintf(value, absolute)
		}
		f.git("-C", f.repo, "config", key, theirs)
		f.git("config", "--file", global, key, ours)
	}
	f.env = append(f.env, "GIT_CONFIG_GLOBAL="+global)
	for _, name := range []string{"GIT_EXTERNAL_DIFF", "GIT_PAGER", "PAGER", "GIT_EDITOR", "EDITOR", "VISUAL", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_ASKPASS", "SSH_ASKPASS", "GIT_PROXY_COMMAND"} {
		f.env = append(f.env, name+"="+absolute)
	}
}

// hostile is what an agent does to run its program outside of the jail.
const hostile = `printf '#!/bin/sh\necho "agent: $0 $*" >> %[1]s\nexec cat\n' > tools/fmt.sh
for hook in tools/hooks/post-*; do cp tools/fmt.sh $hook; done
printf '* filter=fmt diff=fmt merge=fmt\n*.lfs filter=lfs\n' > .gitattributes
printf '* filter=fmt\n' > tools/attributes
echo large > data.lfs; echo x > x.info; echo x > x.glob
echo changed > dir0/file0.txt; echo fresh > dir0/fresh.txt; %[2]s`

// TestAgentsProgramsDoNotRun goes through all doors by which what an agent
// wrote gets into a repository of the user's.
func TestAgentsProgramsDoNotRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	mark := filepath.Join(t.TempDir(), "mark")
	f.arm(mark)
	twin := func() string {
		dir := filepath.Join(t.TempDir(), "twin")
		f.must(exec.Command("cp", "-a", f.repo, dir).Run())
		return dir
	}
	ran := func() string {
		said, err := os.ReadFile(mark)
		if err == nil {
			f.must(os.Remove(mark))
		}
		return string(said)
	}
	job := func(then string, flags ...string) string {
		args := append([]string{"run", "--repo", f.repo, "--max-attempts", "1", "-o", "id"}, flags...)
		out, _, said := f.try(append(args, "--", "sh", "-c", fmt.Sprintf(hostile, mark, then))...)
		if by := ran(); by != "" {
			t.Errorf("run %v ran\n%s", flags, by)
		}
		id := strings.TrimSpace(out)
		if id == "" {
			t.Fatalf("no job: %s", said)
		}
		return id
	}
	id, failed := job(":", "--deliver", "branch"), job("false")
	job(":", "--repo", twin(), "--isolation", "none")
	f.env = append(f.env, "PENSTOCK_WORKER_WORKSPACE=linked")
	job(":", "--repo", twin())
	f.env = f.env[:len(f.env)-1]
	for _, door := range [][]string{
		{"job", "apply", id, "--check", "--dir"}, {"job", "apply", id, "--dir"},
		{"job", "apply", id, "--check", "--3way", "--dir"}, {"job", "apply", id, "--3way", "--dir"},
		{"job", "salvage", failed, "--apply"}, {"job", "worktree", id, "--repo"},
	} {
		dir := twin()
		_, code, said := f.try(append(door, dir)...)
		if by := ran(); code != 0 || by != "" {
			t.Errorf("%v ended with %d and ran\n%s\n%s", door, code, by, said)
		}
		if door[1] == "worktree" {
			dir = filepath.Join(dir, ".penstock/worktrees", f.named(id))
		}
		wants := []string{"data.lfs (lfs)", "x.info (info)", "x.glob (glob)", "file0.txt (fmt)"}
		switch {
		case slices.Contains(door, "--check"):
			wants = wants[:3] // what the attributes will be does not show yet
		case door[1] == "worktree":
			wants = []string{"data.lfs (lfs)", "file0.txt (fmt)"} // by the attributes of the result alone
		}
		for _, want := range wants {
			if !strings.Contains(said, want) {
				t.Errorf("%v does not say that no filter was run for %s:\n%s", door, want, said)
			}
		}
		if got, err := os.ReadFile(filepath.Join(dir, "data.lfs")); !slices.Contains(door, "--check") && string(got) != "large\n" {
			t.Errorf("%v wrote %q, %v", door, got, err)
		}
	}
	if _, code, said := f.try("job", "worktree", "rm", id); code != 0 || ran() != "" {
		t.Errorf("job worktree rm ended with %d: %s", code, said)
	}
	f.series(twin, fmt.Sprintf(hostile, mark, ":"), ran)
	f.begins(twin, id, ran)
	// The traps work: git alone, called as a user would, walks into them.
	dir := twin()
	f.run("job", "apply", id, "--dir", dir)
	alone := exec.Command("git", "-C", dir, "status")
	alone.Env = append(os.Environ(), f.env...)
	if said, err := alone.CombinedOutput(); !strings.Contains(ran(), "agent: ./tools/fmt.sh") {
		t.Errorf("git status ran no trap: %v\n%s", err, said)
	}
}

// series brings the result of a batch into work trees and into branches.
func (f *fixture) series(twin func() string, script string, ran func() string) {
	f.Helper()
	items, out := filepath.Join(f.TempDir(), "items.jsonl"), filepath.Join(f.TempDir(), "out")
	f.must(os.WriteFile(items, []byte(`{"item":"one","prompt":"x"}`+"\n"), 0o644))
	f.run("batch", "run", items, "--repo", f.repo, "--out", out, "--", "sh", "-c", script)
	for _, door := range [][]string{{"apply", out, "--dry-run"}, {"apply", out}, {"export", out, "--branches"}} {
		dir := twin()
		_, code, said := f.try(append([]string{"batch"}, append(door, "--dir", dir)...)...)
		if by := ran(); code != 0 || by != "" {
			f.Errorf("batch %v ended with %d and ran\n%s\n%s", door, code, by, said)
		}
		if got, err := os.ReadFile(filepath.Join(dir, "data.lfs")); len(door) == 2 && (string(got) != "large\n" || !strings.Contains(said, "data.lfs (lfs)")) {
			f.Errorf("batch %v wrote %q, %v\n%s", door, got, err, said)
		}
	}
}

// begins lets jobs begin from a work tree that has what an agent wrote, without
// and with what is not committed.
func (f *fixture) begins(twin func() string, id string, ran func() string) {
	f.Helper()
	dir := twin()
	f.run("job", "apply", id, "--dir", dir)
	_, code, said := f.try("run", "--repo", dir, "--", "true")
	if by := ran(); code != 0 || by != "" || !strings.Contains(said, "are not committed") {
		f.Errorf("run ended with %d and ran\n%s\n%s", code, by, said)
	}
	_, code, said = f.try("run", "--repo", dir, "--include-uncommitted", "--", "sh", "-c", "cat data.lfs x.info dir0/file0.txt")
	if by := ran(); code != 0 || by != "" {
		f.Errorf("run --include-uncommitted ended with %d and ran\n%s\n%s", code, by, said)
	}
	for _, want := range []string{"data.lfs (lfs)", "file0.txt (fmt)", "| large", "| x", "| changed"} {
		if !strings.Contains(said, want) {
			f.Errorf("run --include-uncommitted lacks %q:\n%s", want, said)
		}
	}
}

// named is the name of the worktree of a job.
func (f *fixture) named(job string) string {
	f.Helper()
	var list []struct{ Name, Job string }
	f.must(json.Unmarshal([]byte(f.run("job", "worktree", "ls", "-o", "json")), &list))
	for _, wt := range list {
		if wt.Job == job {
			return wt.Name
		}
	}
	f.Fatalf("job %s has no worktree in %+v", job, list)
	return ""
}
