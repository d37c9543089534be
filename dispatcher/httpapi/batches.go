package httpapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/penstock-run/penstock/dispatcher/intake"
	"github.com/penstock-run/penstock/dispatcher/internal/batch"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/prediction"
)

// batchesAtOnce bounds the batches that are read at once: each is in memory.
const batchesAtOnce = 2

// linesOfJSON are the names of the type of content with a JSON object in each line.
var linesOfJSON = []string{"application/jsonl", "application/x-ndjson"}

// submitBatch submits a job for each line. Each line is checked before the first is
// submitted; the key of each is made of the batch and the item, so what was interrupted
// is repeated.
func submitBatch(s *Server, c *call, _ Route) error {
	var name, queue, agent, repo, ref string
	var dry bool
	if err := c.params(map[string]any{"name": &name, "queue": &queue, "agent": &agent, "repo": &repo, "ref": &ref, "dry_run": &dry}); err != nil {
		return err
	}
	if err := jobs.CheckToken("name", name); err != nil {
		return err
	}
	defaults := jobs.Job{Queue: queue, Agent: jobs.Agent{Name: agent}, Repo: jobs.Repo{URL: repo, Ref: ref}}
	select {
	case s.batches <- struct{}{}:
		defer func() { <-s.batches }()
	default:
		return refused(jobs.CodeBusy, "the server reads %d batches now, and no more at once", batchesAtOnce)
	}
	items, err := c.readBatch(defaults)
	if err != nil {
		return err
	}
	if dry {
		return c.json(http.StatusOK, batch.Submitted{Batch: name, Jobs: len(items)})
	}
	// The answer comes later than others may.
	_ = c.control().SetWriteDeadline(time.Now().Add(batch.Within + c.patience)) // every connection of ours has one
	made, err := batch.Submit(c.r.Context(), s.askingAs(c, "http"), name, items)
	if err != nil {
		return err
	}
	c.Header().Set("Location", "/v1/batches/"+name)
	return c.json(http.StatusCreated, made)
}

// readBatch reads a job from each line of the body, or says which lines are none.
func (c *call) readBatch(defaults jobs.Job) ([]intake.Item, error) {
	kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if err != nil || !slices.Contains(linesOfJSON, kind) {
		return nil, refused(codeMediaType, "the body is not said to be %s", strings.Join(linesOfJSON, " or "))
	}
	items, err := batch.Read(http.MaxBytesReader(c, c.r.Body, batch.MaxBytes), defaults)
	_ = c.control().SetReadDeadline(time.Time{}) // it was for the request
	if tooLong, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, refused(jobs.CodeTooLarge, "the body is longer than the %d bytes that are allowed: submit the batch in parts, under one name", tooLong.Limit)
	}
	if _, ok := errors.AsType[*jobs.InvalidError](err); err != nil && !ok {
		return nil, invalid("(body)", "ends too early")
	}
	return items, err
}

// batchResults sends the results of the jobs of a batch that have finished, one a line.
func batchResults(s *Server, c *call, _ Route) error {
	return eachResult(s, c, func(_ jobs.Record, result jobs.Result) error {
		line, err := json.Marshal(result)
		if err != nil {
			return err
		}
		return c.say(append(line, '\n'), false)
	})
}

// predictions sends the patches of the jobs of a batch that have finished, as tools take
// them that evaluate agents, one a line.
func predictions(s *Server, c *call, _ Route) error {
	return eachResult(s, c, func(rec jobs.Record, result jobs.Result) (err error) {
		patch, err := s.asking(c).Patch(c.r.Context(), rec.ID)
		if err != nil {
			return fmt.Errorf("patch of job %s: %w", rec.ID, err)
		}
		defer func() { err = errors.Join(err, patch.Close()) }()
		out := writerFunc(func(p []byte) (int, error) { return len(p), c.say(p, false) })
		if err := prediction.Write(out, result.ID, cmp.Or(result.Model, rec.Agent, "penstock"), patch); err != nil {
			return err
		}
		_, err = io.WriteString(out, "\n")
		return err
	})
}

// writerFunc is an [io.Writer].
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// eachResult calls each for the jobs of a batch that have finished, in the order of their
// submission.
func eachResult(s *Server, c *call, each func(jobs.Record, jobs.Result) error) error {
	if err := c.params(nil); err != nil {
		return err
	}
	name := c.r.PathValue("batch")
	if err := jobs.CheckToken("batch", name); err != nil {
		return err
	}
	if _, err := s.asking(c).Batches().Get(c.r.Context(), name); err != nil {
		return err
	}
	c.Header().Set("Content-Type", linesOfJSON[0])
	for rec, err := range s.asking(c).List(c.r.Context(), operation.ListRequest{Batch: name, State: jobs.Finished}) {
		if err != nil {
			return err
		}
		result, err := s.asking(c).Result(c.r.Context(), rec.ID)
		if err != nil {
			return fmt.Errorf("result of job %s: %w", rec.ID, err)
		}
		if err := each(rec, result); err != nil {
			return err
		}
	}
	return nil
}

// batchReport answers with the report of a batch, in JSON or in Markdown.
func (s *Server) batchReport(c *call, _ Route) error {
	format := "json"
	if c.accepts("text/markdown") {
		format = "md"
	}
	if err := c.params(map[string]any{"format": &format}); err != nil {
		return err
	}
	if format != "json" && format != "md" {
		return invalid("format", "is not one of json, md")
	}
	made, err := s.asking(c).Batches().Report(c.r.Context(), c.r.PathValue("name"))
	if err != nil {
		return err
	}
	if format == "json" {
		return c.json(http.StatusOK, made)
	}
	c.Header().Set("Content-Type", "text/markdown; charset=utf-8")
	return made.Markdown(c, nil)
}
