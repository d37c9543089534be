package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/operation"
)

// maxSubmitWait bounds how long a submission waits for the end of its job.
const maxSubmitWait = 5 * time.Minute

// KeyHeader is the header with a job's key.
const KeyHeader = "Idempotency-Key"

// Submitted is the answer to a job that was submitted, or checked.
type Submitted struct {
	operation.Submitted
	Job    *jobs.Job    `json:"job,omitempty" jsonschema:"With dry_run, the job with its defaults; nothing was stored, and it has no id."`
	Record *jobs.Record `json:"record,omitempty" jsonschema:"With wait, the job's record when it had finished, or when the time was up."`
}

// submit submits a job.
func (s *Server) submit(c *call, _ Route) error {
	var dry bool
	var wait jobs.Duration
	if err := c.params(map[string]any{"dry_run": &dry, "wait": &wait}); err != nil {
		return err
	}
	job, err := keyed(c.body, c.r.Header.Get(KeyHeader))
	if err != nil {
		return err
	}
	if dry {
		checked, err := jobs.Decode(job)
		if err != nil {
			return err
		}
		return c.json(http.StatusOK, Submitted{Job: &checked})
	}
	asking, err := s.makingJob(c)
	if err != nil {
		return err
	}
	made, err := asking.SubmitJSON(c.r.Context(), job)
	if err != nil {
		return err
	}
	answer := Submitted{Submitted: made}
	if wait > 0 {
		rec, err := s.finished(c, asking, made.ID, min(time.Duration(wait), maxSubmitWait))
		if err != nil {
			return err
		}
		answer.Record = &rec
	}
	c.Header().Set("Location", "/v1/jobs/"+made.ID)
	if made.Duplicate {
		return c.json(http.StatusOK, answer)
	}
	return c.json(http.StatusCreated, answer)
}

// makingJob is the client of a request that makes a job, whose id its sender may have
// chosen. The source that the job's record names is always the same: the names of tokens
// would make series of the metrics.
func (s *Server) makingJob(c *call) (*client.Client, error) {
	asking, id := s.askingAs(c, "http"), c.r.Header.Get(operation.JobIDHeader)
	switch {
	case id == "":
		return asking, nil
	case !jobs.IsID(id):
		return nil, invalid(operation.JobIDHeader, "is not a UUIDv7")
	}
	return asking.WithJobID(id), nil
}

// keyed puts the key of the header into a job, which must have no other one.
func keyed(job json.RawMessage, key string) (json.RawMessage, error) {
	if key == "" {
		return job, nil
	}
	fields := map[string]json.RawMessage{}
	if json.Unmarshal(job, &fields) != nil {
		return job, nil // the dispatcher says what is wrong with it
	}
	value, err := json.Marshal(key)
	if err != nil {
		return nil, err
	}
	has, ok := fields["key"]
	switch {
	case ok && bytes.Equal(has, value):
		return job, nil
	case ok:
		return nil, invalid(KeyHeader, "is not the key that the job has: leave one of them out")
	case fields["signature"] != nil:
		return nil, invalid(KeyHeader, "is not covered by the job's signature: sign the job with its key")
	}
	fields["key"] = value
	return json.Marshal(fields)
}

// finished waits for the end of a job, and returns its record as it is then, or when
// the time is up.
func (s *Server) finished(c *call, asking *client.Client, id string, wait time.Duration) (jobs.Record, error) {
	// The answer comes later than others may.
	_ = c.control().SetWriteDeadline(time.Now().Add(wait + c.patience)) // every connection of ours has one
	waiting, done := s.untilEnding(c.r.Context())
	defer done()
	for end := time.Now().Add(wait); ; {
		left := min(time.Until(end), operation.MaxWait)
		if left <= 0 || waiting.Err() != nil {
			return asking.Get(c.r.Context(), id)
		}
		rec, err := client.Ask(waiting, asking, operation.Wait, operation.WaitRequest{ID: id, For: jobs.Duration(left)})
		if err == nil && rec.State != jobs.Finished || waiting.Err() != nil {
			continue
		}
		return rec, err
	}
}

// send gives a message to the agent of a job. It fills in what a person need not say.
func (s *Server) send(c *call, route Route) error {
	raw, err := bind(c, route)
	if err != nil {
		return err
	}
	request, err := operation.Send.Decode(raw)
	if err != nil {
		return err
	}
	return s.tell(c, request.ID, request.Control, s.asking(c).Send)
}

// An AnswerRequest answers a question of an agent, or a request for permission.
type AnswerRequest struct {
	Ask     string                   `json:"ask,omitempty" jsonschema:"The question's id. Left out, the only one that is open."`
	Options []string                 `json:"options,omitempty" jsonschema:"The labels of the options to choose."`
	Text    string                   `json:"text,omitempty" jsonschema:"An answer in one's own words; with deny, why."`
	Answers map[string]control.Words `json:"answers,omitempty" jsonschema:"The answers to several questions, by their numbers from 1, their headers or their texts."`
	Deny    bool                     `json:"deny,omitempty" jsonschema:"Refuse what is asked for, or leave the question without an answer."`

	ToolInput json.RawMessage `json:"tool_input,omitempty" jsonschema:"Grant a permission with this input of the tool, an object, instead of what the agent asked for."`
}

func (s *Server) answer(c *call, _ Route) error {
	if err := c.params(nil); err != nil {
		return err
	}
	var given AnswerRequest
	if len(c.body) > 0 {
		if err := jobs.DecodeBounded(c.body, &given, maxBody); err != nil {
			return err
		}
	}
	m := control.Message{Ask: given.Ask, Options: given.Options, Text: given.Text, Answers: given.Answers, Deny: given.Deny, ToolInput: given.ToolInput}
	return s.tell(c, c.r.PathValue("id"), m, s.asking(c).Answer)
}

func (s *Server) tell(c *call, id string, m control.Message, send func(context.Context, string, control.Message) (control.Receipt, error)) error {
	receipt, err := send(c.r.Context(), id, m)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, receipt)
}

func (s *Server) fork(c *call, route Route) error {
	raw, err := bind(c, route)
	if err != nil {
		return err
	}
	request, err := operation.Fork.Decode(raw)
	if err != nil {
		return err
	}
	asking, err := s.makingJob(c)
	if err != nil {
		return err
	}
	if request.Count > 1 && c.r.Header.Get(operation.JobIDHeader) != "" {
		return invalid(operation.JobIDHeader, "names one job: ask for each fork by itself")
	}
	made, err := asking.Fork(c.r.Context(), request.ID, request.Prompt, request.Count)
	if err != nil {
		return err
	}
	return c.json(http.StatusCreated, operation.Forked{Jobs: made})
}

func (s *Server) runSchedule(c *call, route Route) error {
	if _, err := bind(c, route); err != nil {
		return err
	}
	asking, err := s.makingJob(c)
	if err != nil {
		return err
	}
	rec, err := asking.Schedules().Run(c.r.Context(), c.r.PathValue("name"))
	if err != nil {
		return err
	}
	return c.json(route.Status, rec)
}
