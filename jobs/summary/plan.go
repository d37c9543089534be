package summary

import (
	"encoding/json"

	"github.com/penstock-run/penstock/jobs/event"
)

// A Step is an item of an agent's plan.
type Step struct {
	Text, Status string
	Mark         string // a character that shows the status
}

// Steps reads an agent's plan.
func Steps(d event.PlanUpdated) []Step {
	// Each agent has words of its own for the text of an item.
	var items []struct{ Content, Text, Step, Title, Subject, Description, Status string }
	_ = json.Unmarshal(d.Items, &items) // what fits is shown
	marks := map[string]string{"completed": "☑", "in_progress": "◐", "inProgress": "◐"}
	var steps []Step
	for _, item := range items {
		mark := marks[item.Status]
		if mark == "" {
			mark = "☐"
		}
		text := firstOf(item.Content, item.Text, item.Step, item.Title, item.Subject, item.Description)
		steps = append(steps, Step{Text: text, Status: item.Status, Mark: mark})
	}
	return steps
}
