package operation

import (
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// Audit tells who did what. It is for operators alone: the log names everyone.
var Audit = define[AuditRequest, AuditPage](Row{
	Name: "audit", Waits: true,
	Sentence: "Tell which changes were asked for, by whom, and what came of them, the oldest first. Repeat the request with next as after.",
})

// Headers of requests that tell where they came from. The pool's own HTTP
// interface sends them; a client of the bus could, too. They are kept in the audit log;
// nothing is allowed or refused by them.
const (
	// WhoHeader is the name that its caller has proved there.
	WhoHeader = "Penstock-Who"
	// ViaHeader is the interface that has taken the request.
	ViaHeader = "Penstock-Via"
	// RoleHeader is the role that its caller has proved there.
	RoleHeader = "Penstock-Role"
)

// An AuditRequest selects entries. Empty fields select all.
type AuditRequest struct {
	Since     *time.Time    `json:"since,omitempty" jsonschema:"Since this time."`
	Who       string        `json:"who,omitempty" jsonschema:"Asked for by this token or program."`
	Operation string        `json:"operation,omitempty" jsonschema:"Of this operation."`
	About     string        `json:"about,omitempty" jsonschema:"About the thing with this id or name."`
	After     uint64        `json:"after,omitempty" jsonschema:"The next of the page before."`
	Limit     int           `json:"limit,omitempty" jsonschema:"How many entries are wanted, at most 1000, which is the default."`
	For       jobs.Duration `json:"for,omitempty" jsonschema:"How long to wait for an entry, at most 10s, if there is none."`
}

func (r AuditRequest) check() error {
	if r.Operation != "" {
		if err := jobs.CheckToken("operation", r.Operation); err != nil {
			return err
		}
	}
	return checkLimit(r.Limit)
}

// Selects reports whether the request is for this entry.
func (r AuditRequest) Selects(e AuditEntry) bool {
	return (r.Who == "" || e.Who == r.Who) && (r.Operation == "" || e.Operation == r.Operation) &&
		(r.About == "" || e.About == r.About) && (r.Since == nil || !e.At.Before(*r.Since))
}

// An AuditEntry says that a change was asked for. It has neither the request nor the
// answer.
type AuditEntry struct {
	Seq       uint64    `json:"seq" jsonschema:"Its number in the log."`
	At        time.Time `json:"at" jsonschema:"When it was stored, by the broker's clock."`
	Operation string    `json:"operation" jsonschema:"What was asked for."`
	About     string    `json:"about,omitempty" jsonschema:"The id or the name of what it was about."`
	Who       string    `json:"who" jsonschema:"Of HTTP the name of the token, of the bus what the program calls itself."`
	Role      jobs.Role `json:"role,omitempty" jsonschema:"The role of the token."`
	Via       string    `json:"via" jsonschema:"The interface: bus, http or mcp."`
	Outcome   string    `json:"outcome" jsonschema:"ok, or the code of the refusal."`
}

// An AuditPage is a page of entries.
type AuditPage struct {
	Entries []AuditEntry `json:"entries" jsonschema:"The entries."`
	Next    uint64       `json:"next" jsonschema:"What the next request has as after."`
	More    bool         `json:"more" jsonschema:"More of the log is there already."`
}
