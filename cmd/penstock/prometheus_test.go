package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A prometheus is the program, on a directory of its own.
type prometheus struct {
	f   *fixture
	api string
}

// sample is a series with its value now.
type sample struct {
	Metric map[string]string
	Value  [2]any
}

func (s sample) number() float64 {
	text, _ := s.Value[1].(string)
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return n
}

// A scraped pool is a job of Prometheus with the admin addresses of its processes.
type scraped struct {
	job, dispatcher string
	workers         []string
}

// atOnce has alerts of rules fire as soon as they have reason to.
func atOnce(rules string) string {
	return regexp.MustCompile(`(?m)^( +for:) .*$`).ReplaceAllString(rules, "$1 1s")
}

// prometheus starts the program with the configuration that is delivered, in which it names
// pools and scrapes them at an interval of whole seconds, and with the rules that are
// delivered, of which it changes times.
func (f *fixture) prometheus(every time.Duration, hasten func(rules string) string, pools ...scraped) prometheus {
	f.Helper()
	if _, err := exec.LookPath("prometheus"); err != nil {
		skip(f, "prometheus", "prometheus is not installed: %v", err)
	}
	dir := f.TempDir()
	deliver := func(name string, change func(string) string) {
		text, err := os.ReadFile(filepath.Join("../../deploy/prometheus", name))
		f.must(err)
		f.must(os.WriteFile(filepath.Join(dir, name), []byte(change(string(text))), 0o600))
	}
	deliver("prometheus.yml", func(text string) string {
		before, after, _ := strings.Cut(text, "  - job_name: penstock\n")
		after, _, _ = strings.Cut(after, "\n# alerting:")
		text = strings.NewReplacer("scrape_interval: 15s", fmt.Sprintf("scrape_interval: %ds", every/time.Second), "evaluation_interval: 15s", "evaluation_interval: 1s").Replace(before)
		for _, p := range pools {
			addresses := strings.NewReplacer("127.0.0.1:9090", p.dispatcher, "127.0.0.1:9091", strings.Join(p.workers, "\n          - "))
			text += "  - job_name: " + p.job + "\n" + addresses.Replace(after)
		}
		return text
	})
	deliver("penstock.rules.yml", hasten)
	address := freeAddress(f)
	cmd := exec.Command("prometheus", "--config.file", filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", address)
	f.launch(cmd, "Server is ready to receive web requests")
	return prometheus{f, "http://" + address + "/api/v1/"}
}

// ask decodes the data of an answer; an error of Prometheus fails the test.
func (p prometheus) ask(path string, form url.Values, into any) {
	p.f.Helper()
	resp, err := http.PostForm(p.api+path, form) //nolint:noctx // our own program, on loopback
	if form == nil {
		resp, err = http.Get(p.api + path) //nolint:noctx // the same
	}
	p.f.must(err)
	defer resp.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: into}
	p.f.must(json.NewDecoder(resp.Body).Decode(&answer))
	if answer.Status != "success" {
		p.f.Fatalf("%s %v: %s", path, form, answer.Error)
	}
}

func (p prometheus) query(expr string) []sample {
	p.f.Helper()
	var data struct{ Result []sample }
	p.ask("query", url.Values{"query": {expr}}, &data)
	return data.Result
}

// fired lists the alerts of a job that fire, or have fired within the time before.
func (p prometheus) fired(job string, within time.Duration) []string {
	p.f.Helper()
	series := fmt.Sprintf(`ALERTS{alertstate="firing", job=%q}`, job)
	if within >= time.Millisecond {
		series = fmt.Sprintf("last_over_time(%s[%dms])", series, within.Milliseconds())
	}
	var names []string
	for _, s := range p.query("count by (alertname) (" + series + ")") {
		names = append(names, s.Metric["alertname"])
	}
	return slices.Sorted(slices.Values(names))
}

// rules fails unless all rules were evaluated without an error, and returns the names of
// those that record.
func (p prometheus) rules() []string {
	p.f.Helper()
	type rule struct{ Name, Type, Health, LastError string }
	var data struct {
		Groups []struct{ Rules []rule }
	}
	p.f.eventually(30*time.Second, "all rules were evaluated", func() bool {
		data.Groups = nil
		p.ask("rules", nil, &data)
		return len(data.Groups) > 0 && !slices.ContainsFunc(data.Groups, func(g struct{ Rules []rule }) bool {
			return slices.ContainsFunc(g.Rules, func(r rule) bool { return r.Health == "unknown" })
		})
	})
	var recorded []string
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			if r.Health != "ok" {
				p.f.Errorf("rule %s is %s: %s", r.Name, r.Health, r.LastError)
			}
			if r.Type == "recording" {
				recorded = append(recorded, r.Name)
			}
		}
	}
	return recorded
}

// What is delivered for Prometheus and Grafana, on a real pool under load: each series, rule and
// query has numbers, and no alert fires while the pool is well.
func TestPrometheusWatchesAPool(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	dispatcher, worker, web := freeAddress(f), freeAddress(f), freeAddress(f)
	f.start("serving", "serve", "--listen", freeAddress(f), "--http", web, "--slots", "0", "--admin", dispatcher, "--budget", "pool=1000/day", "--quota", "queue:*=1000", "--quota", "queue:*=20GiB", "--drain", "1s")
	f.start("slots on", "worker", "--slots", "2", "--admin", worker, "--drain", "1s")
	p := f.prometheus(time.Second, atOnce, scraped{"penstock", dispatcher, []string{worker}})
	f.eventually(30*time.Second, "both are scraped", func() bool { return len(p.query("up == 1")) == 2 })
	for range 3 {
		f.submit("echo fits >new.txt")
	}
	f.try("wait", "--timeout", patience(60), f.submit("true"), f.submit("exit 1"))
	f.page("http://" + web + "/v1/version")
	f.documented(dispatcher, worker)
	f.eventually(30*time.Second, "no alert fires", func() bool {
		// On a busy machine one reading may take longer than it may, which counts for minutes.
		return len(slices.DeleteFunc(p.fired("penstock", 0), func(name string) bool { return name == "PenstockStateUnreadable" })) == 0
	})

	running := []string{f.submit("echo begun; sleep 300"), f.submit("sleep 300")}
	f.runs(running[0])
	f.submit("sleep 300") // which waits
	p.dashboards()
	for _, name := range p.rules() {
		p.numbers(name, "last_over_time("+name+"[10m])")
	}
}

// numbers waits until a query has a number.
func (p prometheus) numbers(what, expr string) {
	p.f.Helper()
	p.f.eventually(30*time.Second, what+" has a number: "+expr, func() bool {
		return slices.ContainsFunc(p.query(expr), func(s sample) bool { return !math.IsNaN(s.number()) })
	})
}

// dashboards runs the query of every panel that is delivered, as Grafana would.
func (p prometheus) dashboards() {
	p.f.Helper()
	files, err := filepath.Glob("../../deploy/grafana/*.json")
	p.f.must(err)
	asked := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		p.f.must(err)
		var board struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
		p.f.must(json.Unmarshal(text, &board))
		chosen := strings.NewReplacer("$__rate_interval", "5m", "$__range", "5m", "$job", ".+", "$instance", ".+", "$queue", ".+", "$agent", ".+")
		for _, panel := range board.Panels {
			for _, target := range panel.Targets {
				asked++
				p.numbers(filepath.Base(file)+": "+panel.Title, chosen.Replace(target.Expr))
			}
		}
	}
	if asked < 50 {
		p.f.Errorf("%d queries of %d dashboards", asked, len(files))
	}
}

// documented compares the series that processes send with docs/reference/metrics.md.
func (f *fixture) documented(addresses ...string) {
	f.Helper()
	sent := map[string]bool{}
	for _, address := range addresses {
		for _, m := range regexp.MustCompile(`(?m)^# TYPE (penstock_\w+) `).FindAllStringSubmatch(f.page("http://"+address+"/metrics"), -1) {
			sent[m[1]] = true
		}
	}
	text, err := os.ReadFile("../../docs/reference/metrics.md")
	f.must(err)
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(penstock_\\w+)` ").FindAllStringSubmatch(string(text), -1) {
		documented[m[1]] = true
	}
	if !maps.Equal(sent, documented) {
		f.Errorf("sent and documented differ:\n%v\n%v", slices.Sorted(maps.Keys(sent)), slices.Sorted(maps.Keys(documented)))
	}
}
