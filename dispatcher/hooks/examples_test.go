package hooks_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/penstock-run/penstock/dispatcher/hooks"
	"github.com/penstock-run/penstock/jobs"
)

// An example is a kind of GitHub's deliveries, with payloads that GitHub has sent.
type example struct {
	Name     string            `json:"name"`
	Examples []json.RawMessage `json:"examples"`
}

// octokit reads a file of an npm package of GitHub's own library into what it is to hold.
func octokit(t *testing.T, into any, name ...string) {
	t.Helper()
	for _, dir := range filepath.SplitList(os.Getenv("NODE_PATH")) {
		data, err := os.ReadFile(filepath.Join(append([]string{dir, "@octokit"}, name...)...))
		if err != nil {
			continue
		}
		if err := json.Unmarshal(data, into); err != nil {
			t.Fatal(err)
		}
		return
	}
	why := "no payloads of GitHub: npm install @octokit/" + name[0] + ", and set NODE_PATH to its node_modules"
	if slices.Contains(strings.Split(os.Getenv("PENSTOCK_TEST_REQUIRE"), ","), "octokit") {
		t.Fatal(why)
	}
	t.Skip(why)
}

func examples(t *testing.T) []example {
	t.Helper()
	var all []example
	octokit(t, &all, "webhooks-examples", "api.github.com", "index.json")
	return all
}

// withIssues are the kinds of deliveries that are about an issue or a pull request.
var withIssues = []string{"issues", "issue_comment", "pull_request", "pull_request_review_comment"}

// Of each kind of delivery that becomes a job with an issue, the tests send some that are
// whole by GitHub's own schema. Others are older than fields that it requires.
func TestExamplesAreOfGitHub(t *testing.T) {
	t.Parallel()
	var all jsonschema.Schema
	octokit(t, &all, "webhooks-schemas", "schema.json")
	whole := map[string]int{}
	for _, kind := range examples(t) {
		if !slices.Contains(withIssues, kind.Name) {
			continue
		}
		of := jsonschema.Schema{Schema: all.Schema, Ref: "#/definitions/" + kind.Name + "_event", Definitions: all.Definitions}
		schema, err := of.Resolve(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range kind.Examples {
			var payload any
			if err := json.Unmarshal(body, &payload); err != nil {
				t.Fatal(err)
			}
			if schema.Validate(payload) == nil {
				whole[kind.Name]++
			}
		}
	}
	for _, kind := range withIssues {
		if whole[kind] < 2 {
			t.Errorf("of %s %d payloads are valid", kind, whole[kind])
		}
	}
}

// Whatever GitHub sends is either a job, with its issue and repository, or a refusal that
// names what the job lacks.
func TestDeliveriesOfGitHub(t *testing.T) {
	all := examples(t)
	p := open(t, map[string]hooks.Rule{"all": rule(t, "github")})
	submitted, refused := 0, 0
	for _, kind := range all {
		for i, body := range kind.Examples {
			header := github(string(body), fmt.Sprintf("%s-%d", kind.Name, i))
			header["X-GitHub-Event"] = kind.Name
			switch status, text := p.deliver("all", string(body), header); {
			case status == 202 && strings.Contains(text, `"job"`):
				submitted++
			case status == 422 && !strings.Contains(string(body), `"clone_url"`):
				refused++
			case status == 403 && strings.Contains(string(body), `[bot]"`) && strings.Contains(text, "is not named in bots"):
				refused++
			default:
				t.Errorf("%s %d: %d %s", kind.Name, i, status, text)
			}
		}
	}
	if submitted < 200 || refused == 0 || len(p.filed) != refused {
		t.Errorf("%d were submitted, %d refused and %d filed", submitted, refused, len(p.filed))
	}
	seen := map[string]int{}
	for _, job := range p.jobs() {
		kind, _, _ := strings.Cut(strings.TrimPrefix(job.Key, "hook/all/"), "-")
		if slices.Contains(withIssues, kind) {
			seen[kind]++
			if job.Issue == nil || job.Issue.Number == 0 || job.Issue.Title == "" || !strings.HasPrefix(job.Issue.URL, "https://github.com/") {
				t.Errorf("%s: the issue is %+v", job.Key, job.Issue)
			}
		}
		if job.Repo == (jobs.Repo{}) {
			t.Errorf("%s: the job has no repository", job.Key)
		}
	}
	if len(seen) != len(withIssues) {
		t.Errorf("jobs with issues came of %v", seen)
	}
}
