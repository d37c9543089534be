package agentrun

import "github.com/penstock-run/penstock/jobs/event"

// work is what an agent has begun and not ended, besides its questions.
type work struct {
	tools    map[string]bool // calls that have no result yet
	live     int             // what it runs in the background
	attended bool            // a user has a terminal in its jail
}

// maxTools bounds the calls that are remembered: an agent may begin any number.
const maxTools = 1024

func (w *work) note(events []event.Event) {
	for _, e := range events {
		switch d := e.Payload.(type) {
		case event.ToolStarted:
			if w.tools == nil {
				w.tools = map[string]bool{}
			}
			if len(w.tools) < maxTools {
				w.tools[d.Call] = true
			}
		case event.ToolEnded:
			delete(w.tools, d.Call)
		case event.TurnEnded:
			clear(w.tools)
		case event.TaskUpdated:
			if d.Live != nil {
				w.live = len(*d.Live)
			}
		}
	}
}

// count counts what goes on.
func (w *work) count() int { return len(w.tools) + w.live }
