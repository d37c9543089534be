package inside

import (
	"context"
	"net/http"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/terminal"
)

// Limits on the agent's use of terminals, besides those of each terminal.
const (
	MaxTerminals = 50               // that an attempt's agent opens in total
	MaxReads     = 8                // reads that wait at once
	MaxWait      = 30 * time.Second // of a read
)

// A Terminal is a request about the terminals of the jail. Wait bounds how long a read
// waits for output; it may return earlier, and without output.
type Terminal struct {
	terminal.Request
	Wait jobs.Duration `json:"wait,omitempty"`
}

func (d *Server) terminal(w http.ResponseWriter, r *http.Request, handlers Handlers) (any, error) {
	var t Terminal
	if err := read(w, r, terminal.MaxBytes, &t); err != nil {
		return nil, err
	}
	if t.Wait < 0 || time.Duration(t.Wait) > MaxWait {
		return nil, Refuse("invalid", "wait is less than nothing, or more than %v", MaxWait)
	}
	ctx := r.Context()
	switch {
	case t.Verb == terminal.Resize || t.Verb == terminal.Open && t.Terminal != 0:
		// Each of them would be an event or a line of a recording, without a limit.
		return nil, Refuse("invalid", "an agent opens, reads, writes, lists and closes terminals")
	case t.Verb == terminal.Open:
		if err := d.use("terminals", MaxTerminals); err != nil {
			return nil, err
		}
	case t.Verb == terminal.Read:
		if err := d.use("reads that wait", MaxReads); err != nil {
			return nil, err
		}
		defer d.giveBack("reads that wait")
		limited, cancel := context.WithTimeout(ctx, time.Duration(t.Wait))
		defer cancel()
		ctx = limited
	}
	return handlers.Terminal(ctx, t.Request)
}

// codes maps the refusals of terminals to those of this package.
var codes = map[control.Refusal]string{
	control.Invalid: "invalid", control.Nothing: "invalid", control.Busy: "too_many",
	control.Over: "over", control.NotReady: "over", control.Cannot: "forbidden", control.Lost: "lost",
}

// Refused converts a refusal of package terminal.
func Refused(e *control.RefusedError) *RefusedError {
	return Refuse(codes[e.Code], "%s", e.Message)
}

// Terminal sends a request about the terminals of the jail.
func (c *Client) Terminal(ctx context.Context, t Terminal) (terminal.Answer, error) {
	var answer terminal.Answer
	err := c.post(ctx, "terminals", t, &answer)
	return answer, err
}
