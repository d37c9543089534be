package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
)

// A screen is a terminal without a person.
type screen struct {
	testing.TB
	master, slave *os.File
}

func newScreen(tb testing.TB, columns, rows uint16) *screen {
	tb.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		skip(tb, "pty", "there is no terminal to be had: %v", err)
	}
	tb.Cleanup(func() { _ = master.Close() })
	conn, err := master.SyscallConn()
	if err != nil {
		tb.Fatal(err)
	}
	number := 0
	err = conn.Control(func(fd uintptr) {
		_ = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
		_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
		number, _ = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
	})
	if err != nil {
		tb.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		tb.Fatal(err)
	}
	return &screen{tb, master, slave}
}

// run runs a command line with all its streams on the screen, and returns what
// the screen was told.
func (s *screen) run(ctx context.Context, args ...string) string {
	s.Helper()
	shown := make(chan string, 1)
	go func() {
		all, _ := io.ReadAll(s.master) // ends with an error when the last holder of the other side has gone
		shown <- string(all)
	}()
	run(ctx, &app{in: s.slave, out: console.New(s.slave, os.Getenv), err: console.New(s.slave, os.Getenv)}, args)
	if err := s.slave.Close(); err != nil {
		s.Error(err)
	}
	select {
	case all := <-shown:
		return strings.ReplaceAll(all, "\r\n", "\n") // the terminal's own doing
	case <-time.After(jobstest.Patience):
		s.Fatalf("%q keeps its terminal", args)
	}
	return ""
}

// evil is what a job, an item or an agent of an attacker has in its fields.
const evil = "x\x1b]0;title\x07\x1b[2J\u009b31m\x9b\x08\u202e\u2066\u200b\x7f\rFORGED\nFORGED\r\nFORGED\u2028FORGED\u0085FORGED\x0bFORGED"

var (
	ours = regexp.MustCompile("\x1b\\[(0|1|2|3[1236]|1;33)m")
	bar  = regexp.MustCompile("\x1b\\[[0-9]*[ABJKEG]|\x1b\\[\\?(?:7|25)[hl]|\r")
)

// holds fails where a terminal would act on something that is not ours, or a
// line was forged.
func (s *screen) holds(args []string, shown string) {
	s.Helper()
	rest := ours.ReplaceAllString(shown, "")
	if strings.Contains(strings.Join(args, " "), "--progress tty") {
		rest = bar.ReplaceAllString(rest, "")
	}
	if !utf8.ValidString(rest) {
		s.Errorf("penstock %q: no valid text: %q", args, rest)
	}
	for i, r := range rest {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)) {
			s.Errorf("penstock %q: %U reaches the terminal in %q", args, r, rest[max(0, i-60):min(len(rest), i+60)])
			break
		}
	}
	for line := range strings.Lines(rest) {
		if len(args) == 4 && args[1] == "artifacts" {
			break // a document, and nothing else
		}
		if strings.HasPrefix(line, "FORGED") {
			s.Errorf("penstock %q: a line is forged:\n%s", args, rest)
			break
		}
	}
}

// hostilePool fills a pool with what an attacker can put there, and returns the ids
// of a job that succeeded and of one that failed.
func hostilePool(f *fixture) (done, dead string) {
	f.Helper()
	f.must(os.WriteFile(filepath.Join(f.repo, "evil.txt"), []byte(evil), 0o644))
	f.must(os.WriteFile(filepath.Join(f.repo, "agent.sh"), []byte(`
evil=$(cat evil.txt)
echo "$evil"; echo "$evil" >&2
penstock milestone "$evil"
echo "$evil" >out; penstock artifact out
penstock artifact --name "$evil" out
penstock ask "$evil" --option "$evil" --timeout 100ms
printf '{"a":"\302\233 \342\200\256 FORGED"}' | penstock result -
mkdir -p "$(printf 'd\033]0;x\007\nFORGED')" && cp evil.txt "$(printf 'd\033]0;x\007\nFORGED')/f"
git checkout -qb "$(printf 'b\302\2332J')"; git add -A; git commit -qm "$evil"
rm evil.txt
exit $1
`), 0o644))
	f.git("-C", f.repo, "add", "-A")
	f.git("-C", f.repo, "commit", "-qm", "evil")
	submit := func(key, exit string) string {
		out, code, told := f.try("submit", "-o", "id", "--repo", f.repo, "--key", key, strings.ToValidUTF8(evil, ""), "--max-attempts", "1", "--", "sh", "agent.sh", exit)
		if code != 0 {
			f.Fatalf("submit: %d %s", code, told)
		}
		return strings.TrimSpace(out)
	}
	done, dead = submit("done", "0"), submit("dead", "3")
	missing := strings.TrimSpace(f.run("submit", "-o", "id", "--repo", f.repo, "--max-attempts", "1", "--", "/no"+strings.ToValidUTF8(evil, "")))
	f.try("wait", done, dead, missing)
	f.must(os.WriteFile(filepath.Join(f.data, "violations.jsonl"), []byte(`{"ts":"2026-01-01T00:00:00Z","kind":"host","what":"a\u001b]0;x\u0007\nFORGED\u009b","reason":"\u202eFORGED","label":"l\rFORGED"}`+"\n"), 0o600))
	return done, missing
}

// everywhere lists, for each command, the command lines that a hostile pool is
// shown with. A command that is not there fails the test.
func everywhere(f *fixture, done, dead string) map[string][][]string {
	out := filepath.Join(f.TempDir(), "out")
	items := filepath.Join(f.TempDir(), "items.jsonl")
	f.must(os.WriteFile(items, []byte(`{"id":"one","prompt":"a\u001b]0;x\u0007\r\nFORGED \u009b \u202e","repo":"`+f.repo+`"}`+"\n"), 0o644))
	badItems := filepath.Join(f.TempDir(), "bad.jsonl")
	f.must(os.WriteFile(badItems, []byte(`{"id":"\u001b]0;x\u0007\nFORGED","prompt":"x"}`+"\n"+`{"id":"two","\u009bFORGED":1}`+"\n"), 0o644))
	batch := func(args ...string) []string {
		return append(append([]string{"batch", "run", items, "--out", out, "--repo", f.repo}, args...), "--", "sh", "agent.sh", "0")
	}
	e := evil
	return map[string][][]string{
		"penstock": {{e}}, "penstock help": {{"help", e}},
		"penstock completion bash": {{"completion", "bash", e}}, "penstock completion fish": {{"completion", "fish", e}},
		"penstock completion powershell": {{"completion", "powershell", e}}, "penstock completion zsh": {{"completion", "zsh", e}},
		"penstock run": {{"run", "--isolation", "none", "--", "true"}, {"run", "--repo", e, "--", "true"}, {"run", "--label", e, "--", "true"}},
		"penstock batch run": {
			batch("--progress", "tty"), {"batch", "run", badItems, "--repo", f.repo, "--", "true"}, batch("--dry-run"), {"batch", "run", e}, {"batch", "run", "--from-github", " ", "--agent", e}, {"batch", "run", badItems, "--repo", f.repo, "--agents", e},
		},
		"penstock batch status": {{"batch", "status", out}, {"batch", "status", e}}, "penstock batch results": {{"batch", "results", out}},
		"penstock batch apply":    {{"batch", "apply", out, "--dry-run", "--dir", f.repo}, {"batch", "apply", e}, {"batch", "apply", "--continue", "--dir", f.repo}},
		"penstock batch overlaps": {{"batch", "overlaps", out, "--dir", f.repo}, {"batch", "overlaps", out, "--dir", f.repo, "-o", "yaml"}, {"batch", "overlaps", e}, {"batch", "overlaps", "--job", e}},
		"penstock batch export":   {{"batch", "export", out, "--patches", filepath.Join(f.TempDir(), "patches")}, {"batch", "export", out, "--branches", "--dir", f.repo}, {"batch", "export", e, "--branches"}},
		"penstock batch report":   {{"batch", "report", out}}, "penstock batch ls": {{"batch", "ls"}},
		"penstock batch cancel": {{"batch", "cancel", e}}, "penstock batch pause": {{"batch", "pause", e}}, "penstock batch resume": {{"batch", "resume", e}},
		"penstock review": {{"review", "-o", "yaml"}, {"review", e}, {"review", "--accept", done, "--deliver", "apply", "--dir", f.TempDir()}, {"review", "--reject", e, "--comment", e}, {"review", "--reject", done, "--comment", e}},
		"penstock submit": {{"submit", e, "--label", "a=" + e}, {"submit", e, "--key", e, "--", "true"}, {"submit", "--job", e}},
		"penstock watch":  {{"watch", done}, {"watch", dead}, {"watch", done, "-o", "json"}, {"watch", e}},
		"penstock logs": {
			{"logs", done}, {"logs", dead}, {"logs", done, "-f"}, {"logs", done, "-o", "json"}, {"logs", done, "-o", "jsonl"}, {"logs", done, "-o", "yaml"},
			{"logs", done, "--color", "always"}, {"logs", e},
		},
		"penstock wait":          {{"wait", done, dead}, {"wait", done, "-o", "yaml"}, {"wait", dead, "-o", "json"}, {"wait", e}},
		"penstock send":          {{"send", done, e}, {"send", e, e}},
		"penstock answer":        {{"answer", done, "--text", e}, {"answer", e}},
		"penstock ui":            {{"ui", "--print"}, {"ui", e}},
		"penstock attach":        {{"attach", done, "--", e}, {"attach", e}},
		"penstock why":           {{"why", done, dead}, {"why", dead, "-o", "yaml"}, {"why", e}},
		"penstock job ls":        {{"job", "ls"}, {"job", "ls", "-o", "json"}, {"job", "ls", "--state", e}},
		"penstock job get":       {{"job", "get", done}, {"job", "get", dead}, {"job", "get", done, "-o", "json"}, {"job", "get", done, "-o", "jsonl"}, {"job", "get", e}},
		"penstock job cancel":    {{"job", "cancel", e}, {"job", "cancel", done}},
		"penstock job retry":     {{"job", "retry", e}, {"job", "retry", done}},
		"penstock job diff":      {{"job", "diff", done}, {"job", "diff", e}},
		"penstock job apply":     {{"job", "apply", done, "--dir", f.TempDir()}, {"job", "apply", done, "--check", "--dir", f.repo}, {"job", "apply", e}},
		"penstock job artifacts": {{"job", "artifacts", done}, {"job", "artifacts", done, "out"}, {"job", "artifacts", done, e}},
		"penstock job resume":    {{"job", "resume", e}}, "penstock job fork": {{"job", "fork", e}, {"job", "fork", dead}},
		"penstock job salvage": {{"job", "salvage", dead}, {"job", "salvage", done, "--patch"}}, "penstock job interrupt": {{"job", "interrupt", e}},
		"penstock job stop": {{"job", "stop", e}, {"job", "stop", done}}, "penstock job set": {{"job", "set", e, "--model", e}}, "penstock job raw": {{"job", "raw", done, e}},
		"penstock job worktree":    {{"job", "worktree", done, "--dir", filepath.Join(f.TempDir(), "wt")}, {"job", "worktree", done, "--branch", e}},
		"penstock job worktree ls": {{"job", "worktree", "ls"}}, "penstock job worktree rm": {{"job", "worktree", "rm", e}},
		"penstock worker ls": {{"worker", "ls"}}, "penstock worker get": {{"worker", "get", e}}, "penstock worker drain": {{"worker", "drain", e}}, "penstock worker resume": {{"worker", "resume", e}},
		"penstock queue ls": {{"queue", "ls"}}, "penstock queue stats": {{"queue", "stats"}, {"queue", "stats", e}}, "penstock top": {{"top", "-o", "json"}, {"top", "-o", "yaml"}, {"top", "-o", "id"}, {"top", "--window", e}}, "penstock events tail": {{"events", "tail", "--queue", e, "--limit", "1", "--from", e, "--kind", "queue" + e}, {"events", "tail", "--queue", e, "--batch", e, "--kind", e}}, "penstock queue caps": {{"queue", "caps"}}, "penstock queue pause": {{"queue", "pause", e}}, "penstock queue resume": {{"queue", "resume", e}},
		"penstock schedule add": {{"schedule", "add", "nightly", strings.ToValidUTF8(e, ""), "--every", "24h", "--repo", f.repo, "--", "true"}, {"schedule", "add", e, e, "--cron", e}},
		"penstock schedule ls":  {{"schedule", "ls"}}, "penstock schedule get": {{"schedule", "get", "nightly"}, {"schedule", "get", e}},
		"penstock schedule pause": {{"schedule", "pause", e}}, "penstock schedule resume": {{"schedule", "resume", e}},
		"penstock schedule rm": {{"schedule", "rm", e}}, "penstock schedule run": {{"schedule", "run", e}},
		"penstock dead ls":  {{"dead", "ls"}, {"dead", "ls", "-o", "yaml"}},
		"penstock dead get": {{"dead", "get", dead}, {"dead", "get", dead, "-o", "json"}, {"dead", "get", e}}, "penstock dead retry": {{"dead", "retry", e}}, "penstock dead drop": {{"dead", "drop", e}},
		"penstock agent ls": {{"agent", "ls"}}, "penstock agent test": {{"agent", "test", e}}, "penstock agent drift": {{"agent", "drift", e}, {"agent", "drift", "codex", e}, {"agent", "drift", "codex", "--kept", e}}, "penstock agent record": {{"agent", "record", e, e, "--out", e}, {"agent", "record", "--replay", e}}, "penstock serve": {{"serve", "--cap", e}}, "penstock worker": {{"worker", "--server", "nats://" + e}},
		"penstock agent install": {{"agent", "install", e}, {"agent", "install", e + "@1.2.3"}, {"agent", "install", "codex@" + e}},
		"penstock agent remove":  {{"agent", "remove", e}, {"agent", "remove", "codex@" + e}}, "penstock agent versions": {{"agent", "versions"}},
		"penstock nats credentials": {{"nats", "credentials", e}}, "penstock nats credentials ls": {{"nats", "credentials", "ls"}},
		"penstock nats credentials revoke": {{"nats", "credentials", "revoke", e}}, "penstock nats credentials config": {{"nats", "credentials", "config"}},
		"penstock job purge": {{"job", "purge", e}, {"job", "purge", done, "--dry-run"}}, "penstock nats compact": {{"nats", "compact", e}},
		"penstock nats diff": {{"nats", "diff"}}, "penstock nats apply": {{"nats", "apply", "--dry-run"}},
		"penstock nats server": {{"nats", "server", e}}, "penstock nats env": {{"nats", "env"}}, "penstock queue drain": {{"queue", "drain", e}},
		"penstock job events": {{"job", "events", done}, {"job", "events", done, "-o", "json"}, {"job", "events", e}},
		"penstock exit-codes": {{"help", "exit-codes"}}, "penstock environment": {{"help", "environment"}}, "penstock formats": {{"help", "formats"}},
		"penstock sandbox run": {{"sandbox", "run", "--allow-host", e, "--", "true"}, {"sandbox", "run", "--", e}}, "penstock sandbox violations": {{"sandbox", "violations"}, {"sandbox", "violations", "-o", "json"}},
		"penstock docs":    {{"docs", "--write", filepath.Join(f.TempDir(), e)}, {"docs", "--port", "1" + e}},
		"penstock install": {{"install", "--systemd", "--program", "/" + e}, {"install", "--systemd", "--program", "/usr/bin/penstock", "--root", filepath.Join(f.TempDir(), e)}},
		"penstock health":  {{"health", e}, {"health", "http://127.0.0.1:1/" + e}}, "penstock doctor": {{"doctor", "--policy", e}}, "penstock clean": {{"clean", "--dry-run"}}, "penstock backup": {{"backup", filepath.Join(f.TempDir(), "no", e)}}, "penstock restore": {{"restore", e}},
		"penstock bench": {{"bench", "--jobs", "2", "--queue", "default", "--progress", "tty"}, {"bench", "--jobs", "1", "--queue", "default", "--", "/no" + strings.ToValidUTF8(e, "")}, {"bench", "--queue", e}, {"bench", "--repo", e}, {"bench", e}},
		"penstock chaos": {{"chaos", "--kinds", e}}, "penstock schema": {{"schema", e}}, "penstock config view": {{"config", "view", "--sign-key", e}, {"config", "view", "-c", e}}, "penstock version": {{"version"}},
		"penstock github setup":   {{"github", "setup", e}, {"github", "setup"}},
		"penstock receipt verify": {{"receipt", "verify", e}, {"receipt", "verify", os.DevNull, "--key", e}}, "penstock receipt key": {{"receipt", "key", e}},
		"penstock receipt workers": {{"receipt", "workers", e}, {"receipt", "workers", "--data", e}},
		"penstock cost":            {{"cost"}, {"cost", "--by", "model", "-o", "json"}, {"cost", "--by", "batch"}, {"cost", "--by", e}, {"cost", "--budgets", "--batch", e}},
		"penstock audit":           {{"audit"}, {"audit", "-o", "json"}, {"audit", "--since", e}, {"audit", "--who", e}}, "penstock mcp": {{"mcp", e}, {"mcp", "--allow", e}, {"mcp", "--repo", e}},
		"penstock token add": {{"token", "add", e, "--role", "viewer"}, {"token", "add", "t", "--role", e}}, "penstock token ls": {{"token", "ls"}}, "penstock token rm": {{"token", "rm", e}},
		"penstock webhook add": {{"webhook", "add", e, "--url", "https://example.com"}, {"webhook", "add", "w", "--url", e}, {"webhook", "add", "w", "--url", "https://example.com", "--events", e}, {"webhook", "add", "w", "--url", "https://example.com", "--queue", e}, {"webhook", "add", "w", "--url", "https://example.com", "--secret-file", e}},
		"penstock webhook ls":  {{"webhook", "ls"}}, "penstock webhook rm": {{"webhook", "rm", e}}, "penstock webhook test": {{"webhook", "test", e}},
		"penstock webhook deliveries": {{"webhook", "deliveries", e}, {"webhook", "deliveries", "--since", e}}, "penstock webhook redeliver": {{"webhook", "redeliver", e}},
		"penstock artifact": {{"artifact", e}}, "penstock result": {{"result", e}}, "penstock milestone": {{"milestone", e}}, "penstock ask": {{"ask", e}}, "penstock terminals": {{"terminals"}}, "penstock mcp-bridge": {{"mcp-bridge", e}},
	}
}

// commands lists what can be run, from the tree itself.
func commands(cmd *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	if cmd.Runnable() || len(cmd.Commands()) == 0 {
		all = append(all, cmd)
	}
	for _, sub := range cmd.Commands() {
		all = append(all, commands(sub)...)
	}
	return all
}

// Whatever stands in a job, each command shows it on a terminal without the
// terminal's acting on it.
func TestNothingActsOnATerminal(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "2")
	done, dead := hostilePool(f)
	table := everywhere(f, done, dead)
	a := &app{out: console.New(io.Discard, os.Getenv), err: console.New(io.Discard, os.Getenv), cfg: cli.Defaults()}
	root := a.root(nil)
	root.InitDefaultCompletionCmd("x")
	root.InitDefaultHelpCmd()
	seen := 0
	for _, cmd := range commands(root) {
		lines := table[cmd.CommandPath()]
		if len(lines) == 0 && !strings.HasSuffix(cmd.CommandPath(), "help") && !group(cmd) {
			t.Errorf("no line for %q: say how it shows what others wrote", cmd.CommandPath())
		}
		words := strings.Fields(cmd.CommandPath())[1:]
		lines = append(lines, append(words, "--"+evil))
		for _, args := range lines {
			s := newScreen(t, 100, 30)
			ctx, cancel := context.WithTimeout(t.Context(), jobstest.Patience)
			shown := s.run(ctx, append([]string{"--data", f.data}, args...)...)
			cancel()
			s.holds(args, shown)
			if strings.Contains(shown, "FORGED") {
				seen++
			}
		}
	}
	if seen < 100 {
		t.Errorf("the hostile words were seen %d times: the test looks at nothing", seen)
	}
	want := f.run("job", "diff", done)
	if !strings.Contains(want, "\x1b]0;") || !strings.Contains(want, "\u009b") {
		t.Errorf("to a pipe the patch is not what it is: %q", want)
	}
	for _, line := range strings.Split(strings.TrimSpace(f.run("logs", "-o", "jsonl", done)), "\n") {
		if strings.ContainsAny(line, "\u009b\u202e\u007f") {
			t.Errorf("JSON has what a terminal acts on: %q", line)
		}
	}
	if count(f.events(done), jobs.Milestone) != 1 {
		t.Error("the agent told no milestone")
	}
}

// group reports whether a command only gathers others.
func group(cmd *cobra.Command) bool { return len(cmd.Commands()) > 0 }
