package hooks

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/penstock-run/penstock/dispatcher/mark"
	"github.com/penstock-run/penstock/jobs"
)

// Who may cause jobs by a hook.
const (
	requireWrite  = "write"  // who may write to the repository, as its forge says
	requireListed = "listed" // who is named in Users
	requireAnyone = "anyone" // every sender of a genuine delivery
)

// A Rule says which deliveries become jobs, and which job.
type Rule struct {
	Source     string `yaml:"source" doc:"github, gitlab, gitea (also Forgejo), standard (Standard Webhooks) or bearer"`
	SecretFile string `yaml:"secret_file" doc:"file with the secret that sender and hook share, of at least 16 bytes"`
	When       string `yaml:"when,omitempty" doc:"expression over event, body and sender; the rule is for deliveries of which it is true"`
	Require    string `yaml:"require,omitempty" doc:"who may cause jobs: write (default of forges), listed or anyone (default of standard and bearer)"`
	// Users may cause jobs whatever Require says; Bots are the programs among them.
	Users []string `yaml:"users,omitempty" doc:"names of users who may cause jobs"`
	Bots  []string `yaml:"bots,omitempty" doc:"names of bots that may cause jobs; no other bot may"`
	// API is asked, with the token, who may write.
	API       string `yaml:"api,omitempty" doc:"address of the forge's API; default that of github.com or gitlab.com"`
	TokenFile string `yaml:"token_file,omitempty" doc:"file with the token for the API, for require: write"`
	// Follow has the job end with its issue, and comments answer it and change its result.
	Follow   bool           `yaml:"follow,omitempty" doc:"whether closing an issue cancels its job, comments on it answer the job's questions, and comments on the job's pull request are prompts; for github, with token_file and when"`
	Comments string         `yaml:"comments,omitempty" doc:"which comments on a pull request are prompts, with follow: an expression over comment, event, body and sender; default those that begin with please"`
	Job      map[string]any `yaml:"job" doc:"the job, without issue and key"`
}

// minSecret is long enough that nobody guesses it.
const minSecret = 16

// open checks the rule and reads its secrets.
func (r Rule) open(name string) (*hook, error) {
	if err := jobs.CheckToken("name", name); err != nil {
		return nil, err
	}
	h := &hook{Rule: r, name: name}
	source, ok := sources[r.Source]
	if !ok {
		return nil, fmt.Errorf("source %q is not one of %s", r.Source, strings.Join(sourceNames(), ", "))
	}
	if err := h.readSecrets(); err != nil {
		return nil, err
	}
	h.Require = cmp.Or(h.Require, source.require)
	switch {
	case !slices.Contains([]string{requireWrite, requireListed, requireAnyone}, h.Require):
		return nil, fmt.Errorf("require %q is not write, listed or anyone", h.Require)
	case h.Require == requireWrite && source.permission == nil:
		return nil, fmt.Errorf("require write: source %s has no repository that could be asked; use listed or anyone", r.Source)
	case h.Require == requireWrite && h.token == "":
		return nil, fmt.Errorf("require write: the forge is asked with a token: name its file in token_file, or require listed users")
	case h.Require == requireListed && len(r.Users)+len(r.Bots) == 0:
		return nil, fmt.Errorf("require listed: users are missing")
	}
	if h.API = strings.TrimRight(cmp.Or(r.API, source.api), "/"); h.Require == requireWrite && h.API == "" {
		return nil, fmt.Errorf("api is missing: the address of the %s server's API", r.Source)
	}
	if r.When != "" {
		var err error
		if h.when, err = expr.Compile(r.When, expr.Env(delivery{}.environment()), expr.AsBool()); err != nil {
			return nil, fmt.Errorf("when: %w", err)
		}
	}
	if err := h.openFollow(); err != nil {
		return nil, err
	}
	return h, h.decodeJob()
}

// asksForChange is which comments on a pull request are prompts, unless the rule says it.
const asksForChange = `lower(trim(comment)) startsWith "please"`

// openFollow checks what the rule says about following.
func (h *hook) openFollow() error {
	switch {
	case !h.Follow && h.Comments != "":
		return fmt.Errorf("comments: has no meaning without follow")
	case !h.Follow:
		return nil
	case h.Source != "github":
		return fmt.Errorf("follow: issues and pull requests of source %s are not followed; those of github are", h.Source)
	case h.token == "":
		return fmt.Errorf("follow: reviews are read with a token: name its file in token_file")
	case h.When == "":
		return fmt.Errorf("follow: when is missing: without it each comment would be a job")
	}
	about := delivery{}.environment()
	about["comment"] = ""
	var err error
	if h.comments, err = expr.Compile(cmp.Or(h.Comments, asksForChange), expr.Env(about), expr.AsBool()); err != nil {
		return fmt.Errorf("comments: %w", err)
	}
	return nil
}

func (h *hook) readSecrets() error {
	read := func(field, file string) ([]byte, error) {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field, err)
		}
		return bytes.TrimSpace(data), nil
	}
	var err error
	if h.secret, err = read("secret_file", h.SecretFile); err != nil {
		return err
	}
	if len(h.secret) < minSecret {
		return fmt.Errorf("secret_file: the secret has %d bytes, at least %d are needed", len(h.secret), minSecret)
	}
	if h.Source == "standard" {
		if _, err := standardwebhooks.NewWebhook(string(h.secret)); err != nil {
			return fmt.Errorf("secret_file: the secret of Standard Webhooks is whsec_ and base64: %w", err)
		}
	}
	if h.TokenFile != "" {
		token, err := read("token_file", h.TokenFile)
		h.token = string(token)
		return err
	}
	return nil
}

// decodeJob reads the job of the rule. What a delivery fills in later is not there yet.
func (h *hook) decodeJob() error {
	data, err := json.Marshal(h.Rule.Job)
	if err != nil {
		return fmt.Errorf("job: %w", err)
	}
	if err := jobs.DecodeStrict(data, &h.job); err != nil {
		return fmt.Errorf("job: %w", err)
	}
	if h.job.Key != "" || h.job.Issue != nil {
		return fmt.Errorf("job: key and issue are made of the delivery: leave them out")
	}
	if h.Follow && (h.job.Labels[mark.HookLabel] != "" || h.job.Labels[mark.IssueLabel] != "") {
		return fmt.Errorf("job: labels %q and %q are made of the delivery: leave them out", mark.HookLabel, mark.IssueLabel)
	}
	whole := h.jobOf(delivery{id: "example", repo: "https://example.com/r.git", issue: &jobs.Issue{Title: "example", URL: "https://example.com"}}).WithDefaults()
	if err := whole.Validate(); err != nil {
		return fmt.Errorf("job: %w", err)
	}
	return nil
}

// maxAttached is how much of a delivery a job takes along. A job is at most
// [jobs.MaxJobBytes] long, in base64.
const maxAttached = 128 << 10

// jobOf is the job of a delivery.
func (h *hook) jobOf(d delivery) jobs.Job {
	job := h.job
	job.Files = slices.Clone(job.Files)
	job.Issue = d.issue
	if d.id != "" {
		job.Key = "hook/" + h.name + "/" + d.id
	}
	if h.Follow && d.issue != nil && d.issue.URL != "" {
		job.Labels = maps.Clone(job.Labels)
		if job.Labels == nil {
			job.Labels = map[string]string{}
		}
		job.Labels[mark.HookLabel], job.Labels[mark.IssueLabel] = h.name, d.issue.URL
	}
	if job.Repo.URL == "" && job.Isolation != jobs.IsolationNone {
		job.Repo.URL = d.repo
	}
	if len(d.raw) <= maxAttached && len(d.raw) > 0 {
		job.Files = append(job.Files, jobs.File{Name: "delivery.json", Content: d.raw})
	}
	return job.In(d.trace)
}
