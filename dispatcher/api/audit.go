package api

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/audit"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/responder"
)

// recorded makes handlers that keep in the audit log what they changed, and refused to
// change.
func (s *Server) recorded(handlers []responder.Handler) []responder.Handler {
	for i, handler := range handlers {
		if handler.Changes {
			handlers[i].Do = s.record(handler)
		}
	}
	return handlers
}

// record appends the entry before the answer is sent: a caller that has an answer is in
// the log. A log that takes no entry does not keep the pool from answering.
func (s *Server) record(handler responder.Handler) func(context.Context, responder.Call) (any, error) {
	return func(ctx context.Context, call responder.Call) (any, error) {
		answer, err := handler.Do(ctx, call)
		e := operation.AuditEntry{
			Operation: handler.Name, About: about(call, answer), Who: cmp.Or(call.Who, call.By, "unsaid"),
			Role: call.Role, Via: cmp.Or(call.Via, "bus"), Outcome: cmp.Or(string(jobs.Code(err)), audit.Done),
		}
		// The change is done even if the time for its answer is over.
		if failed := s.cfg.Audit.Append(context.WithoutCancel(ctx), e); failed != nil && s.cfg.Unrecorded != nil {
			s.cfg.Unrecorded(e, failed)
		}
		return answer, err
	}
}

// about names the thing that a request is about: a job by its id, also one that the
// request made, everything else by its name.
func about(call responder.Call, answer any) string {
	if made, ok := answer.(operation.Submitted); ok {
		return made.ID
	}
	var request struct{ ID, Name string }
	_ = json.Unmarshal(call.Request, &request) // what cannot be read was refused, and is about nothing
	return cmp.Or(request.ID, request.Name, call.JobID)
}
