package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// A planted pool has a secret at every door, and notes what was said about it.
type planted struct {
	*fixture
	web, admin, token string
	settings          string
	secrets           map[string]string // what must be nowhere, by where it was planted
	said              map[string]string // what may be read, by where
}

// plant returns a secret that is like no other text.
func (p *planted) plant(where string) string {
	p.secrets[where] = "planted" + rand.Text()
	return p.secrets[where]
}

// Services whose log is JSON print JSON and nothing else, with the same keys everywhere; and
// nothing that may be read of a pool has any of its secrets: logs, events, records, metrics,
// pages, the audit log.
func TestLogsOfServices(t *testing.T) {
	t.Parallel()
	p := &planted{fixture: newFixture(t), secrets: map[string]string{}, said: map[string]string{}}
	pool := p.pool()
	worker, refused := p.workers()
	id := p.submit(`echo "the secret is $NPM_TOKEN"; echo made > made; test -n "$NPM_TOKEN"`, "--secret", "NPM_TOKEN")
	p.run("wait", id)
	private := p.plant("repository's URL")
	_, _, said := p.try("submit", "--repo", "https://user:"+private+"@127.0.0.1:1/x.git", "--max-attempts", "1", "--", "true")
	p.said["submission of a URL with a password"] = said
	p.levels(pool)
	p.read(id)
	worker.end()
	refused.end()
	pool.end()
	_, code, ended := p.try("worker", "--log-format", "json", "--lease", "1s")
	if code != 2 {
		t.Errorf("a worker with a lease that is too short ended with %d", code)
	}
	logs := map[string]string{"serve": pool.log.String(), "worker": worker.log.String(), "worker that is refused": refused.log.String(), "worker that ends": ended}
	lines := p.lines(logs)
	for _, want := range []struct {
		message string
		keys    []string
	}{
		{"serving", []string{"broker", "http", "admin", "version", "pid"}},
		{"claiming jobs", []string{"worker", "slots", "broker", "version"}},
		{"claimed", []string{"worker", "job", "session", "attempt", "queue", "trace_id"}},
		{"settled", []string{"worker", "job", "session", "attempt", "queue", "trace_id", "outcome", "took_seconds"}},
		{"settings were read again", []string{"log_level", "needs_restart"}},
		{"log level changed", []string{"log_level"}},
		{"ended with an error", []string{"err", "exit_code"}},
	} {
		line, ok := lines[want.message]
		if !ok {
			t.Errorf("no line says %q", want.message)
		}
		for _, key := range want.keys {
			if _, ok := line[key]; !ok {
				t.Errorf("%q has no %s: %v", want.message, key, line)
			}
		}
	}
	for where, text := range logs {
		p.said["log of "+where] = text
	}
	p.nowhere()
}

// pool starts a pool whose settings have secrets.
func (p *planted) pool() *program {
	p.Helper()
	dir := p.TempDir()
	hook := p.plant("hook's secret")
	p.must(os.WriteFile(filepath.Join(dir, "secret"), []byte(hook+"\n"), 0o600))
	p.settings = filepath.Join(dir, "penstock.yaml")
	p.must(os.WriteFile(p.settings, fmt.Appendf(nil, `
log: {format: json, level: debug}
webhooks: {allow_private: ["127.0.0.0/8"]}
hooks:
  in:
    source: bearer
    secret_file: %s/secret
    when: body.run
    job: {isolation: none, agent: {name: command, command: ["true"]}}
`, dir), 0o600))
	p.web = freeAddress(p)
	p.admin = freeAddress(p)
	cmd := p.command("serve", "--config", p.settings, "--listen", "127.0.0.1:0", "--http", p.web, "--admin", p.admin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pool := p.launch(cmd, `"msg":"serving"`)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusInternalServerError) }))
	p.Cleanup(receiver.Close)
	out := p.run("webhook", "add", "out", "--url", receiver.URL, "-o", "json", "--config", p.settings)
	p.secrets["webhook's secret"] = p.field(out, "secret")
	p.token = p.field(p.run("token", "add", "planted", "--role", "operator", "-o", "json"), "token")
	p.secrets["token"] = p.token
	own, err := os.ReadFile(filepath.Join(p.data, "http-token"))
	p.must(err)
	p.secrets["token of the data directory"] = strings.TrimSpace(string(own))
	own, err = os.ReadFile(filepath.Join(p.data, "admin-token"))
	p.must(err)
	p.secrets["token of the admin address"] = strings.TrimSpace(string(own))
	return pool
}

// levels changes the level of the log of a pool in every way, and what it cannot change
// while it runs.
func (p *planted) levels(pool *program) {
	p.Helper()
	text, err := os.ReadFile(p.settings)
	p.must(err)
	secret := p.plant("setting that needs a restart")
	changed := strings.Replace(string(text), "debug}", "error}", 1) + "server: nats://me:" + secret + "@127.0.0.1:1\nretention: {jobs: 48h}\n"
	p.must(os.WriteFile(p.settings, []byte(changed), 0o600))
	for _, step := range []struct {
		signal syscall.Signal
		said   string
	}{
		{syscall.SIGHUP, `"log_level":"error","keys_added":0,"keys_removed":0,"needs_restart":["retention.jobs","server"]`},
		{syscall.SIGUSR1, `"msg":"log level changed","component":"service","log_level":"debug"`},
		{syscall.SIGUSR2, `"msg":"log level changed","component":"service","log_level":"error"`},
		{syscall.SIGUSR1, `"log_level":"debug"`},
	} {
		before := len(pool.log.String())
		p.must(pool.Process.Signal(step.signal))
		p.eventually(20*time.Second, "the log says "+step.said, func() bool { return strings.Contains(pool.log.String()[before:], step.said) })
		quiet := len(pool.log.String())
		p.knock()
		debug := strings.Contains(step.said, "debug")
		if loud := strings.Contains(pool.log.String()[quiet:], `"level":"INFO"`); loud != debug {
			p.Errorf("after %s, lines of level info: %v\n%s", step.signal, loud, pool.log.String()[quiet:])
		}
	}
}

// workers starts a worker whose credential, keys and jobs' values are secrets, and one that
// the broker refuses.
func (p *planted) workers() (working, refused *program) {
	p.Helper()
	as := p.credentials()[jobs.RoleWorker]
	creds, err := os.ReadFile(as[3])
	p.must(err)
	for line := range strings.Lines(string(creds)) {
		if strings.HasPrefix(line, "SU") {
			p.secrets["seed of the worker's credential"] = strings.TrimSpace(line)
		}
	}
	p.env = append(p.env, "ANTHROPIC_API_KEY="+p.plant("key of the model's API"), "PENSTOCK_SECRET_NPM_TOKEN="+p.plant("secret of a job"))
	flags := []string{"worker", "--admin", "", "--drain", "1s", "--slots", "1", "--log-format", "json", "--log-level", "debug"}
	working = p.start("claiming jobs", append(flags, as...)...)
	host, err := net.ResolveTCPAddr("tcp", strings.TrimPrefix(as[1], "nats://"))
	p.must(err)
	refused = p.start(`"level":"ERROR"`, append(flags, "--server", fmt.Sprintf("nats://me:%s@%s", p.plant("password of NATS"), host))...)
	return working, refused
}

// knock asks with wrong secrets, which others may have mistyped by one letter.
func (p *planted) knock() {
	p.Helper()
	ask := func(method, url, token, body string) {
		p.Helper()
		r, err := http.NewRequest(method, url, strings.NewReader(body))
		p.must(err)
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		p.must(err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		p.must(err)
		p.said[fmt.Sprint(method, " ", url, " with a wrong secret")] = string(text)
	}
	ask("GET", "http://"+p.web+"/v1/jobs", p.plant("wrong token"), "")
	ask("POST", "http://"+p.web+"/hooks/in", p.plant("wrong secret of a hook"), "{}")
	ask("POST", "http://"+p.web+"/hooks/in", p.secrets["hook's secret"], `{"run":"no"}`)
	ask("POST", "http://"+p.web+"/v1/jobs", p.token, "{")
	out, _, said := p.try("webhook", "test", "out", "-o", "json")
	p.said["test of a webhook"] = out + said
}

// read takes down all that can be read of the pool.
func (p *planted) read(id string) {
	p.Helper()
	client := http.Client{Timeout: slowtest.Limit(30 * time.Second)}
	get := func(url string) {
		p.Helper()
		r, err := http.NewRequestWithContext(p.Context(), http.MethodGet, url, nil)
		p.must(err)
		r.Header.Set("Authorization", "Bearer "+p.token)
		answer, err := client.Do(r)
		p.must(err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		p.must(err)
		if answer.StatusCode != http.StatusOK {
			p.Errorf("GET %s: %s", url, answer.Status)
		}
		p.said[url] = string(text)
	}
	for _, page := range []string{"/metrics", "/version", "/livez", "/readyz?verbose"} {
		get("http://" + p.admin + page)
	}
	ids := strings.Fields(p.run("job", "ls", "-o", "id"))
	if len(ids) == 0 {
		p.Errorf("the pool has %d jobs", len(ids))
	}
	for _, page := range []string{"/ui/", "/ui/jobs", "/ui/queues", "/ui/workers", "/ui/tokens", "/ui/webhooks", "/ui/webhooks/out", "/ui/dead", "/ui/schedules", "/v1/jobs", "/v1/workers", "/v1/webhooks", "/v1/tokens"} {
		get("http://" + p.web + page)
	}
	for _, id := range ids {
		get("http://" + p.web + "/ui/jobs/" + id)
		get("http://" + p.web + "/ui/jobs/" + id + "/events")
		get("http://" + p.web + "/ui/jobs/" + id + "/job")
		for _, words := range [][]string{{"logs", "-o", "jsonl"}, {"job", "get", "-o", "json"}, {"why", "-o", "json"}} {
			p.said[fmt.Sprint(words, id)] = p.run(append(words, id)...)
		}
	}
	get("http://" + p.web + "/ui/jobs/" + id + "/diff")
	for _, words := range [][]string{{"audit", "-o", "jsonl"}, {"dead", "ls", "-o", "jsonl"}, {"webhook", "deliveries", "-o", "jsonl"}, {"token", "ls", "-o", "json"}, {"nats", "credentials", "ls", "-o", "json"}} {
		p.said[strings.Join(words, " ")] = p.run(words...)
	}
}

// lines returns the last line of the logs with each message. All of them are JSON.
func (p *planted) lines(logs map[string]string) map[string]map[string]any {
	p.Helper()
	by := map[string]map[string]any{}
	for name, text := range logs {
		if text == "" {
			p.Errorf("%s has said nothing", name)
		}
		for line := range strings.Lines(text) {
			var values map[string]any
			dec := json.NewDecoder(bytes.NewReader([]byte(line)))
			if err := dec.Decode(&values); err != nil || dec.More() {
				p.Errorf("%s prints no JSON: %v: %s", name, err, line)
				continue
			}
			for _, key := range []string{"time", "level", "msg", "component"} {
				if text, ok := values[key].(string); !ok || text == "" {
					p.Errorf("%s: no %s in %s", name, key, line)
				}
			}
			message, _ := values["msg"].(string)
			by[message] = values
		}
	}
	return by
}

// nowhere fails for each secret that was read anywhere.
func (p *planted) nowhere() {
	p.Helper()
	for where, secret := range p.secrets {
		if len(secret) < 16 {
			p.Errorf("%s is %q: no secret was planted", where, secret)
			continue
		}
		for place, text := range p.said {
			if at := strings.Index(text, secret); at >= 0 {
				p.Errorf("%s shows the %s: …%s…", place, where, text[max(at-120, 0):min(at+len(secret)+40, len(text))])
			}
		}
	}
}

// field is a field of a JSON object.
func (p *planted) field(text, name string) string {
	p.Helper()
	var values map[string]any
	p.must(json.Unmarshal([]byte(text), &values))
	value, _ := values[name].(string)
	return value
}
