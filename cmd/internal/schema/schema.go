// Package schema describes the JSON that goes in and comes out, as JSON Schema
// 2020-12: jobs, messages to sessions, events and the data of each kind,
// records, results, schedules, dead letters, the requests and answers of the
// bus, a batch's manifest and policies.
//
// The schemas are made from the Go types, so they cannot miss a field; what a
// type does not say (enumerations, bounds, descriptions) stands in tables that
// the tests hold against what package jobs accepts.
package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/penstock-run/penstock/cmd/internal/results"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/calendar"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	jailpolicy "github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/worker/policy"
)

const (
	dialect = "https://json-schema.org/draft/2020-12/schema"
	home    = "https://penstock.run/schema/v1/"
)

// document is one schema: what it is made from and what the type leaves open.
type document struct {
	of          reflect.Type
	title       string
	description string
	// strict documents are read by us and refuse unknown fields; the others
	// are written by us, and later versions may write more.
	strict bool
	fields map[string]string
}

var documents = map[string]document{
	"job":    {reflect.TypeFor[jobs.Job](), "Penstock job", "A request to run a coding agent once. What is left out has its default.", true, jobFields},
	"event":  {reflect.TypeFor[jobs.Event](), "Penstock event", "One line of a session's log.", false, eventFields},
	"result": {reflect.TypeFor[jobs.Result](), "Penstock result", "What is left of a finished job: one line of results.jsonl.", false, resultFields},
	"control": {
		reflect.TypeFor[control.Message](), "Penstock control message", "A message to a running session.", true, controlFields},
	"record": {
		reflect.TypeFor[jobs.Record](), "Penstock record", "Where a job stands.", false, recordFields},
	"schedule": {
		reflect.TypeFor[calendar.Schedule](), "Penstock schedule", "A job that is submitted by the calendar. What is left out has its default.", true, scheduleFields},
	"dead": {
		reflect.TypeFor[jobs.DeadLetter](), "Penstock dead letter", "A job, a submission or a message that the pool has given up on.", false, deadFields},
	"policy": {reflect.TypeFor[policy.Policy](), "Penstock policy", "What jails may touch, and the most that jobs may ask for. YAML or JSON.", true, policyFields},
	"batch":  {reflect.TypeFor[results.Manifest](), "Penstock batch", "What a batch is and how far it has come: batch.json in its results directory.", false, batchFields},
}

// allOperations is the name of the schema of all requests and answers.
const allOperations = "operation"

// Names lists the schemas that [For] knows.
func Names() []string {
	return slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(documents)), allOperations)))
}

// For returns a schema as indented JSON.
func For(name string) ([]byte, error) {
	s, err := build(name)
	if err != nil {
		return nil, err
	}
	return indented(name, s)
}

func indented(name string, s *jsonschema.Schema) ([]byte, error) {
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write schema %s: %w", name, err)
	}
	return append(raw, '\n'), nil
}

func build(name string) (*jsonschema.Schema, error) {
	if name == allOperations {
		return operations()
	}
	doc, ok := documents[name]
	if !ok {
		return nil, fmt.Errorf("schema %q is not known; use %s", name, strings.Join(Names(), ", "))
	}
	s, err := jsonschema.ForType(doc.of, &jsonschema.ForOptions{TypeSchemas: types()})
	if err != nil {
		return nil, fmt.Errorf("make schema %s: %w", name, err)
	}
	s.Schema, s.ID, s.Title = dialect, home+name+".json", doc.title
	doc.finish(s, "")
	s.Description = doc.description
	switch name {
	case "job":
		bound(s)
	case "control":
		s.Required = []string{"id", "verb"}
		boundImages(at(s, "images"))
	case "event":
		err = addKinds(s)
	case "record":
		unknownIsolation(at(s, "isolation"))
	case "schedule":
		s.Required = []string{"name", "job"}
		bound(at(s, "job"))
	case "dead":
		unknownIsolation(at(s, "record.isolation"))
	case "policy":
		boundPolicy(s)
	case "result":
		unknownIsolation(at(s, "isolation"))
	}
	return s, err
}

// unknownIsolation is that of a job that was refused before it had its defaults.
func unknownIsolation(s *jsonschema.Schema) { s.Enum = append(s.Enum, "") }

// finish walks a schema and puts in what the type did not say.
func (d document) finish(s *jsonschema.Schema, path string) {
	if text := d.fields[path]; text != "" {
		s.Description = text // else the field's tag says it
	}
	if s.Properties != nil && s.AdditionalProperties != nil && !d.strict {
		s.AdditionalProperties = nil
	}
	if d.strict {
		// Every field of a job or policy may be left out, but a file is both.
		if !strings.HasSuffix(path, "files[]") {
			s.Required = nil
		}
		// A job's null is a field that was left out; authors should not write one.
		if at := slices.Index(s.Types, "null"); at >= 0 && len(s.Types) == 2 {
			s.Type, s.Types = s.Types[1-at], nil
		}
	}
	for name, property := range s.Properties {
		d.finish(property, join(path, name))
	}
	if s.Items != nil {
		d.finish(s.Items, path+"[]")
	}
	// Of a map the values' schema stands here; of a struct it says "none".
	if s.AdditionalProperties != nil && s.Properties == nil {
		d.finish(s.AdditionalProperties, path+"{}")
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// sizePattern is what bytesize.Parse reads.
const sizePattern = `^\s*[0-9]+(\.[0-9]+)?\s*(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)?$`

// types are the schemas of the types that write themselves, and of those that
// are enumerations.
func types() map[reflect.Type]*jsonschema.Schema {
	anything := &jsonschema.Schema{}
	return map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[jobs.Duration]():         {Type: "string", Pattern: `^[0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h)([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))*$`, Examples: []any{"90s", "30m", "1h30m"}},
		reflect.TypeFor[jobs.Bytes]():            {Types: []string{"string", "integer"}, Pattern: sizePattern, Minimum: jsonschema.Ptr(0.0), Examples: []any{"512MiB", "10GB", 1073741824}},
		reflect.TypeFor[jailpolicy.Size]():       {Types: []string{"string", "integer"}, Pattern: sizePattern, Minimum: jsonschema.Ptr(1.0), Examples: []any{"512MiB", "10GB", 1048576}},
		reflect.TypeFor[jailpolicy.Pattern]():    {Type: "string", Pattern: `^(/|~/|\./)`, Examples: []any{"//opt/node", "/tools", "~/.cache/go-build", "./vendor"}},
		reflect.TypeFor[jobs.Priority]():         enum(jobs.High, jobs.Normal, jobs.Low),
		reflect.TypeFor[jobs.Isolation]():        enum(jobs.IsolationNone, jobs.IsolationWorktree, jobs.IsolationContainer),
		reflect.TypeFor[jobs.OnSpent]():          enum("", jobs.SpentEnds, jobs.SpentParks),
		reflect.TypeFor[jobs.Network]():          enum(jobs.NetworkNone, jobs.NetworkAllowlist, jobs.NetworkFull),
		reflect.TypeFor[jobs.PullRequestState](): enum(jobs.PullWanted, jobs.PullOpen, jobs.PullNone, jobs.PullRefused),
		reflect.TypeFor[jobs.Outcome]():          enum(jobs.Success, jobs.Failure, jobs.Error, jobs.TimedOut, jobs.Cancellation, jobs.Skip),
		reflect.TypeFor[jobs.Reason]():           enum(append([]jobs.Reason{""}, slices.Sorted(maps.Keys(jobs.Reasons))...)...),
		reflect.TypeFor[jobs.Kind]():             {Type: "string", Pattern: `^[a-z]+(\.[a-z]+)*$`, Examples: []any{jobs.ToolStarted, jobs.Message, jobs.JobFinished}},
		reflect.TypeFor[control.Verb]():          enum(control.Prompt, control.Answer, control.Interrupt, control.Stop, control.Raw, control.Set),
		reflect.TypeFor[control.Words]():         {Types: []string{"string", "array"}, Items: &jsonschema.Schema{Type: "string"}},
		reflect.TypeFor[calendar.Missed]():       enum(calendar.MissedOnce, calendar.MissedSkip),
		reflect.TypeFor[calendar.Overlap]():      enum(calendar.OverlapSkip, calendar.OverlapAllow),
		reflect.TypeFor[jobs.Letter]():           enum(jobs.DeadJob, jobs.DeadSubmission, jobs.DeadMessage),
		reflect.TypeFor[event.Tokens]():          tokens(),
		reflect.TypeFor[event.Limit]():           anything,
		reflect.TypeFor[results.State]():         enum(results.Running, results.Completed, results.Failed, results.Interrupted, results.Stopped),
		reflect.TypeFor[time.Time]():             {Type: "string", Format: "date-time"},
		reflect.TypeFor[[]byte]():                {Type: "string", ContentEncoding: "base64"},
		reflect.TypeFor[json.RawMessage]():       anything,
	}
}

func enum[T ~string](values ...T) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, v := range values {
		s.Enum = append(s.Enum, string(v))
	}
	return s
}

// words are the enumerations of a job that have no type of their own.
var words = map[string][]string{
	"sandbox.backend": {"auto", "bwrap", "systemd", "oci", "seatbelt", "none"},
	"sandbox.preset":  {"strict", "browser", "debug", "offline"},
	"deliver.mode":    {"none", "patch", "branch", "pr"},
}

// ranges are the numbers of a job that have bounds.
var ranges = map[string][2]float64{
	"agent.max_turns":     {0, 10_000},
	"check_rounds":        {0, 20},
	"retry.max_attempts":  {0, jobs.MaxAttempts},
	"budget.usd":          {0, 1e9},
	"budget.tokens":       {0, 1 << 50},
	"budget.batch_usd":    {0, 1e9},
	"budget.batch_tokens": {0, 1 << 50},
	"sandbox.limits.cpus": {0, 4096},
	"sandbox.limits.pids": {0, 1 << 20},
}

// patterns are the strings of a job that are names.
var patterns = map[string]string{
	"batch":         `^[a-z0-9][a-z0-9-]{0,62}$`,
	"queue":         `^[a-z0-9][a-z0-9-]{0,62}$`,
	"agent.name":    `^[a-z0-9][a-z0-9-]{0,62}$`,
	"agent.version": `^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`,
	"item":          `^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`,
	"session":       `^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$`,
	"repo.commit":   `^[0-9a-f]{40}([0-9a-f]{24})?$`,

	"trace.traceparent": `^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`,
}

func bound(job *jsonschema.Schema) {
	for path, list := range words {
		s := at(job, path)
		for _, word := range list {
			s.Enum = append(s.Enum, word)
		}
	}
	for path, limits := range ranges {
		s := at(job, path)
		s.Minimum, s.Maximum = jsonschema.Ptr(limits[0]), jsonschema.Ptr(limits[1])
	}
	for path, pattern := range patterns {
		at(job, path).Pattern = pattern
	}
	for path, most := range map[string]int{"deliver.labels": jobs.MaxPullLabels, "deliver.reviewers": jobs.MaxPullReviewers} {
		at(job, path).MaxItems = jsonschema.Ptr(most)
	}
	at(job, "labels").MaxProperties = jsonschema.Ptr(jobs.MaxLabels)
	at(job, "env").MaxProperties = jsonschema.Ptr(jobs.MaxEnv)
	at(job, "key").MaxLength = jsonschema.Ptr(256)
	at(job, "trace.tracestate").MaxLength = jsonschema.Ptr(512)
}

// boundImages puts in the types of images, and how many of them a message may have.
func boundImages(s *jsonschema.Schema) {
	s.MaxItems = jsonschema.Ptr(control.MaxImages)
	for _, word := range control.ImageTypes {
		s.Items.Properties["type"].Enum = append(s.Items.Properties["type"].Enum, word)
	}
}

// boundPolicy puts in the words and numbers that a policy may hold.
func boundPolicy(s *jsonschema.Schema) {
	for path, list := range map[string][]string{
		"preset": words["sandbox.preset"], "network": {string(jobs.NetworkNone), string(jobs.NetworkAllowlist), string(jobs.NetworkFull)},
	} {
		for _, word := range list {
			at(s, path).Enum = append(at(s, path).Enum, word)
		}
	}
	for path, list := range map[string][]string{
		"modes":      {string(jobs.IsolationNone), string(jobs.IsolationWorktree), string(jobs.IsolationContainer)},
		"workspaces": {"overlay", "clone", "linked", "hook"},
		"deliver":    {"none", "patch", "branch", "pr"},
		"backends":   words["sandbox.backend"][1:],
	} {
		for _, word := range list {
			at(s, path).Items.Enum = append(at(s, path).Items.Enum, word)
		}
	}
	for path, least := range map[string]float64{"cpus": 0, "pids": 8, "open_files": 16, "cpu_weight": 1, "inodes": 1} {
		at(s, "limits."+path).Minimum = jsonschema.Ptr(least)
	}
	at(s, "limits.cpu_weight").Maximum = jsonschema.Ptr(10_000.0)
}

// at finds the schema of a field. The tables name fields that exist: a test
// builds every schema.
func at(s *jsonschema.Schema, path string) *jsonschema.Schema {
	for name := range strings.SplitSeq(path, ".") {
		s = s.Properties[name]
	}
	return s
}
