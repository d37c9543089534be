package mcptools

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/operation"
)

// mostItems is how many jobs one call submits.
const mostItems = 100

// Bounds limit what models submit through one server. Zero is no limit.
type Bounds struct {
	Jobs int     // in all
	USD  float64 // that these may cost together; each job needs a budget then
}

// spending counts what was submitted against the bounds.
type spending struct {
	bounds Bounds

	mu   sync.Mutex // guards all below
	jobs int
	usd  float64
}

// reserve takes a job's share before it is submitted.
func (s *spending) reserve(job jobs.Job) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bounds.Jobs > 0 && s.jobs >= s.bounds.Jobs {
		return fmt.Errorf("%w: %d jobs were submitted, as many as this server's owner allows", jobs.ErrForbidden, s.jobs)
	}
	if s.bounds.USD > 0 {
		left := s.bounds.USD - s.usd
		if job.Budget.USD == 0 {
			return invalid("max_cost", fmt.Sprintf("is missing: all jobs together may cost %.2f US dollars, of which %.2f are left", s.bounds.USD, left))
		}
		if job.Budget.USD > left {
			return fmt.Errorf("%w: the job may cost %.2f US dollars, and %.2f of the %.2f that this server's owner allows are left", jobs.ErrForbidden, job.Budget.USD, left, s.bounds.USD)
		}
	}
	s.jobs, s.usd = s.jobs+1, s.usd+job.Budget.USD
	return nil
}

// release gives a share back: there is no new job.
func (s *spending) release(job jobs.Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs, s.usd = s.jobs-1, s.usd-job.Budget.USD
}

// frame are the arguments that say where and for how much a job runs.
type frame struct {
	Repo    string            `json:"repo,omitempty" jsonschema:"The repository: a URL, or a path on the workers."`
	Ref     string            `json:"ref,omitempty" jsonschema:"Branch, tag or commit to begin from; the default is the repository's HEAD."`
	Agent   string            `json:"agent,omitempty" jsonschema:"The coding agent, as in claude."`
	Model   string            `json:"model,omitempty" jsonschema:"The agent's model."`
	Queue   string            `json:"queue,omitempty" jsonschema:"The queue to wait in."`
	Check   []string          `json:"check,omitempty" jsonschema:"Commands that must pass in the jail after the agent."`
	MaxCost float64           `json:"max_cost,omitempty" jsonschema:"US dollars that each job may cost."`
	Timeout string            `json:"timeout,omitempty" jsonschema:"Limit for one attempt, as in 30m."`
	Labels  map[string]string `json:"labels,omitempty" jsonschema:"Labels, for people who look for the job."`
}

type submitArgs struct {
	Prompt string   `json:"prompt" jsonschema:"What the agent is to do."`
	Key    string   `json:"key,omitempty" jsonschema:"The same key gives the same job: choose one, so that a repeated call makes no second job."`
	After  []string `json:"after,omitempty" jsonschema:"Ids of jobs that must succeed first."`
	frame
}

func (t *tools) submit(ctx context.Context, request *mcp.CallToolRequest, in submitArgs) (any, error) {
	job, err := t.describe(in.frame)
	if err != nil {
		return nil, err
	}
	job.Prompt, job.Key, job.DependsOn = in.Prompt, in.Key, in.After
	return t.hand(ctx, job.In(traceOf(request)))
}

// traceOf is the trace that the client of a call names, as the protocol has it, or its
// request over HTTP.
func traceOf(call *mcp.CallToolRequest) jobs.Trace {
	parent, _ := call.Params.Meta[jobs.TraceParent].(string)
	state, _ := call.Params.Meta[jobs.TraceState].(string)
	trace := jobs.ReadTrace(parent, state)
	if trace == (jobs.Trace{}) && call.Extra != nil {
		return jobs.TraceOf(call.Extra.Header)
	}
	return trace
}

// hand hands a job in, within the bounds.
func (t *tools) hand(ctx context.Context, job jobs.Job) (operation.Submitted, error) {
	if err := t.spent.reserve(job); err != nil {
		return operation.Submitted{}, err
	}
	answer, err := t.cfg.Submit(ctx, job)
	if err != nil || answer.Duplicate {
		t.spent.release(job)
	}
	return answer, err
}

// describe lays what a model asks for over the template. What the template sets stays;
// limits may be lowered.
func (t *tools) describe(in frame) (jobs.Job, error) {
	job := t.cfg.Template
	for _, field := range []struct {
		name, wanted string
		set          *string
	}{
		{"repo", in.Repo, &job.Repo.URL}, {"ref", in.Ref, &job.Repo.Ref}, {"agent", in.Agent, &job.Agent.Name},
		{"model", in.Model, &job.Agent.Model}, {"queue", in.Queue, &job.Queue},
	} {
		if field.wanted != "" && *field.set != "" && field.wanted != *field.set {
			return job, fixed(field.name, *field.set)
		}
		if field.wanted != "" {
			*field.set = field.wanted
		}
	}
	if len(in.Check) > 0 && len(job.Check) > 0 {
		return job, fixed("check", job.Check)
	}
	if len(in.Check) > 0 {
		job.Check = in.Check
	}
	if in.MaxCost < 0 || job.Budget.USD > 0 && in.MaxCost > job.Budget.USD {
		return job, invalid("max_cost", fmt.Sprintf("is not above 0 and at most %.2f", job.Budget.USD))
	}
	if in.MaxCost > 0 {
		job.Budget.USD = in.MaxCost
	}
	if len(in.Labels) > 0 {
		labels := maps.Clone(in.Labels)
		maps.Copy(labels, job.Labels) // the owner's win
		job.Labels = labels
	}
	if err := lowerTimeout(&job, in.Timeout); err != nil {
		return job, err
	}
	if job.Repo.URL == "" && job.Isolation != jobs.IsolationNone && t.cfg.Locate != nil {
		var err error
		if job.Repo.URL, err = t.cfg.Locate(); err != nil {
			return job, invalid("repo", "is missing: name the repository of the job")
		}
	}
	return job, nil
}

// lowerTimeout gives a job the limit that a model wants, unless the template's is lower.
func lowerTimeout(job *jobs.Job, wanted string) error {
	if wanted == "" {
		return nil
	}
	limit, err := time.ParseDuration(wanted)
	if err != nil || limit <= 0 {
		return invalid("timeout", "is not a duration as 30m")
	}
	if job.Timeout > 0 && jobs.Duration(limit) > job.Timeout {
		return invalid("timeout", fmt.Sprintf("is longer than %s, which this server's owner allows", time.Duration(job.Timeout)))
	}
	job.Timeout = jobs.Duration(limit)
	return nil
}

// fixed is the error of an argument that the owner of the server has decided.
func fixed(field string, value any) error {
	return fmt.Errorf("%w: this server's owner has set %s to %v: leave it out", jobs.ErrForbidden, field, value)
}

type submitBatchArgs struct {
	Batch string      `json:"batch" jsonschema:"The batch's name: a-z, 0-9 and -."`
	Items []batchItem `json:"items" jsonschema:"The jobs, at most 100."`
	frame
}

type batchItem struct {
	ID     string `json:"id" jsonschema:"The item's name within the batch."`
	Prompt string `json:"prompt" jsonschema:"What the agent is to do."`
}

// An itemDone says what became of an item.
type itemDone struct {
	Item      string `json:"item"`
	ID        string `json:"id,omitempty"` // of its job
	Duplicate bool   `json:"duplicate,omitempty"`
	Error     string `json:"error,omitempty"`
}

// submitBatch submits each item by itself: one that is refused keeps no other back.
func (t *tools) submitBatch(ctx context.Context, request *mcp.CallToolRequest, in submitBatchArgs) (any, error) {
	if err := jobs.CheckToken("batch", in.Batch); err != nil {
		return nil, invalid("batch", err.Error())
	}
	if len(in.Items) == 0 || len(in.Items) > mostItems {
		return nil, invalid("items", fmt.Sprintf("are %d, and one call takes 1 to %d", len(in.Items), mostItems))
	}
	base, err := t.describe(in.frame)
	if err != nil {
		return nil, err
	}
	done := make([]itemDone, 0, len(in.Items))
	for _, item := range in.Items {
		job := base
		job.Batch, job.Item, job.Prompt, job.Key = in.Batch, item.ID, item.Prompt, in.Batch+"/"+item.ID
		one := itemDone{Item: item.ID}
		if answer, err := t.hand(ctx, job.In(traceOf(request))); err != nil {
			one.Error = fmt.Sprintf("%s: %v", jobs.Code(err), err)
		} else {
			one.ID, one.Duplicate = answer.ID, answer.Duplicate
		}
		done = append(done, one)
	}
	return map[string]any{"batch": in.Batch, "jobs": done}, nil
}

type answerArgs struct {
	ID      string   `json:"id" jsonschema:"The job's id, or what only it begins or ends with."`
	Ask     string   `json:"ask,omitempty" jsonschema:"The question's id, where several are open."`
	Options []string `json:"options,omitempty" jsonschema:"Labels of the choices that are taken."`
	Text    string   `json:"text,omitempty" jsonschema:"An answer in words."`
	Deny    bool     `json:"deny,omitempty" jsonschema:"Refuse what is asked for."`

	ToolInput map[string]any `json:"tool_input,omitempty" jsonschema:"Grant a permission with this input of the tool, instead of what the agent asked for."`
}

func (t *tools) answer(ctx context.Context, _ *mcp.CallToolRequest, in answerArgs) (any, error) {
	m := control.Message{Ask: in.Ask, Options: in.Options, Text: in.Text, Deny: in.Deny}
	if in.ToolInput != nil {
		input, err := json.Marshal(in.ToolInput)
		if err != nil {
			return nil, err
		}
		m.ToolInput = input
	}
	return t.c.Answer(ctx, in.ID, m)
}

type retryArgs struct {
	ID          string `json:"id" jsonschema:"The job's id, or what only it begins or ends with."`
	FromSalvage bool   `json:"from_salvage,omitempty" jsonschema:"Begin from what was saved of an earlier attempt."`
}

func (t *tools) retry(ctx context.Context, _ *mcp.CallToolRequest, in retryArgs) (any, error) {
	return t.c.Retry(ctx, in.ID, in.FromSalvage)
}

func (t *tools) cancel(ctx context.Context, _ *mcp.CallToolRequest, in jobArgs) (any, error) {
	return t.c.Cancel(ctx, in.ID)
}
