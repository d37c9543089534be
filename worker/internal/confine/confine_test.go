package confine

import (
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	jailpolicy "github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/policy"
)

// A named backend has a name and cannot start anything.
type named struct {
	sandbox.Backend
	name string
}

func (n named) Name() string { return n.name }

// A place is a workspace that is only a directory.
type place struct{ dir string }

func (p place) Dir() string             { return p.dir }
func (p place) Beside() (string, error) { return p.dir, nil }
func (p place) Show(s *sandbox.Spec) {
	s.Mounts = append(s.Mounts, sandbox.Mount{Source: p.dir, Target: sandbox.WorkspacePath, Writable: true})
}

// An opened listener knows the address that the jail has opened for it.
type opened struct {
	net.Listener
	address string
}

func at(l net.Listener) string {
	if o, ok := l.(opened); ok {
		return o.address
	}
	if l == nil {
		return ""
	}
	return "host"
}

func jailOf(t *testing.T, backend string, job jobs.Job) *Jail {
	t.Helper()
	cfg := Config{
		Program: "/usr/bin/penstock", Secret: func(name string) (string, bool) { return "value of " + name, true },
		Policy: policy.Policy{Policy: jailpolicy.Policy{Write: []jailpolicy.Pattern{jailpolicy.Pattern("/" + t.TempDir())}}},
	}
	j, err := New(cfg, Request{
		Job: job, Label: "label", Backend: named{name: backend}, Space: place{t.TempDir()},
		Inside: func(address string) string { return "http://token@" + address },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Reach(); err != nil {
		t.Fatal(err)
	}
	return j
}

func jobWith(network jobs.Network) jobs.Job {
	var job jobs.Job
	job.Sandbox.Network, job.Sandbox.Preset = network, "strict"
	if network == jobs.NetworkAllowlist {
		job.Sandbox.AllowHosts = []string{"example.com"}
	}
	return job
}

// Each listener of a jail is found by what it leads to, however many there are.
func TestListenersAreFoundByName(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, backend string
		network       jobs.Network
		served        bool // a gate serves the model API
		model, inside string
		hosts         int
	}{
		{"no network", "bwrap", jobs.NetworkNone, true, gateAddress, insideAddress, 0},
		{"no gate", "bwrap", jobs.NetworkNone, false, "", insideAddress, 0},
		{"a list of hosts", "bwrap", jobs.NetworkAllowlist, true, gateAddress, insideAddress, 4},
		{"a list of hosts and no gate", "bwrap", jobs.NetworkAllowlist, false, "", insideAddress, 4},
		{"the host's network", "bwrap", jobs.NetworkFull, true, "host", "host", 0},
		{"the host's network and no gate", "bwrap", jobs.NetworkFull, false, "", "host", 0},
		{"no jail and a list of hosts", "none", jobs.NetworkAllowlist, false, "", "host", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			j := jailOf(t, tt.backend, jobWith(tt.network))
			way, err := j.Model(tt.served)
			if err != nil {
				t.Fatal(err)
			}
			defer way.Close()
			model := &way
			if !tt.served {
				model = nil
			}
			start, err := j.Agent(agent.Plan{Args: []string{"agent"}}, model)
			if err != nil {
				t.Fatal(err)
			}
			defer start.Close()
			var listeners []net.Listener
			for _, address := range start.Spec.Listen {
				if !strings.HasPrefix(address, "udp/") {
					listeners = append(listeners, opened{address: address})
				}
			}
			got := start.named(listeners)
			if at(got.Model) != tt.model || at(got.Inside) != tt.inside || len(got.Network) != tt.hosts {
				t.Errorf("model %q, inside %q, %d of the network; want %q, %q, %d", at(got.Model), at(got.Inside), len(got.Network), tt.model, tt.inside, tt.hosts)
			}
			for _, l := range got.Network {
				if !slices.Contains(j.listen, at(l)) {
					t.Errorf("%s leads to the allowed hosts, which was opened for something else", at(l))
				}
			}
		})
	}
}

// Who writes about a change gets none of what the job's own programs have.
func TestADraftHasNothingOfTheJob(t *testing.T) {
	t.Parallel()
	job := jobWith(jobs.NetworkAllowlist)
	job.Secrets = []string{"TOKEN"}
	j := jailOf(t, "bwrap", job)
	command, err := j.Command("true")
	if err != nil {
		t.Fatal(err)
	}
	writable := func(m sandbox.Mount) bool { return m.Writable }
	if !has(command.Spec.Env, "TOKEN=") || !has(command.Spec.Env, "HTTP_PROXY=") || !slices.ContainsFunc(command.Spec.Mounts, writable) {
		t.Fatalf("a command of the job has neither its secret, nor its network, nor its workspace: %+v", command.Spec)
	}
	start, err := j.Draft(agent.Plan{Args: []string{"agent"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := start.Spec
	if has(s.Env, "TOKEN=") || has(s.Env, "HTTP_PROXY=") || has(s.Env, InsideVariable+"=") || len(s.Listen) > 0 || slices.ContainsFunc(s.Mounts, writable) {
		t.Errorf("a draft has more than its agent: %+v", s)
	}
}

// Nothing leads out of a jail that is offline, not even to its worker.
func TestNothingLeadsOutOfAnOfflineJail(t *testing.T) {
	t.Parallel()
	job := jobWith(jobs.NetworkNone)
	job.Sandbox.Preset = "offline"
	start, err := jailOf(t, "bwrap", job).Agent(agent.Plan{Args: []string{"agent"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if start.Inside != "" || len(start.Spec.Listen) > 0 || has(start.Spec.Env, InsideVariable+"=") {
		t.Errorf("an offline jail has a way out: %+v", start)
	}
	job.Agent.Terminals = true
	if _, err := jailOf(t, "bwrap", job).Agent(agent.Plan{Args: []string{"agent"}}, nil); err == nil {
		t.Error("an agent that shall have terminals, and cannot ask for them, was not refused")
	}
}

// A policy that allows no MCP servers refuses a job that has some, and no other job.
func TestPolicyRefusesServers(t *testing.T) {
	deny := Config{Policy: policy.Policy{MCPServers: "deny"}}
	job := jobs.Job{}.WithDefaults()
	if err := deny.Permits(job, "", ""); err != nil {
		t.Errorf("without servers: %v", err)
	}
	job.Agent.MCPServers = map[string]jobs.MCPServer{"b": {Command: "x"}, "a": {Command: "x"}}
	if err := deny.Permits(job, "", ""); err == nil || !strings.Contains(err.Error(), "mcp_servers: a, b is not permitted") {
		t.Errorf("with servers: %v", err)
	}
	if err := (Config{}).Permits(job, "", ""); err != nil {
		t.Errorf("without a policy: %v", err)
	}
}

// The worker's way to MCP servers leads to those of the job, and no jail opens it.
func TestServersElsewhere(t *testing.T) {
	t.Parallel()
	job := jobWith(jobs.NetworkNone)
	job.Agent.MCPServers = map[string]jobs.MCPServer{"near": {Command: "sh"}}
	if j := jailOf(t, "bwrap", job); j.Servers != nil {
		t.Error("a server in the jail opens a way out")
	}
	job.Agent.MCPServers["far"] = jobs.MCPServer{URL: "https://tickets.example/mcp"}
	j := jailOf(t, "bwrap", job)
	start, err := j.Agent(agent.Plan{Args: []string{"agent"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer start.Close()
	if j.Servers == nil || j.Network != nil || !slices.Equal(start.Spec.Listen, []string{insideAddress}) {
		t.Errorf("the jail opens %q; the way to the servers is %v", start.Spec.Listen, j.Servers)
	}
	if c, err := j.Servers.Connect(t.Context(), "other.example:443"); err == nil {
		c.Close()
		t.Error("the worker connects to a host of no server")
	}
	job.Sandbox.Preset = "offline"
	j = jailOf(t, "bwrap", job)
	if start, err := j.Agent(agent.Plan{Args: []string{"agent"}}, nil); err == nil {
		start.Close()
		t.Error("a jail that nothing leads out of has servers elsewhere")
	}
}

// To name what setup depends on changes nothing of the jails that start afterwards.
func TestTheKeyOfASetupLeavesTheJail(t *testing.T) {
	t.Parallel()
	j := jailOf(t, "bwrap", jobWith(jobs.NetworkNone))
	j.req.Trace = jobs.RootTrace("job")
	spec := func() sandbox.Spec {
		t.Helper()
		start, err := j.Command("true")
		if err != nil {
			t.Fatal(err)
		}
		return start.Spec
	}
	before := spec()
	if _, _, err := j.SetupKey(1); err != nil {
		t.Fatal(err)
	}
	if after := spec(); !reflect.DeepEqual(after, before) {
		t.Errorf("before %+v, after %+v", before, after)
	}
}
