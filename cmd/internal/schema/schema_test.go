package schema

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/penstock-run/penstock/cmd/internal/results"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

// resolved is a schema as its readers have it: from the JSON that For, ForKind or
// ForOperation prints.
func resolved(t testing.TB, printed func(string) ([]byte, error), name string) *jsonschema.Resolved {
	t.Helper()
	raw, err := printed(name)
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return r
}

func validate(t testing.TB, r *jsonschema.Resolved, text string) error {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r.Validate(v)
}

// full is the job of the documentation, with every field in use.
const full = `{"key":"gh-acme-web-17","batch":"b1","item":"17","session":"0199a000-0000-7000-8000-000000000001","queue":"default","priority":"normal","labels":{"team":"web"},
 "prompt":"…","issue":{"number":17,"title":"…","body":"…","url":"…","labels":["bug"]},"files":[{"name":"a.txt","content":"YQ=="}],
 "repo":{"url":"/src/app","ref":"main","commit":"0123456789012345678901234567890123456789"},
 "isolation":"container","image":"golang:1.26",
 "sandbox":{"backend":"auto","preset":"strict","network":"allowlist","allow_hosts":["registry.example"],"limits":{"memory":"2GiB","cpus":2.5,"pids":512,"disk":10737418240},"allow_weaker":["x"]},
 "agent":{"name":"claude","model":"m","effort":"low","allow_models":["claude-*","o3:1"],"allow_service_tiers":["none"],"allow_inference_geos":["us"],"allow_betas":["responses=experimental"],"allow_file_ids":["f*"],"allow_container_ids":["auto"],"max_turns":50,"args":["-v"],"interactive":false,"terminals":true,"instructions":"Be brief.","skills":{"tide":{"files":{"SKILL.md":"---\nname: tide\ndescription: Tides.\n---\n"}}},"mcp_servers":{"tiny":{"command":"sh","args":["s"],"env":{"A":"b"}}}},
 "env":{"CI":"1"},"secrets":["NPM_TOKEN"],"setup":["npm ci"],"check":["npm test"],"check_rounds":2,"check_reports":["reports/*.xml"],
 "timeout":"30m","idle_timeout":"1h30m0.5s","budget":{"usd":2.5,"tokens":2000000,"on_spent":"park"},"retry":{"max_attempts":3},
 "deliver":{"mode":"pr","branch":"b","base":"main","labels":["agent"],"reviewers":["ann"],"draft":true,"draft_text":true},"artifacts":["out/*.xml"],
 "run_at":"2026-01-02T03:04:05Z","depends_on":["0199a000-0000-7000-8000-000000000001"]}`

const minimal = `{"prompt":"Fix the typo in README","repo":{"url":"/src/app"},"agent":{"name":"claude"}}`

func TestJobs(t *testing.T) {
	r := resolved(t, For, "job")
	for _, good := range []string{full, minimal, `{"agent":{"name":"command","command":["true"]},"isolation":"none"}`} {
		if err := validate(t, r, good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
		if _, err := jobs.Decode([]byte(good)); err != nil {
			t.Errorf("jobs refuses %s: %v", good, err)
		}
	}
	// A job with its defaults, as the pool hands it out, is one too.
	job, err := jobs.Decode([]byte(full))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate(t, r, string(raw)); err != nil {
		t.Errorf("a job that jobs wrote: %v\n%s", err, raw)
	}
	for _, bad := range []string{
		`{"promt":"x"}`, `{"agent":{"nme":"x"}}`, `{"sandbox":{"limits":{"mem":1}}}`, `{"timeout":30}`, `{"timeout":"soon"}`, `{"priority":"urgent"}`,
		`{"sandbox":{"limits":{"memory":"lots"}}}`, `{"env":{"A":1}}`, `{"files":[{"name":"a"}]}`, `{"setup":"npm ci"}`, `[]`,
	} {
		if err := validate(t, r, bad); err == nil {
			t.Errorf("%s: valid", bad)
		}
	}
}

// set returns the minimal job with one field changed.
func set(t testing.TB, path string, value any) string {
	t.Helper()
	var job map[string]any
	if err := json.Unmarshal([]byte(minimal), &job); err != nil {
		t.Fatal(err)
	}
	if path == "check_rounds" { // which needs one
		job["check"] = []any{"true"}
	}
	parts := strings.Split(path, ".")
	at := job
	for _, part := range parts[:len(parts)-1] {
		if at[part] == nil {
			at[part] = map[string]any{}
		}
		at = at[part].(map[string]any)
	}
	at[parts[len(parts)-1]] = value
	raw, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestTablesAgree holds every enumeration, bound and pattern against what
// package jobs accepts.
func TestTablesAgree(t *testing.T) {
	r := resolved(t, For, "job")
	check := func(path string, value any, want bool) {
		t.Helper()
		text := set(t, path, value)
		_, err := jobs.Decode([]byte(text))
		if e, ok := err.(*jobs.InvalidError); ok && !slices.ContainsFunc(e.Fields, func(f jobs.FieldError) bool { return f.Field == path }) {
			err = nil // this value needs another field beside it
		}
		if (err == nil) != want {
			t.Errorf("%s = %v: jobs says %v, want ok %v", path, value, err, want)
		}
		if err := validate(t, r, text); (err == nil) != want {
			t.Errorf("%s = %v: the schema says %v, want ok %v", path, value, err, want)
		}
	}
	lists := maps.Clone(words)
	for path, typ := range map[string]reflect.Type{"priority": reflect.TypeFor[jobs.Priority](), "isolation": reflect.TypeFor[jobs.Isolation](), "sandbox.network": reflect.TypeFor[jobs.Network]()} {
		for _, v := range types()[typ].Enum {
			lists[path] = append(lists[path], v.(string))
		}
	}
	for path, list := range lists {
		for _, word := range list {
			check(path, word, true)
		}
		check(path, "nonsense", false)
		_, err := jobs.Decode([]byte(set(t, path, "nonsense")))
		_, all, _ := strings.Cut(err.Error(), "; use ")
		if got := strings.Join(list, ", "); !strings.HasPrefix(all, got) || strings.HasPrefix(all, got+", ") {
			t.Errorf("%s: the schema has %s, jobs knows %s", path, got, all)
		}
	}
	for path, limits := range ranges {
		check(path, limits[1], true)
		check(path, limits[1]+1, false)
		check(path, -1, false)
	}
	for path := range patterns {
		check(path, "a b", false)
		check(path, "-x", false)
	}
	for path, good := range map[string]string{"batch": "b-1", "queue": "gpu", "agent.name": "codex", "item": "A.b_c-1", "session": "0199a000-0000-7000-8000-00000000000A", "repo.commit": strings.Repeat("a", 64)} {
		check(path, good, true)
	}
	for _, d := range []string{"90s", "1h30m", "1.5h", "2000ms", "1m0.5s"} {
		check("timeout", d, true)
	}
	for _, d := range []string{"", "1", "m", "1 h", "1d"} {
		check("timeout", d, false)
	}
	for _, b := range []any{"512MiB", "10GB", "1.5GiB", "20000000", "20000000B", 20000000, "32 MiB"} {
		check("sandbox.limits.memory", b, true)
	}
	for _, b := range []any{"MiB", "1XB", "-1GB", true, "1e3 GiB x"} {
		check("sandbox.limits.memory", b, false)
	}
}

// TestEveryField walks the Go types: each field must be in its schema and be
// described, and each description must be of a field.
func TestEveryField(t *testing.T) {
	for name, doc := range documents {
		s, err := build(name)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		walk(t, s, doc.of, "", func(path string, s *jsonschema.Schema) {
			seen[path] = true
			if s.Description == "" {
				t.Errorf("%s: %s has no description", name, path)
			}
		})
		for path := range doc.fields {
			if !seen[path] {
				t.Errorf("%s: the description of %s belongs to no field", name, path)
			}
		}
	}
}

func walk(t *testing.T, s *jsonschema.Schema, typ reflect.Type, path string, visit func(string, *jsonschema.Schema)) {
	t.Helper()
	if s == nil {
		t.Errorf("%s is not in the schema", path)
		return
	}
	visit(path, s)
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if _, own := types()[typ]; own {
		return
	}
	switch typ.Kind() {
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(typ) {
			if !f.IsExported() || f.Anonymous {
				continue // the fields of an embedded struct follow it
			}
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "-" {
				continue // for the program itself
			}
			walk(t, s.Properties[name], f.Type, join(path, name), visit)
		}
	case reflect.Slice:
		walk(t, s.Items, typ.Elem(), path+"[]", visit)
	case reflect.Map:
		walk(t, s.AdditionalProperties, typ.Elem(), path+"{}", visit)
	}
}

// TestWhatWeWrite validates what the other packages write, empty and full.
func TestWhatWeWrite(t *testing.T) {
	now := time.Now()
	e := event.New(event.JobFinished{Outcome: jobs.Success})
	e.Seq, e.Time, e.Raw = 1, now, &jobs.Raw{Stream: "stdout", N: 1, Text: "x"}
	record := jobs.Record{ID: "j", Priority: jobs.Normal, Outcome: jobs.Error, Reason: jobs.WorkerLost, Submitted: now, Finished: &now, Isolation: jobs.IsolationWorktree}
	dir := t.TempDir()
	d, err := results.Open(dir, results.Manifest{ID: "b1", Items: []results.Item{{ID: "1"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	result := record.Result()
	result.ID = "1"
	if err := d.Add(t.Context(), result, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := d.Finish(results.Completed, ""); err != nil {
		t.Fatal(err)
	}
	for name, values := range map[string][]any{
		"event":  {e},
		"record": {record},
		"dead":   {jobs.DeadLetter{ID: "j", Kind: jobs.DeadJob, Record: record}, jobs.DeadLetter{ID: "m", Kind: jobs.DeadMessage, Data: "x", Cut: true}},
		"result": {result, jobs.Result{Outcome: jobs.Error, Reason: jobs.InvalidJob}},
		"batch":  {d.Manifest()},
	} {
		r := resolved(t, For, name)
		for _, v := range values {
			raw, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if err := validate(t, r, string(raw)); err != nil {
				t.Errorf("%s: %v\n%s", name, err, raw)
			}
			if err := validate(t, r, strings.Replace(string(raw), "{", `{"from_a_later_version":1,`, 1)); err != nil {
				t.Errorf("%s with a new field: %v", name, err)
			}
			if err := validate(t, r, `{}`); err == nil {
				t.Errorf("%s: {} is valid", name)
			}
		}
	}
}

func TestFor(t *testing.T) {
	for _, name := range Names() {
		raw, err := For(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{dialect, `"$id": "https://penstock.run/schema/v1/` + name + `.json"`} {
			if !strings.Contains(string(raw), want) {
				t.Errorf("%s does not have %s", name, want)
			}
		}
		again, err := For(name)
		if err != nil || string(raw) != string(again) {
			t.Errorf("%s differs from call to call", name)
		}
	}
	if _, err := For("jobs"); err == nil || !strings.Contains(err.Error(), "batch, control, dead, event, job, operation, policy, record, result, schedule") {
		t.Errorf("unknown name: %v", err)
	}
}
