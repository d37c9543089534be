package dispatcher_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/jobstest"
)

// A message gets to the worker that runs the job, or its sender hears why not.
func TestSend(t *testing.T) {
	p := open(t, dispatcher.Hooks{})
	p.serve(t)
	send := func(id string, code control.Refusal, says string) {
		t.Helper()
		c := control.Message{ID: jobs.NewID(), Verb: control.Prompt, Text: "more"}
		_, err := p.Send(jobstest.Context(t), id, c)
		refused, ok := errors.AsType[*control.RefusedError](err)
		if !ok || refused.Code != code || !strings.Contains(refused.Message, says) {
			t.Errorf("got %v, want that it is refused: %s %s", err, code, says)
		}
	}
	answer, err := p.Submit(t.Context(), job(), "test")
	if err != nil {
		t.Fatal(err)
	}
	send(answer.ID, control.NotReady, "is pending")
	claim := jobstest.Claim(t, p.queue, "w1")
	send(answer.ID, control.NotReady, "worker w1")

	var received []string
	shown := 0
	stop, err := p.log.Listen(answer.Session, nil, func(c control.Message) (control.Receipt, error) {
		received = append(received, c.Text)
		shown += len(c.Images)
		return control.Receipt{ID: c.ID, Verb: c.Verb, Job: answer.ID, State: "accepted"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	request := func(body string) (got map[string]any) {
		t.Helper()
		eventually(t, "an answer", func() bool {
			msg, err := p.nc.Request("penstock.v1.api.send", []byte(body), jobstest.Patience)
			return err == nil && json.Unmarshal(msg.Data, &got) == nil
		})
		return got
	}
	body := `{"id":"` + answer.ID + `","control":{"id":"` + jobs.NewID() + `","verb":"prompt","text":"over the bus"}}`
	if got := request(body); got["state"] != "accepted" || got["job"] != answer.ID {
		t.Errorf("got %v", got)
	}
	large := control.Image{Type: "image/gif", Data: []byte("GIF89a" + strings.Repeat("x", control.MaxImageBytes-6))}
	looks := control.Message{ID: jobs.NewID(), Verb: control.Prompt, Text: strings.Repeat("x", control.MaxText), Images: []control.Image{large}}
	largest, err := json.Marshal(map[string]any{"id": answer.ID, "control": looks})
	if err != nil {
		t.Fatal(err)
	}
	if got := request(string(largest)); got["state"] != "accepted" || shown != 1 {
		t.Errorf("of the largest message: got %v, %d images", got, shown)
	}
	received = received[:1]
	for _, bad := range []string{`{}`, `{"id":"` + answer.ID + `"}`, strings.Replace(body, "prompt", "dance", 1), strings.Replace(body, "text", "words", 1)} {
		if got, _ := request(bad)["error"].(map[string]any); got["code"] != "invalid" {
			t.Errorf("%s: got %v", bad, got)
		}
	}
	stop()
	if len(received) != 1 || received[0] != "over the bus" {
		t.Errorf("got %q", received)
	}

	if _, err := claim.Settle(jobstest.Context(t), jobs.Ended{Outcome: jobs.Success}, nil); err != nil {
		t.Fatal(err)
	}
	send(answer.ID, control.Finished, "has finished (success)")
	_, err = p.Send(jobstest.Context(t), answer.ID, looks)
	if refused, ok := errors.AsType[*control.RefusedError](err); !ok || refused.Code != control.Finished || !strings.Contains(refused.Message, "prompt without images") {
		t.Errorf("images after the end: %v", err)
	}
	if got, _ := request(body)["error"].(map[string]any); got["code"] != "finished" {
		t.Errorf("after the end: got %v", got)
	}
	if _, err := p.Send(jobstest.Context(t), jobs.NewID(), control.Message{ID: jobs.NewID(), Verb: control.Stop}); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("of no job: %v", err)
	}
}
