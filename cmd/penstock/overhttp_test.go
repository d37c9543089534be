package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// overHTTP are the flags of a command somewhere else that reaches the pool over HTTP
// alone, with a token of a role.
func (f *fixture) overHTTP(address string, role jobs.Role, more ...string) []string {
	f.Helper()
	elsewhere := f.TempDir()
	file := filepath.Join(elsewhere, "token")
	f.must(os.WriteFile(file, []byte(f.run("token", "add", "over-"+string(role), "--role", string(role))), 0o600))
	flags := append([]string{"--server", address, "--token-file", file, "--data", filepath.Join(elsewhere, "data")}, more...)
	f.eventually(20*time.Second, "the token is accepted", func() bool {
		_, code, _ := f.try(append([]string{"queue", "ls"}, flags...)...)
		return code == 0 || role == jobs.RoleSubmitter && code == 6
	})
	return flags
}

// after puts flags behind the words of a command, before what follows a --.
func after(args, flags []string) []string {
	if i := slices.Index(args, "--"); i >= 0 {
		return flagged(args[:i], flags, args[i:])
	}
	return flagged(args, flags)
}

// lastUsed is what reading a list of tokens changes, and adds for a new token.
var lastUsed = regexp.MustCompile(`,\s*"last_used": ?"[^"]*"`)

// Each everyday command says and prints the same over HTTP as on the bus, byte for byte,
// and ends with the same code.
func TestEverydayCommandsOverHTTP(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	address := "http://" + f.serveHTTP("--slots", "2")
	web := f.overHTTP(address, jobs.RoleOperator)
	run := func(args ...string) string { t.Helper(); return f.run(after(args, web)...) }
	submit := func(script string, args ...string) string {
		t.Helper()
		args = append([]string{"submit", "-o", "id", "--repo", f.repo}, args...)
		return strings.TrimSpace(run(append(args, "--", "sh", "-c", script)...))
	}
	good := submit("echo hi > new.txt; echo line", "--key", "k")
	if again := submit("echo hi > new.txt; echo line", "--key", "k"); again != good {
		t.Errorf("the same key made job %s, and %s before", again, good)
	}
	bad := submit("exit 3", "--max-attempts", "1")
	asking := submit(`penstock ask "Which?" --option Red >got; cat got`)
	f.eventually(30*time.Second, "the agent asks", func() bool { return f.record(asking).Asks != nil })
	run("answer", asking, "--option", "Red")
	long := submit(stays(60))
	run("job", "cancel", long)
	for id, code := range map[string]int{good: 0, bad: 3, asking: 0, long: 3} {
		if out, got, said := f.try(after([]string{"wait", "--timeout", patience(60), id}, web)...); got != code {
			t.Errorf("wait ended with %d, want %d: %s%s", got, code, out, said)
		}
	}
	run("job", "purge", long)
	if out, code, said := f.try(after([]string{"job", "get", long}, web)...); code != 5 || !strings.Contains(said, "purged") {
		t.Errorf("a job that was purged: %d, %s%s", code, out, said)
	}
	run("job", "retry", bad)
	f.try(after([]string{"wait", bad}, web)...)
	run("queue", "pause", "default")
	run("queue", "resume", "default")
	name := strings.TrimSpace(run("worker", "ls", "-o", "id"))
	run("worker", "drain", name, "--wait")
	run("worker", "resume", name)
	run("schedule", "add", "nightly", "--cron", "0 3 * * *", "--repo", f.repo, "--", "true")
	run("token", "add", "other", "--role", "viewer")
	run("token", "rm", "other")

	for _, args := range [][]string{
		{"job", "ls", "-o", "json"}, {"job", "ls", "--state", "finished", "-o", "id"}, {"job", "ls", "--queue", "default", "--limit", "1", "-o", "jsonl"},
		{"job", "get", good}, {"job", "get", good[:20], "-o", "json"}, {"job", "get", bad, "-o", "yaml"}, {"job", "diff", good}, {"job", "artifacts", good}, {"job", "artifacts", good, "changes.patch"},
		{"why", good}, {"why", bad, "-o", "json"}, {"watch", good}, {"watch", asking, "-o", "jsonl"}, {"watch", good, "--since", "3", "-o", "jsonl"}, {"logs", good}, {"logs", bad, "-o", "jsonl"}, {"logs", "-f", good, "--since", "4"},
		{"wait", bad}, {"wait", good, "-o", "json"}, {"queue", "ls", "-o", "json"}, {"queue", "stats", "-o", "jsonl"}, {"queue", "caps"}, {"batch", "ls", "-o", "json"},
		{"dead", "ls", "-o", "json"}, {"dead", "get", bad, "-o", "json"}, {"schedule", "ls", "-o", "json"}, {"schedule", "get", "nightly", "-o", "json"}, {"token", "ls", "-o", "json"}, {"audit", "-o", "jsonl"}, {"audit", "--operation", "cancel"},
		// And what is refused.
		{"job", "get", "nothing"}, {"job", "cancel", good}, {"job", "retry", good}, {"queue", "pause", "nowhere"}, {"queue", "stats", "nowhere"}, {"queue", "stats", "--window", "0s"}, {"worker", "get", "nothing"}, {"worker", "drain", "nothing"}, {"schedule", "rm", "nothing"}, {"token", "rm", "nothing"}, {"dead", "retry", "nothing"}, {"watch", "nothing"}, {"wait", "nothing"},
		{"answer", good, "--text", "x"}, {"job", "artifacts", good, "nothing"}, {"submit", "--repo", f.repo, "--queue", "Not a queue", "--", "true"}, {"batch", "cancel", "nothing"},
	} {
		want, wantCode, wantSaid := f.try(args...)
		got, code, said := f.try(after(args, web)...)
		want, got = lastUsed.ReplaceAllString(want, ""), lastUsed.ReplaceAllString(got, "")
		if got != want || code != wantCode || said != wantSaid {
			t.Errorf("penstock %v over HTTP: %d\n%s%s\nwant %d\n%s%s", args, code, got, said, wantCode, want, wantSaid)
		}
	}
}

// A reader of a session, a program that waits, and a batch outlive a server that is
// killed: each event comes once, in order.
func TestFollowingOverHTTPOutlivesAKill(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	address := freeAddress(f)
	serve, args := f.serve("--http", address)
	web := f.overHTTP("http://"+address, jobs.RoleOperator)
	f.worker("--slots", "2")
	id := f.submit("for i in 1 2 3; do echo $i; done; " + untilGoOn + "; for i in 4 5 6; do echo $i; done")
	watch := f.command(after([]string{"watch", id, "-o", "jsonl"}, web)...)
	var seen, said syncBuffer
	watch.Stdout, watch.Stderr = &seen, &said
	f.must(watch.Start())
	wait := f.begin(after([]string{"wait", id}, web)...)
	out := filepath.Join(t.TempDir(), "out")
	batch := f.begin(after([]string{"batch", "run", f.issues(2, func(int) string { return "" }), "--repo", f.repo, "--out", out, "--", "sh", "-c", "sleep 1; echo x >new.txt"}, web)...)
	f.eventually(30*time.Second, "watch shows what there is", func() bool { return count(f.decode(seen.String()), jobs.OutputLine) == 3 })
	// A command that finds no server when it begins ends: the last one has found it.
	f.eventually(30*time.Second, "the batch is submitted", func() bool { return len(strings.Fields(f.run("job", "ls", "-o", "id"))) == 3 })

	serve.kill()
	f.start("serving", args...)
	f.goOn(id)
	for name, p := range map[string]*program{"wait": wait, "batch run": batch} {
		if code := f.ended(p, 60*time.Second); code != 0 {
			t.Errorf("%s ended with %d:\n%s", name, code, p.log)
		}
	}
	if err := watch.Wait(); err != nil {
		t.Errorf("watch: %v: %s", err, said.String())
	}
	if want := f.run("logs", id, "-o", "jsonl"); seen.String() != want {
		t.Errorf("watch has printed\n%s\nwant\n%s", seen.String(), want)
	}
	f.gapless(f.decode(seen.String()))
	if n := len(written(t, out)); n != 2 {
		t.Errorf("%d of 2 results", n)
	}
}

// What a command cannot do over HTTP, and every way in which a server is none, is said
// with the way out.
func TestNotOverHTTP(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ca, other := f.authority("ca"), f.authority("other")
	cert, key := ca.issue("server", time.Now().Add(time.Hour))
	address := "https://" + f.serveHTTP("--http-tls-cert", cert, "--http-tls-key", key)
	viewer, submitter := f.overHTTP(address, jobs.RoleViewer, "--tls-ca", ca.file), f.overHTTP(address, jobs.RoleSubmitter, "--tls-ca", ca.file)
	if out := f.run(after([]string{"queue", "ls", "-o", "json"}, viewer)...); !strings.Contains(out, "[") {
		t.Errorf("queue ls: %s", out)
	}
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>Welcome")) }))
	t.Cleanup(page.Close)
	token := viewer[3]
	nowhere := filepath.Join(t.TempDir(), "data")
	for _, c := range []struct {
		args []string
		code int
		want []string
	}{
		{after([]string{"queue", "pause", "default"}, viewer), 6, []string{"not allowed: role viewer", "operator may", "penstock token add"}},
		{after([]string{"token", "ls"}, submitter), 6, []string{"not allowed: role submitter", "penstock token add"}},
		{[]string{"job", "ls", "--server", address, "--tls-ca", ca.file, "--data", nowhere}, 6, []string{"no token", "--token-file", "PENSTOCK_TOKEN", "penstock token add"}},
		{[]string{"job", "ls", "--server", address, "--tls-ca", ca.file, "--token-file", ca.file}, 2, []string{"--token-file"}},
		{[]string{"job", "ls", "--server", address, "--tls-ca", other.file, "--token-file", token}, 7, []string{"certificate", "--tls-ca"}},
		{[]string{"job", "ls", "--server", address, "--token-file", token}, 7, []string{"certificate", "--tls-ca"}},
		{[]string{"job", "ls", "--server", strings.Replace(address, "https", "http", 1), "--token-file", token}, 7, []string{"HTTPS server"}},
		{[]string{"job", "ls", "--server", strings.Replace(page.URL, "http", "https", 1), "--token-file", token}, 7, []string{"no TLS"}},
		{[]string{"job", "ls", "--server", page.URL, "--token-file", token}, 7, []string{"a page for browsers", "penstock serve"}},
		{[]string{"job", "ls", "--server", "http://127.0.0.1:1", "--token-file", token}, 7, []string{"refused", "penstock serve runs one"}},
		{[]string{"job", "ls", "--server", "http://pool.example", "--token-file", token}, 2, []string{"https://"}},
		{[]string{"job", "ls", "--server", address + "/ui", "--token-file", token}, 2, []string{"path"}},
		{[]string{"job", "ls", "--server", address, "--creds", token, "--data", nowhere}, 6, []string{"--token-file", "--creds is for brokers"}},
	} {
		f.refused(c.code, c.want, c.args...)
	}
	env := f.env
	f.env = append(slices.Clone(env), "PENSTOCK_TOKEN=pst_wrong")
	f.refused(6, []string{"no token, or one that is not valid", "penstock token add"}, "job", "ls", "--server", address, "--tls-ca", ca.file)
	f.env = env
	documented, err := os.ReadFile("../../docs/how-to/http.md")
	f.must(err)
	for _, command := range []string{"worker", "serve", "nats diff", "nats credentials ls", "backup f", "restore f", "chaos", "clean"} {
		args := strings.Fields(command)
		f.refused(2, []string{"penstock " + args[0] + " does not work over HTTP", "hint: "}, after(args, viewer)...)
		if !strings.Contains(string(documented), "`"+args[0]+"`") {
			t.Errorf("docs/how-to/http.md does not say that %s does not work over HTTP", args[0])
		}
	}
}

// The token that serve keeps in the data directory goes to its own server and to no other.
func TestTheTokenOfTheDataDirectory(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	address := f.serveHTTP()
	f.run("job", "ls", "--server", "http://"+address)
	f.run("job", "ls", "--server", "http://"+strings.Replace(address, "127.0.0.1", "localhost", 1))
	var asked int
	foreign := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	f.refused(6, []string{"no token"}, "job", "ls", "--server", foreign.URL)
	foreign.Close()
	if asked > 0 {
		t.Errorf("a foreign server was asked %d times", asked)
	}
}
