package jobpage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/penstock-run/penstock/dispatcher/dashboard"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/summary"
	"github.com/penstock-run/penstock/jobs/visible"
)

const (
	// rawPage is how many raw events a page has, and mostRaw how much of each, in bytes.
	rawPage, mostRaw = 50, 16 << 10
	mostOutput       = 16 << 10
)

// A checkRow is one command that the pool ran itself.
type checkRow struct {
	jobs.Check
	Seq            uint64
	Attempt        int
	Output, Took   string
	Command        string
	Failed, Cached bool
	Said           string   // what its reports of tests say, in a line
	Cases          []string // those that failed, and what could not be read
}

func showChecks(v *dashboard.Visit) error {
	rows, err := checksOf(v)
	if err != nil {
		return err
	}
	return render(v, "checks", rows)
}

// checksOf lists the commands that the pool ran itself.
func checksOf(v *dashboard.Visit) (rows []checkRow, err error) {
	err = eachEvent(v, func(e jobs.Event) {
		if e.Kind != jobs.CheckEnded {
			return
		}
		d := event.As[event.CheckEnded](e)
		rows = append(rows, checkRow{
			Check: d.Check, Seq: e.Seq, Attempt: e.Attempt, Command: visible.Line(d.Command), Took: summary.Took(d.Seconds), Failed: d.Exit != 0, Cached: d.Cached,
			Said: summary.Tests(d.Tests), Cases: summary.TestLines(d.Tests),
			Output: strings.Join(visible.Block(d.Output[:min(len(d.Output), mostOutput)]), "\n"),
		})
	})
	return rows, err
}

func showAttempts(v *dashboard.Visit) error {
	var found summary.Attempts
	var failed error
	err := eachEvent(v, func(e jobs.Event) {
		if failed == nil {
			failed = found.Add(e)
		}
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	for i := range found.Attempts {
		a := &found.Attempts[i]
		a.Worker, a.Message = visible.Line(a.Worker), visible.Line(a.Message)
	}
	return render(v, "attempts", found.Attempts)
}

// eachEvent reads the stored events of the job.
func eachEvent(v *dashboard.Visit, see func(jobs.Event)) error {
	asking, err := v.Client(operation.Events.Row)
	if err != nil {
		return err
	}
	rec, err := asking.Get(v.Context(), v.R.PathValue("id"))
	if err != nil {
		return err
	}
	for e, err := range asking.Events(v.Context(), rec.ID, 0) {
		if err != nil {
			return err
		}
		if e.Job == rec.ID {
			see(e)
		}
	}
	return nil
}

// showTerminal shows where the browser itself puts terminals of the agent.
func showTerminal(v *dashboard.Visit) error {
	// Who types changes something, as with a message to the agent.
	return render(v, "terminal", struct{ Watch bool }{!v.May(operation.Send.Row)})
}

// showArtifacts lists what the attempt has left. Its names are an agent's.
func showArtifacts(v *dashboard.Visit) error {
	epoch, err := number(v, "epoch")
	if err != nil {
		return err
	}
	list, err := dashboard.Ask(v, operation.Artifacts, operation.ArtifactsRequest{ID: v.R.PathValue("id"), Epoch: epoch})
	if err != nil {
		return err
	}
	type row struct {
		Name, Path, Address, SHA256 string
		Bytes                       jobs.Bytes
	}
	var rows []row
	for _, a := range list.Artifacts {
		address := url.URL{Path: "/v1/jobs/" + v.R.PathValue("id") + "/artifacts/" + a.Name, RawQuery: fmt.Sprintf("epoch=%d", list.Epoch)}
		rows = append(rows, row{visible.Line(a.Name), visible.Line(a.Path), address.String(), a.SHA256, jobs.Bytes(a.Bytes)})
	}
	return render(v, "artifacts", struct {
		Epoch uint64
		Rows  []row
	}{list.Epoch, rows})
}

// showRaw lists events as the log has them.
func showRaw(v *dashboard.Visit) error {
	from, err := number(v, "from")
	if err != nil {
		return err
	}
	after := max(from, 1) - 1
	found, err := dashboard.Ask(v, operation.Events, operation.EventsRequest{ID: v.R.PathValue("id"), After: after, Limit: rawPage})
	if err != nil {
		return err
	}
	type row struct {
		jobs.Event
		JSON   string
		Cut    bool
		Before uint64
	}
	data := struct {
		Rows           []row
		Previous, Next uint64
		Earlier        bool
	}{Earlier: after > 0, Previous: max(after, rawPage) - rawPage + 1}
	for _, e := range found.Events {
		text, err := document(e)
		if err != nil {
			return err
		}
		shown := text[:min(len(text), mostRaw)]
		data.Rows = append(data.Rows, row{Event: e, JSON: shown, Cut: len(shown) < len(text), Before: e.Seq - 1})
	}
	if n := len(data.Rows); n > 0 && !found.Over {
		data.Next = data.Rows[n-1].Seq + 1
	}
	return render(v, "events", data)
}

// showJob shows the job as it was submitted, in forms to be copied.
func showJob(v *dashboard.Visit) error {
	shown, err := dashboard.Ask(v, operation.Show, operation.Ref{ID: v.R.PathValue("id")})
	if err != nil {
		return err
	}
	var data struct{ JSON, Command, Curl string }
	if shown.Job != nil {
		if data.JSON, err = document(shown.Job); err != nil {
			return err
		}
		data.Command = "penstock submit --job - <<'JOB'\n" + data.JSON + "\nJOB"
		address := url.URL{Scheme: "http", Host: v.R.Host, Path: "/v1/jobs"}
		if v.R.TLS != nil {
			address.Scheme = "https"
		}
		data.Curl = "curl -H \"Authorization: Bearer $PENSTOCK_TOKEN\" -H 'Content-Type: application/json' --data-binary @- " + address.String() + " <<'JOB'\n" + data.JSON + "\nJOB"
	}
	return render(v, "job", data)
}

// document writes a value as JSON that people read, and that is the same value when it is
// copied.
func document(value any) (string, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // the template does it
	enc.SetIndent("", "  ")
	if err := enc.Encode(value); err != nil {
		return "", err
	}
	return strings.TrimSuffix(visible.Document(b.String()), "\n"), nil
}

// readMost reads the beginning of a stream, and tells whether there is more.
func readMost(r io.Reader, most int64) (text string, more bool, err error) {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if int64(len(data)) > most {
		return string(data[:most]), true, err
	}
	return string(data), false, err
}
