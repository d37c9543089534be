package httpapi

import (
	"cmp"
	"errors"
	"net/http"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/cloudevent"
	"github.com/penstock-run/penstock/jobs/operation"
)

// Taken says what became of CloudEvents, in their order.
type Taken struct {
	Jobs []TakenJob `json:"jobs" jsonschema:"One entry for each event."`
}

// A TakenJob is the job of an event, or why there is none.
type TakenJob struct {
	*operation.Submitted
	Event string         `json:"event" jsonschema:"The id of the event."`
	Code  jobs.ErrorCode `json:"code,omitempty" jsonschema:"Of an event of a batch that was refused: the error's code."`
	Error string         `json:"error,omitempty" jsonschema:"And what is wrong with it."`
}

// takeEvents submits the jobs of CloudEvents. An event alone that is no job is refused as a
// job would be. In a batch it is refused by itself, since its sender could only repeat
// the whole; where the pool does not answer, the whole is to be repeated, which makes no
// job twice.
func (s *Server) takeEvents(c *call, _ Route) error {
	if err := c.params(nil); err != nil {
		return err
	}
	events, err := cloudevent.Decode(c.r.Header, c.body)
	if err != nil {
		return wrongEvent(err)
	}
	if events == nil {
		return invalid("(body)", "is no CloudEvent: it has neither headers ce-… nor the type application/cloudevents+json")
	}
	taken := Taken{Jobs: []TakenJob{}}
	trace := jobs.TraceOf(c.r.Header)
	if len(events) == 1 {
		events[0].Trace = cmp.Or(trace, events[0].Trace)
	}
	asking := s.cfg.Client.As("http").WithTrace(trace)
	for _, event := range events {
		one := TakenJob{Event: event.ID}
		job, err := event.Job()
		if err == nil {
			var made operation.Submitted
			made, err = asking.SubmitJSON(c.r.Context(), job)
			one.Submitted = &made
		}
		err = wrongEvent(err)
		if code := jobs.Code(err); err != nil && (len(events) == 1 || code != jobs.CodeInvalid && code != jobs.CodeTooLarge) {
			return err
		} else if err != nil {
			one = TakenJob{Event: event.ID, Code: code, Error: err.Error()}
		}
		taken.Jobs = append(taken.Jobs, one)
	}
	return c.json(http.StatusOK, taken)
}

// wrongEvent gives what is wrong with an envelope the form of what is wrong with a request.
func wrongEvent(err error) error {
	wrong, ok := errors.AsType[*cloudevent.Error](err)
	if !ok {
		return err
	}
	return invalid(cmp.Or(wrong.Attribute, "(event)"), wrong.Reason)
}
