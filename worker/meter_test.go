package worker

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/builtin"
	"github.com/penstock-run/penstock/worker/gate"
)

// What the gate to a model API does not pass on is told once for each thing,
// and kept, without the secrets that an agent may put into it.
func TestRefusalsOfTheModelAPIAreTold(t *testing.T) {
	t.Parallel()
	const secret = "hunter2hunter2"
	exectest.Need(t, "curl")
	f := newField(t)
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("the API was asked for %s", r.URL) }))
	defer api.Close()
	g, err := gate.New(gate.Config{Key: "real-key", Upstream: api.URL})
	f.must(err)
	defer g.Close()
	f.cfg.Gates = map[string]*gate.Gate{"anthropic": g}
	f.cfg.Agents = builtin.Agents(agent.Config{})
	f.cfg.Secret = func(string) (string, bool) { return secret, true }
	var mu sync.Mutex
	var kept []policy.Violation
	f.cfg.Refused = func(v policy.Violation) { mu.Lock(); defer mu.Unlock(); kept = append(kept, v) }
	job := f.job(`ask() { curl -sS -m 20 -H "x-api-key: $ANTHROPIC_API_KEY" "$@"; }
		ask "$ANTHROPIC_BASE_URL/v1/files?key=$TOKEN"; ask "$ANTHROPIC_BASE_URL/v1/files"
		ask -X POST "$ANTHROPIC_BASE_URL/$TOKEN/$(printf '%0250d' 7)$TOKEN"
		ask -d '{"model":"m","tools":[{"type":"web_search_1","name":"'$TOKEN'"}]}' "$ANTHROPIC_BASE_URL/v1/messages"; true`)
	job.Secrets = []string{"TOKEN"}
	rec, events := f.run(job)
	if rec.Outcome != jobs.Success {
		t.Fatalf("%s %s (%s)", rec.Outcome, rec.Reason, rec.Message)
	}
	told := dataOf[event.JailViolation](t, events, jobs.JailViolation)
	if len(told) != 3 || len(kept) != 3 {
		t.Fatalf("told %+v, kept %+v", told, kept)
	}
	for i, want := range []struct{ what, reason string }{
		{"GET /v1/files", "path"}, {"POST /", "path"}, {"POST /v1/messages", "body: "},
	} {
		v, k := told[i], kept[i]
		if v.Kind != "model" || !strings.HasPrefix(v.Setting, want.what) || !strings.HasPrefix(v.Reason, want.reason) {
			t.Errorf("told %+v, want %+v", v, want)
		}
		if k.Kind != policy.KindModel || k.What != v.Setting || k.Reason != v.Reason || !strings.HasPrefix(k.Label, rec.ID+".") {
			t.Errorf("kept %+v of %+v", k, v)
		}
		if strings.Contains(k.What+k.Reason, "hunter") {
			t.Errorf("kept with the secret: %+v", k)
		}
	}
	if told[0].Setting != "GET /v1/files" {
		t.Errorf("the query is told, too: %s", told[0].Setting)
	}
}
