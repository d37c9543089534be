package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs/flaky"
	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/sandbox/slowtest"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// An alertFault makes alerts fire in a pool, and they end when it is repaired.
type alertFault struct {
	what    string // as docs/how-to/monitoring.md says it
	alerts  []string
	provoke func(p *watchedPool) (repair func())
}

// An alertPool is a pool of TestAlertsFireOnFaults, with the faults that it gets at the same time.
type alertPool struct {
	name    string
	workers int // that are processes of their own
	// open starts the pool. An error says what is missing here, and lacks is its name for
	// PENSTOCK_TEST_REQUIRE.
	open   func(p *watchedPool) (lacks string, err error)
	faults []alertFault
}

var alertPools = []alertPool{
	{"queues", 0, serveQueues, []alertFault{
		{"jobs exceed their limit of time", []string{"PenstockJobErrorRatioHigh"}, takesTooLong},
		{"a webhook's receiver answers 503", []string{"PenstockWebhookBehind"}, answers(http.StatusServiceUnavailable)},
		{"a webhook's receiver answers 410", []string{"PenstockWebhookDisabled"}, answers(http.StatusGone)},
		{"a submission has a field that is unknown", []string{"PenstockDeadLetters"}, submitsNonsense},
		{"a job needs a label that no worker has", []string{"PenstockQueueStuck", "PenstockOldestJobWaiting"}, needsALabel},
	}},
	{"worker", 1, serveAndWork, []alertFault{
		{"a worker is killed while a job waits", []string{"PenstockTargetDown", "PenstockNoWorkers"}, killsTheWorker},
	}},
	{"versions", 1, serveAlone, []alertFault{
		{"a worker of another version begins to work", []string{"PenstockVersionsDiffer"}, worksInAnotherVersion},
	}},
	{"leader", 0, serveAlone, []alertFault{
		{"the only dispatcher is stopped by SIGSTOP", []string{"PenstockNoLeader"}, stopsTheDispatcher},
	}},
	{"broker", 0, serveWithABroker, []alertFault{
		{"the broker is killed while clients ask the dispatcher over HTTP",
			[]string{"PenstockNoLeader", "PenstockBrokerDisconnected", "PenstockStateUnreadable", "PenstockHTTPErrors"}, killsTheBroker},
	}},
	{"network", 2, serveWithABroker, []alertFault{
		{"the network between a worker and the broker is cut for longer than a lease",
			[]string{"PenstockBrokerDisconnected", "PenstockWorkerSilent", "PenstockLeasesLost"}, cutsTheNetwork},
	}},
	{"store", 0, serveASmallStore, []alertFault{
		{"another program fills the broker's store while an agent writes", []string{"PenstockStoreNearlyFull", "PenstockEventsLost"}, fillsTheStore},
	}},
	{"backups", 0, serveAlone, []alertFault{
		{"the first backup cannot be written", []string{"PenstockBackupOld"}, failsToBackUp},
	}},
	{"disk", 0, serveOnASmallDisk, []alertFault{
		{"the disk of a worker fills", []string{"PenstockWorkerDiskLow"}, fillsTheDisk},
	}},
	{"jails", 0, serveWithItsOwnBubblewrap, []alertFault{
		{"bubblewrap fails whenever it is started", []string{"PenstockSandboxStartsFailing"}, breaksBubblewrap},
	}},
	{"models", 0, serveClaude, []alertFault{
		{"the model's API answers Claude Code with 401", []string{"PenstockModelAccessFailing"}, refusesTheKey},
	}},
	{"spending", 0, serveClaude, []alertFault{
		{"the model's API counts 100 million tokens for Claude Code", []string{"PenstockCostRateHigh"}, usesManyTokens},
	}},
}

// A watchedPool is a pool that Prometheus scrapes.
type watchedPool struct {
	*fixture
	scraped
	faults  []alertFault
	prom    prometheus
	web     string // address of HTTP
	broker  string // URL; empty is the embedded one
	process map[string]*program
	bin     string // a directory of its own in PATH
}

func newWatchedPool(t *testing.T, of alertPool) *watchedPool {
	p := &watchedPool{
		fixture: newFixture(t), scraped: scraped{job: "penstock-" + of.name, dispatcher: freeAddress(t)},
		faults: of.faults, web: freeAddress(t), process: map[string]*program{},
	}
	for range of.workers {
		p.workers = append(p.workers, freeAddress(t))
	}
	return p
}

// Each alert fires in a real Prometheus when a real pool gets the fault that it is about, not
// before, and ends when the fault is repaired. The pools are beside each other in one
// Prometheus, and get their faults at the same time.
func TestAlertsFireOnFaults(t *testing.T) {
	t.Parallel()
	var pools []*watchedPool
	var jobs []scraped
	var lacking []func()
	for _, of := range alertPools {
		p := newWatchedPool(t, of)
		if lacks, err := of.open(p); err != nil {
			lacking = append(lacking, func() { skip(t, lacks, "%s: %v", of.name, err) })
			continue
		}
		pools, jobs = append(pools, p), append(jobs, p.scraped)
	}
	// A dispatcher without its broker answers a scrape after two seconds.
	every := min(slowtest.Pace(3*time.Second), 10*time.Second)
	prom := pools[0].prometheus(every, func(rules string) string { return hasten(rules, max(30*time.Second, 10*every)) }, jobs...)
	for _, p := range pools {
		p.prom = prometheus{p.fixture, prom.api}
		p.eventually(30*time.Second, "the dispatcher is scraped", func() bool {
			return len(p.prom.query(fmt.Sprintf(`penstock_leader{job=%q} == 1`, p.job))) == 1
		})
		p.silent("before the fault")
	}
	began := time.Now()
	var repairs []func()
	for _, p := range pools {
		for _, fault := range p.faults {
			repairs = append(repairs, fault.provoke(p))
		}
	}
	for _, p := range pools {
		p.fire(began)
	}
	for _, repair := range repairs {
		repair()
	}
	for _, p := range pools {
		p.silent("after it was repaired")
	}
	for _, lack := range lacking {
		lack()
	}
}

// hasten shortens times of rules, and changes nothing else of them: for how long an alert must
// have reason to fire, over what time rules take an increase or a rate, and from which age on
// a job, a heartbeat or an event is too old.
func hasten(rules string, window time.Duration) string {
	spans := regexp.MustCompile(`\[(?:5m|10m|15m|1h)\]`)
	ages := regexp.MustCompile(`> (?:4 \* 3600|1800|120)\b`)
	rules = spans.ReplaceAllString(atOnce(rules), fmt.Sprintf("[%ds]", window/time.Second))
	return ages.ReplaceAllString(rules, "> 12") // a heartbeat comes every 5 seconds
}

// watching lists the alerts that the faults of the pool make fire.
func (p *watchedPool) watching() []string {
	var names []string
	for _, fault := range p.faults {
		names = append(names, fault.alerts...)
	}
	return names
}

// fire waits until the alerts of the pool's faults have fired since a time, and reads what those say
// that fire.
func (p *watchedPool) fire(since time.Time) {
	p.Helper()
	var got []string
	defer func() {
		if p.Failed() {
			p.Logf("%s: these alerts fired at last: %v", p.job, got)
		}
	}()
	want := p.watching()
	p.eventually(60*time.Second, fmt.Sprintf("%s: %v fire", p.job, want), func() bool {
		got = p.prom.fired(p.job, time.Since(since))
		return !slices.ContainsFunc(want, func(name string) bool { return !slices.Contains(got, name) })
	})
	p.Logf("%s: %v fire", p.job, got)
	var data struct {
		Alerts []struct{ Labels, Annotations map[string]string }
	}
	p.prom.ask("alerts", nil, &data)
	for _, a := range data.Alerts {
		for name, text := range a.Annotations {
			if a.Labels["job"] == p.job && (strings.Contains(text, "<") || strings.Contains(text, "{{")) {
				p.Errorf("an alert has the %s %q", name, text)
			}
		}
	}
}

// silent waits until no alert of the pool's faults fires.
func (p *watchedPool) silent(when string) {
	p.Helper()
	not := p.watching()
	p.eventually(90*time.Second, fmt.Sprintf("%s: none of %v fires %s", p.job, not, when), func() bool {
		return !slices.ContainsFunc(p.prom.fired(p.job, 0), func(name string) bool { return slices.Contains(not, name) })
	})
}

// serves starts the dispatcher.
func (p *watchedPool) serves(args ...string) {
	p.Helper()
	args = append([]string{"serve", "--http", p.web, "--admin", p.dispatcher, "--drain", "1s"}, args...)
	if p.broker == "" {
		args = append(args, "--listen", freeAddress(p))
	}
	p.process["dispatcher"] = p.start("serving", args...)
}

// works starts worker n, with two slots.
func (p *watchedPool) works(n int, args ...string) *program {
	p.Helper()
	return p.start("slots on", append([]string{"worker", "--admin", p.workers[n], "--slots", "2", "--drain", "1s"}, args...)...)
}

func serveAlone(p *watchedPool) (lacks string, err error) {
	p.serves("--slots", "0")
	return "", nil
}

func serveAndWork(p *watchedPool) (lacks string, err error) {
	p.serves("--slots", "0")
	p.process["worker"] = p.works(0)
	return "", nil
}

func killsTheWorker(p *watchedPool) func() {
	p.process["worker"].kill()
	id := p.submit("true")
	return func() {
		p.works(0)
		p.run("wait", "--timeout", patience(60), id)
	}
}

func worksInAnotherVersion(p *watchedPool) func() {
	program := filepath.Join(p.TempDir(), "penstock")
	build := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-X main.version=v0.0.1", "-o", program, ".")
	out, err := build.CombinedOutput()
	if err != nil {
		p.Fatalf("build another version: %v\n%s", err, out)
	}
	other := *p.fixture
	other.program = program
	return other.start("slots on", "worker", "--admin", p.workers[0], "--slots", "1").end
}

func stopsTheDispatcher(p *watchedPool) func() {
	exectest.Pause(p, p.process["dispatcher"].Process)
	return func() { p.must(p.process["dispatcher"].Process.Signal(syscall.SIGCONT)) }
}

func serveQueues(p *watchedPool) (lacks string, err error) {
	p.env = append(p.env, "PENSTOCK_WEBHOOKS_ALLOW_PRIVATE=127.0.0.0/8")
	p.serves("--slots", "6", "--queues", "default,stuck")
	return "", nil
}

// answers is the fault of a receiver of webhooks.
func answers(status int) func(p *watchedPool) func() {
	return func(p *watchedPool) func() {
		receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		p.Cleanup(receiver.Close)
		name := fmt.Sprint("receiver", status)
		p.run("webhook", "add", name, "--url", receiver.URL)
		p.submit("true")
		return func() { p.run("webhook", "rm", name) }
	}
}

func takesTooLong(p *watchedPool) func() {
	for range 6 {
		p.submit("sleep 60", "--timeout", "1s", "--max-attempts", "1")
	}
	return func() {}
}

func submitsNonsense(p *watchedPool) func() {
	_, err := p.bus().Request("penstock.v1.submit.default", []byte(`{"prompt":"x","agent":{"brand":"claude"}}`), 10*time.Second)
	p.must(err)
	return func() { p.run("dead", "drop", p.letters()[0].ID) }
}

func needsALabel(p *watchedPool) func() {
	id := p.submit("true", "--queue", "stuck", "--need", "gpu")
	return func() { p.run("job", "cancel", id) }
}

func serveWithABroker(p *watchedPool) (lacks string, err error) {
	urls, running := p.servers(1)
	p.broker, p.process["broker"] = urls[0], running[0]
	p.env = append(p.env, "PENSTOCK_SERVER="+p.broker)
	p.serves("--slots", "0")
	return "", nil
}

func killsTheBroker(p *watchedPool) func() {
	broker := p.process["broker"]
	broker.kill()
	token := p.httpToken()
	request, err := http.NewRequestWithContext(p.Context(), http.MethodGet, "http://"+p.web+"/v1/jobs", nil)
	p.must(err)
	request.Header.Set("Authorization", "Bearer "+token)
	over := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(500 * time.Millisecond):
				if answer, err := http.DefaultClient.Do(request); err == nil {
					_ = answer.Body.Close()
				}
			}
		}
	})
	end := sync.OnceFunc(func() { close(over); asking.Wait() })
	p.Cleanup(end)
	return func() {
		p.begin(broker.Args[1:]...)
		p.becomes(http.StatusOK, p.web, "/v1/jobs", token)
		end()
	}
}

func cutsTheNetwork(p *watchedPool) func() {
	at, err := url.Parse(p.broker)
	p.must(err)
	network, err := flaky.Listen(at.Host)
	p.must(err)
	p.Cleanup(network.Close)
	at.Host = strings.TrimPrefix(network.URL(), "nats://")
	p.works(0, "--server", at.String(), "--name", "far")
	ids := []string{p.submit("echo begun; " + onlyFirst), p.submit("echo begun; " + onlyFirst)}
	for _, id := range ids {
		p.runs(id)
	}
	p.works(1, "--name", "near")
	network.Cut()
	p.run(append([]string{"wait", "--timeout", patience(60)}, ids...)...)
	return network.Heal
}

func serveASmallStore(p *watchedPool) (lacks string, err error) {
	p.env = append(p.env, "PENSTOCK_RETENTION_STORE_BYTES=32MiB")
	p.serves("--slots", "1")
	return "", nil
}

func fillsTheStore(p *watchedPool) func() {
	id := p.submit("while sleep 0.1; do echo begun; done")
	p.runs(id)
	empty := p.fillStore(64 << 20)
	return func() {
		empty()
		p.run("job", "cancel", id)
	}
}

func failsToBackUp(p *watchedPool) func() {
	dir := p.TempDir()
	if _, code, said := p.try("backup", filepath.Join(dir, "missing", "file")); code == 0 {
		p.Errorf("a backup in a directory that is missing: %s", said)
	}
	return func() { p.run("backup", dir, "--verify") }
}

func serveOnASmallDisk(p *watchedPool) (lacks string, err error) {
	if err := p.mountSmall(filepath.Join(p.data, "work"), 64); err != nil {
		return "mount", err
	}
	p.serves("--slots", "1", "--reserve", "24MiB")
	return "", nil
}

func fillsTheDisk(p *watchedPool) func() {
	ballast := filepath.Join(p.data, "work", "ballast")
	p.must(os.WriteFile(ballast, make([]byte, 48<<20), 0o600))
	return func() { p.must(os.Remove(ballast)) }
}

func serveWithItsOwnBubblewrap(p *watchedPool) (lacks string, err error) {
	path, err := exec.LookPath("bwrap")
	p.must(err)
	p.bin = p.TempDir()
	p.must(os.Symlink(path, filepath.Join(p.bin, "bwrap")))
	p.env = append(p.env, "PATH="+p.bin+":"+os.Getenv("PATH"))
	p.serves("--slots", "2")
	return "", nil
}

func breaksBubblewrap(p *watchedPool) func() {
	bwrap := filepath.Join(p.bin, "bwrap")
	replace := func(target string) {
		p.must(os.Remove(bwrap))
		p.must(os.Symlink(target, bwrap))
	}
	works, err := os.Readlink(bwrap)
	p.must(err)
	replace("/bin/false")
	for range 3 {
		p.submit("true")
	}
	return func() { replace(works) }
}

func serveClaude(p *watchedPool) (lacks string, err error) {
	if _, err := exec.LookPath("claude"); err != nil {
		return "claude", errors.New("no Claude Code in PATH: npm install -g @anthropic-ai/claude-code")
	}
	model := httptest.NewServer(agenttest.New(
		agenttest.Script{On: "REFUSE", Steps: []agenttest.Step{agenttest.Fail(http.StatusUnauthorized, "authentication_error")}},
		agenttest.Script{On: "SPEND", Steps: []agenttest.Step{func(agenttest.Request) agenttest.Reply {
			return agenttest.Reply{Text: "done", Input: 100_000_000}
		}}},
	))
	p.Cleanup(model.Close)
	p.env = append(p.env, "ANTHROPIC_API_KEY="+keyPrefix+"alerts", "PENSTOCK_MODEL_ANTHROPIC_URL="+model.URL)
	p.serves("--slots", "2")
	return "", nil
}

// prompts submits n jobs for Claude Code.
func (p *watchedPool) prompts(n int, prompt string) (ids []string) {
	p.Helper()
	for range n {
		ids = append(ids, strings.TrimSpace(p.run("submit", prompt, "--agent", "claude", "--model", "claude-sonnet-4-5", "--repo", p.repo, "--max-attempts", "1", "-o", "id")))
	}
	return ids
}

func refusesTheKey(p *watchedPool) func() {
	ids := p.prompts(3, "REFUSE")
	return func() { p.run(append([]string{"job", "cancel"}, ids...)...) } // they wait for another key
}

func usesManyTokens(p *watchedPool) func() {
	p.prompts(1, "SPEND")
	return func() {}
}

// An alert that no fault was seen to make fire may be one that never fires. The page about
// monitoring says by which fault each was seen.
func TestEveryAlertHasAFault(t *testing.T) {
	t.Parallel()
	rules, err := os.ReadFile("../../deploy/prometheus/penstock.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/how-to/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	provoked := map[string]bool{}
	for _, of := range alertPools {
		for _, fault := range of.faults {
			if row := fmt.Sprintf("| %s | %s |\n", fault.what, strings.Join(fault.alerts, ", ")); !strings.Contains(string(page), row) {
				t.Errorf("docs/how-to/monitoring.md has no row %s", row)
			}
			for _, name := range fault.alerts {
				provoked[name] = true
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(string(rules), -1) {
		if !provoked[m[1]] {
			t.Errorf("no fault of TestAlertsFireOnFaults makes %s fire", m[1])
		}
		delete(provoked, m[1])
	}
	for name := range provoked {
		t.Errorf("%s is no alert", name)
	}
}
