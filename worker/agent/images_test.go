package agent_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"image"
	"image/color"
	"image/png"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// picture is a small image of one color.
func picture(t *testing.T, shade uint8) control.Image {
	t.Helper()
	img := image.NewGray(image.Rect(0, 0, 32, 32))
	for i := range img.Pix {
		img.Pix[i] = color.Gray{Y: shade}.Y
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return control.Image{Type: "image/png", Data: b.Bytes()}
}

func dataURL(i control.Image) string {
	return "data:" + i.Type + ";base64," + base64.StdEncoding.EncodeToString(i.Data)
}

// shows has the agent told a text with images, and one image without a text, when
// its turns are over.
func (c *conversation) shows(t *testing.T, text string, images ...control.Image) {
	turns := 0
	c.hear = func(e event.Event) [][]byte {
		if e.Kind != jobs.TurnEnded {
			return nil
		}
		speaker := c.d.(agent.Speaker)
		if err := speaker.TakesImages(); err != nil {
			t.Error(err)
		}
		switch turns++; turns {
		case 1:
			return speaker.Say(jobs.NewID(), text, images...)
		case 2:
			return speaker.Say(jobs.NewID(), "", images[0])
		}
		return nil
	}
}

// seen checks which images came to the model, and with which text.
func seen(t *testing.T, model *agenttest.Model, want ...control.Image) {
	t.Helper()
	requests := model.Requests()
	last := requests[len(requests)-1]
	var urls []string
	for _, i := range want {
		urls = append(urls, dataURL(i))
	}
	if !slices.Equal(last.Images, urls) {
		t.Errorf("the model was shown %.200q, want %.200q", last.Images, urls)
	}
	if !slices.ContainsFunc(requests, func(r agenttest.Request) bool { return strings.Contains(r.Last, "look at this") }) {
		t.Errorf("the model was told %+v", requests)
	}
}

// The first prompt of a process may have images, as those that are said later.
func TestRealClaudeSeesImages(t *testing.T) {
	agents, program := requireProgram(t, "claude")
	model := agenttest.New()
	srv := httptest.NewServer(model)
	defer srv.Close()
	l := prompted(t, "claude", "FIRST", program, srv.URL)
	l.Job.Agent.Interactive, l.Images = true, []control.Image{picture(t, 10)}
	seesImages(t, agents, l, model)
}

func TestRealCodexSeesImages(t *testing.T) {
	agents, program := requireProgram(t, "codex")
	l, model := talkCodex(t, program)
	l.Images = []control.Image{picture(t, 10)}
	seesImages(t, agents, l, model)
}

// seesImages talks to a real agent and looks at what its model was shown.
func seesImages(t *testing.T, agents *agent.Agents, l agent.Launch, model *agenttest.Model) {
	t.Helper()
	c := &conversation{}
	c.shows(t, "look at this", picture(t, 20), picture(t, 30))
	r := talk(t, agents, l, t.TempDir(), c)
	seen(t, model, picture(t, 10), picture(t, 20), picture(t, 30), picture(t, 20))
	if r.count(jobs.TurnEnded) != 3 || r.end.Outcome != jobs.Success {
		t.Errorf("ended %+v", r.end)
	}
	if t.Failed() {
		transcript(t, r)
	}
}

// An agent of the protocol that offers to take images gets them.
func TestACPTakesImages(t *testing.T) {
	agents, l := scriptedAgent(t, "hello", agent.Custom{Env: map[string]string{"ACP_AGENT": "sees"}})
	l.Job.Agent.Interactive, l.Images = true, []control.Image{picture(t, 10)}
	c := &conversation{}
	c.shows(t, "look at this", picture(t, 20), picture(t, 30))
	r := talk(t, agents, l, t.TempDir(), c)
	said := r.data(jobs.Message)
	for _, want := range []string{
		"told hello " + dataURL(picture(t, 10)) + " in mode",
		"told look at this " + dataURL(picture(t, 20)) + " " + dataURL(picture(t, 30)) + " in mode",
		"told  " + dataURL(picture(t, 20)) + " in mode",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("it did not say %.60s", want)
		}
	}
	if r.end.Outcome != jobs.Success || r.count(jobs.Notice) != 0 || t.Failed() {
		transcript(t, r)
	}
}

// One that does not offer it is not sent any. It refuses, and where it took them
// in an earlier process, the session and the agent are told what is missing.
func TestACPTakesNoImages(t *testing.T) {
	agents, l := scriptedAgent(t, "hello", agent.Custom{})
	l.Job.Agent.Interactive, l.Images = true, []control.Image{picture(t, 10)}
	c := &conversation{}
	refused := func(want control.Refusal) {
		err := c.d.(agent.Speaker).TakesImages()
		if r, ok := errors.AsType[*control.RefusedError](err); !ok || r.Code != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	c.hear = func(e event.Event) [][]byte {
		if e.Kind == jobs.TurnEnded {
			refused(control.Cannot)
		}
		return nil
	}
	r := talk(t, agents, l, t.TempDir(), c)
	if got := r.data(jobs.Message); !strings.Contains(got, "1 of the images of this message are left out") || strings.Contains(got, "base64") {
		t.Errorf("said %s", got)
	}
	if got := r.data(jobs.Notice); !strings.Contains(got, "takes no images") {
		t.Errorf("the session was told %s", got)
	}
	adapter, err := agents.Get("mine")
	if err != nil {
		t.Fatal(err)
	}
	c.d = adapter.Decoder(l)
	refused(control.NotReady)
}
