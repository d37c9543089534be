package metrics

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"
)

const (
	rulesFile     = "../deploy/prometheus/penstock.rules.yml"
	ruleTestsFile = "../deploy/prometheus/penstock.rules.test.yml"
)

// rule is a recording rule or an alert.
type rule struct {
	Record, Alert, Expr string
	Labels, Annotations map[string]string
}

func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func readRules(t *testing.T) []rule {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	readYAML(t, rulesFile, &file)
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatalf("%s has no rules", rulesFile)
	}
	return all
}

// promtool runs the tool of Prometheus.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil {
		if slices.Contains(strings.Split(os.Getenv("PENSTOCK_TEST_REQUIRE"), ","), "prometheus") {
			t.Fatal(err)
		}
		t.Skipf("prometheus is not installed: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "promtool", args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, out)
	}
}

func TestRulesAreValid(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", rulesFile)
	promtool(t, "check", "config", "../deploy/prometheus/prometheus.yml", "../deploy/prometheus/prometheus-compose.yml")
}

func TestAlertsFireWhenTheyShould(t *testing.T) {
	t.Parallel()
	promtool(t, "test", "rules", ruleTestsFile)
}

// Each alert has a unit test in which it fires, one in which it does not, what Prometheus
// and a person need to know, and a section of the runbooks. No other section is there.
func TestEveryAlertIsTestedAndExplained(t *testing.T) {
	t.Parallel()
	fires, silent := testedAlerts(t)
	text, err := os.ReadFile("../docs/how-to/runbooks.md")
	if err != nil {
		t.Fatal(err)
	}
	monitoring, err := os.ReadFile("../docs/how-to/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	explained := map[string]string{}
	sections := strings.Split(string(text), "\n### ")
	for _, section := range sections[1:] {
		name, body, _ := strings.Cut(section, "\n")
		explained[name] = body
	}
	for _, r := range readRules(t) {
		if r.Alert == "" {
			continue
		}
		if !fires[r.Alert] || !silent[r.Alert] {
			t.Errorf("%s: there is a test in which it fires: %t, one in which it does not: %t", r.Alert, fires[r.Alert], silent[r.Alert])
		}
		severity := r.Labels["severity"]
		if !slices.Contains([]string{"critical", "warning", "info"}, severity) {
			t.Errorf("%s has the severity %q", r.Alert, severity)
		}
		for _, name := range []string{"summary", "description"} {
			if !strings.HasSuffix(r.Annotations[name], ".") {
				t.Errorf("%s has the %s %q, which is no sentence", r.Alert, name, r.Annotations[name])
			}
		}
		if want := "https://github.com/penstock-run/penstock/blob/main/docs/how-to/runbooks.md#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
			t.Errorf("%s has the runbook %q, want %q", r.Alert, r.Annotations["runbook_url"], want)
		}
		if begin := fmt.Sprintf("\n*%s%s.* ", strings.ToUpper(severity[:1]), severity[1:]); !strings.HasPrefix(explained[r.Alert], begin) {
			t.Errorf("docs/how-to/runbooks.md does not explain %s: a section with its name begins with %q", r.Alert, begin)
		}
		if row := fmt.Sprintf("| [%s](runbooks.md#%s) | %s | ", r.Alert, strings.ToLower(r.Alert), severity); !strings.Contains(string(monitoring), row) {
			t.Errorf("docs/how-to/monitoring.md does not list %s: its row begins with %q", r.Alert, row)
		}
		delete(explained, r.Alert)
	}
	for name := range explained {
		t.Errorf("docs/how-to/runbooks.md explains %s, which is no alert", name)
	}
}

// testedAlerts are those that unit tests see firing, and those that they see silent.
func testedAlerts(t *testing.T) (fires, silent map[string]bool) {
	t.Helper()
	var file struct {
		Tests []struct {
			Expressions []struct {
				Expr    string
				Samples []struct{ Value float64 } `yaml:"exp_samples"`
			} `yaml:"promql_expr_test"`
		}
	}
	readYAML(t, ruleTestsFile, &file)
	fires, silent = map[string]bool{}, map[string]bool{}
	firing := regexp.MustCompile(`ALERTS\{alertname="(\w+)", alertstate="firing"\}`)
	for _, test := range file.Tests {
		for _, e := range test.Expressions {
			m := firing.FindStringSubmatch(e.Expr)
			switch {
			case m == nil:
			case len(e.Samples) == 0:
				silent[m[1]] = true
			default:
				fires[m[1]] = true
			}
		}
	}
	return fires, silent
}

// sent are the names of all series of workers and dispatchers, those of histograms with
// their suffixes.
func sent(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	reg, _ := worker(t)
	dreg, _ := dispatcher(t, budgeted)
	for _, g := range []prometheus.Gatherer{reg, dreg, NewRegistry(Info{})} {
		families, err := g.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			names[f.GetName()] = true
			if len(f.GetMetric()) > 0 && f.GetMetric()[0].GetHistogram() != nil {
				for _, suffix := range []string{"_bucket", "_sum", "_count"} {
					names[f.GetName()+suffix] = true
				}
			}
		}
	}
	return names
}

// unrelated begin like a series: a build tag in docs/explanation/chaos.md, and files in docs/how-to/install.md.
var unrelated = []string{"penstock_unfenced", "penstock_VERSION_ARCH", "penstock_"}

// named are words that may name a series, recorded ones, too, as a whole.
var named = regexp.MustCompile(`[A-Za-z_:][A-Za-z0-9_:]*`)

// missing are the series of Penstock in a text that are neither sent nor recorded.
func missing(text string, known map[string]bool) []string {
	var all []string
	for _, name := range named.FindAllString(text, -1) {
		if strings.Contains(name, namespace+"_") && !known[name] && !slices.Contains(unrelated, name) {
			all = append(all, name)
		}
	}
	return all
}

// The rules, their tests and the documentation name only series that there are.
func TestNamedSeriesExist(t *testing.T) {
	t.Parallel()
	known := sent(t)
	for _, r := range readRules(t) {
		if r.Record != "" {
			known[r.Record] = true
		}
	}
	for _, r := range readRules(t) {
		for _, name := range missing(r.Expr, known) {
			t.Errorf("%s%s: there is no series %s", r.Alert, r.Record, name)
		}
	}
	pages, err := filepath.Glob("../docs/*/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("%v: %d pages", err, len(pages))
	}
	for _, page := range append(pages, ruleTestsFile) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range missing(string(text), known) {
			t.Errorf("%s: there is no series %s", page, name)
		}
	}
}
