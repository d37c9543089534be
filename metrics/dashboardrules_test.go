package metrics

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The tests below are the rules of github.com/grafana/dashboard-linter, which cannot be a
// tool of ours: it is built with replaced modules, and of all of Loki.

func readDashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob("../deploy/grafana/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v: %d dashboards", err, len(files))
	}
	all := map[string]dashboard{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[filepath.Base(file)] = d
		for _, uid := range regexp.MustCompile(`"uid": *"([^"]*)"`).FindAllStringSubmatch(string(text), -1) {
			if uid[1] != "${datasource}" {
				t.Errorf("%s has the uid %s, which is that of one installation", file, uid[1])
			}
		}
	}
	return all
}

// Readers choose the data source, jobs and instances; no dashboard can be edited where it is
// provisioned.
func TestDashboardVariables(t *testing.T) {
	for name, d := range readDashboards(t) {
		if d.Editable || d.Title == "" || d.Description == "" {
			t.Errorf("%s is editable: %t, has the title %q and the description %q", name, d.Editable, d.Title, d.Description)
		}
		var names []string
		for _, v := range d.Templating.List {
			names = append(names, v.Name)
			if v.Type == "datasource" {
				if v.Name != "datasource" || v.Label != "Data source" || v.Query != "prometheus" {
					t.Errorf("%s: the data source is %+v", name, v)
				}
				continue
			}
			if v.Type != "query" || v.Datasource == nil || v.Datasource.UID != "${datasource}" || !v.Multi || v.AllValue != ".+" || v.Refresh != 2 {
				t.Errorf("%s: the variable is %+v", name, v)
			}
			if v.Label != strings.ToUpper(v.Name[:1])+v.Name[1:] {
				t.Errorf("%s: the variable %s has the label %q", name, v.Name, v.Label)
			}
			if !strings.HasPrefix(v.Query, "label_values(penstock_") || !strings.HasSuffix(v.Query, ", "+v.Name+")") {
				t.Errorf("%s: the variable %s has the values of %s", name, v.Name, v.Query)
			}
		}
		for _, want := range []string{"datasource", "job", "instance"} {
			if !slices.Contains(names, want) {
				t.Errorf("%s has no variable %s", name, want)
			}
		}
	}
}

// units are those of Grafana that ours use.
var units = []string{"short", "s", "bytes", "Bps", "percentunit", "currencyUSD", "ops", "reqps", "cps", "bool"}

func TestDashboardPanels(t *testing.T) {
	for name, d := range readDashboards(t) {
		seen := map[int]bool{}
		for _, p := range d.Panels {
			if seen[p.ID] || p.GridPos.X+p.GridPos.W > gridWidth {
				t.Errorf("%s: %s has the number %d and the place %+v", name, p.Title, p.ID, p.GridPos)
			}
			seen[p.ID] = true
			if p.Type == "row" {
				continue
			}
			if p.Title == "" || !strings.HasSuffix(p.Description, ".") {
				t.Errorf("%s: panel %d has the title %q and the description %q", name, p.ID, p.Title, p.Description)
			}
			if p.Datasource == nil || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 || !slices.Contains(units, p.FieldConfig.Defaults.Unit) {
				t.Errorf("%s: %s has the data source %+v, %d queries and the unit %q", name, p.Title, p.Datasource, len(p.Targets), p.FieldConfig.Defaults.Unit)
			}
		}
	}
}

// A query narrows each series to the chosen jobs and instances, takes the rate of counters over
// the interval that suits the graph, and names only series that there are.
func TestDashboardQueries(t *testing.T) {
	known := sent(t)
	selector := regexp.MustCompile(`(\w*)\(?((?:penstock|process)_\w+)(\{[^}]*\})?(\[[^\]]*\])?`)
	for name, d := range readDashboards(t) {
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				for _, m := range selector.FindAllStringSubmatch(q.Expr, -1) {
					function, series, labels, span := m[1], m[2], m[3], m[4]
					if !strings.HasPrefix(labels, `{job=~"$job", instance=~"$instance"`) {
						t.Errorf("%s, %s: %s is not narrowed to jobs and instances", name, p.Title, series)
					}
					switch {
					case function == "rate" && span != "[$__rate_interval]", function == "increase" && span != "[$__range]":
						t.Errorf("%s, %s: the %s of %s is over %s", name, p.Title, function, series, span)
					case strings.HasSuffix(series, "_total") && function != "rate" && function != "increase":
						t.Errorf("%s, %s: %s is a counter, and shown as it is", name, p.Title, series)
					}
				}
				for _, series := range missing(q.Expr, known) {
					t.Errorf("%s, %s: there is no series %s", name, p.Title, series)
				}
			}
		}
	}
}

// Every query is one: promtool reads them as rules.
func TestDashboardQueriesAreValid(t *testing.T) {
	t.Parallel()
	type record struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var all []record
	for _, d := range readDashboards(t) {
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				expr := strings.NewReplacer("$__rate_interval", "5m", "$__range", "6h").Replace(q.Expr)
				all = append(all, record{fmt.Sprintf("query:number%d:value", len(all)), expr})
			}
		}
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "queries", "rules": all}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "queries.yml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)
}

// What a worker or a dispatcher sends is shown by a dashboard, but for what has no line of its
// own to tell.
func TestDashboardsShowWhatIsSent(t *testing.T) {
	shown := map[string]bool{}
	for _, d := range readDashboards(t) {
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				for _, name := range named.FindAllString(q.Expr, -1) {
					shown[strings.TrimSuffix(name, "_bucket")] = true
				}
			}
		}
	}
	shown["penstock_nats_connected"] = true         // an alert
	shown["penstock_collector_errors_total"] = true // another one
	shown["penstock_webhooks_disabled"] = true      // another one
	for name := range sent(t) {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		if strings.HasPrefix(name, namespace+"_") && !shown[base] {
			t.Errorf("no dashboard shows %s", name)
		}
	}
}
