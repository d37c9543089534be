package adaptertest

import (
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/agent/contract"
)

// Picture is a small image of one color.
func Picture(t *testing.T, shade uint8) control.Image {
	t.Helper()
	return contract.Picture(shade)
}

// ShowImages sends the agent a text with images, and one image without a text, when its
// turns are over.
func ShowImages(t *testing.T, c *Conversation, text string, images ...control.Image) {
	turns := 0
	c.OnEvent = func(e event.Event) [][]byte {
		if e.Kind != jobs.TurnEnded {
			return nil
		}
		speaker := c.Decoder.(agent.Speaker)
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
		urls = append(urls, contract.DataURL(i))
	}
	if !slices.Equal(last.Images, urls) {
		t.Errorf("the model was shown %.200q, want %.200q", last.Images, urls)
	}
	if !slices.ContainsFunc(requests, func(r agenttest.Request) bool { return strings.Contains(r.Last, "look at this") }) {
		t.Errorf("the model was told %+v", requests)
	}
}

// SeesImages talks to a real agent and looks at what its model was shown.
func SeesImages(t *testing.T, agents *agent.Agents, l agent.Launch, model *agenttest.Model) {
	t.Helper()
	c := &Conversation{}
	ShowImages(t, c, "look at this", Picture(t, 20), Picture(t, 30))
	r := Talk(t, agents, l, c)
	seen(t, model, Picture(t, 10), Picture(t, 20), Picture(t, 30), Picture(t, 20))
	if r.Count(jobs.TurnEnded) != 3 || r.End.Outcome != jobs.Success {
		t.Errorf("ended %+v", r.End)
	}
	if t.Failed() {
		Log(t, r)
	}
}
