package conversation

import (
	"cmp"
	"math"

	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/worker/agent"
)

// Launch adds the past to an attempt's first launch: the conversation that continues,
// and the prompts that it is missing. An agent that takes input gets one of them in its
// first prompt, so that it begins with it, and the others afterwards; any other agent
// gets all at once.
func (c *Conversation) Launch(l agent.Launch, listens bool) agent.Launch {
	most := math.MaxInt
	if listens {
		most = 1
		if c.begun == nil || c.begun.Open || c.forks() {
			most = 0
		}
	}
	said := c.Prompts.first(most)
	var texts []string
	for _, prompt := range said {
		if listens {
			l.Images = prompt.Images
		} else {
			prompt.Text = control.WithoutImages(prompt.Text, len(prompt.Images), "which you cannot be given")
		}
		texts = append(texts, cmp.Or(prompt.Text, "The message is an image."))
	}
	switch {
	case c.forks():
		l = l.Forked().With(texts...)
	case c.begun != nil:
		l.Asked = c.asked(l)
		l = l.Continued(c.begun.Open, texts...)
	default:
		l = l.With(texts...)
	}
	if len(said) == 1 {
		l.Input = said[0].ID
	}
	return l
}

// asked is what was asked last of an agent whose way to keep a conversation only the settings
// know: it may write a prompt down at the end of its turn.
func (c *Conversation) asked(l agent.Launch) string {
	if !c.described {
		return ""
	}
	if text := c.Prompts.lastTaken(); text != "" {
		return text
	}
	l.Replies, l.Notice = nil, ""
	return l.FirstPrompt()
}
