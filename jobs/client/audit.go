package client

import (
	"context"
	"iter"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

// Audit returns the entries of the audit log that a request selects, the oldest first. If
// the request waits for entries, it goes on with those that come, until ctx ends.
func (c *Client) Audit(ctx context.Context, request operation.AuditRequest) iter.Seq2[operation.AuditEntry, error] {
	return func(yield func(operation.AuditEntry, error) bool) {
		for {
			page, err := Ask(ctx, c, operation.Audit, request)
			if err != nil {
				yield(operation.AuditEntry{}, err)
				return
			}
			for _, e := range page.Entries {
				if !yield(e, nil) {
					return
				}
			}
			if request.After = page.Next; !page.More && request.For <= 0 {
				return
			}
		}
	}
}

// OnBehalf returns a client whose requests are told to be those of a caller of another
// interface, whose role it has found out. The audit log keeps that.
func (c *Client) OnBehalf(name string, role jobs.Role, via string) *Client {
	other := *c
	other.who, other.role, other.via = name, role, via
	return &other
}
