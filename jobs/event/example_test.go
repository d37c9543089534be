package event_test

import (
	"encoding/json"
	"fmt"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

func ExampleDecode() {
	line := `{"seq":7,"kind":"tool.ended","data":{"call":"c1","name":"Bash","output":"ok"}}`
	var e jobs.Event
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		fmt.Println(err)
		return
	}
	payload, err := event.Decode(e)
	if err != nil {
		fmt.Println(err) // of a kind, or of a form, that this version does not know
	}
	switch d := payload.(type) {
	case event.Message:
		fmt.Println(d.Role, "says", d.Text)
	case event.ToolEnded:
		fmt.Println(d.Name, "put out", d.Output)
	}
	// Output: Bash put out ok
}

func ExampleNew() {
	e := event.New(event.Milestone{Text: "the tests pass"})
	fmt.Println(e.Kind, string(e.Data))
	// Output: milestone {"text":"the tests pass"}
}

func ExampleKinds() {
	for _, row := range event.Kinds()[:2] {
		fmt.Printf("%s, by the %s: %s\n", row.Kind, row.Sender, row.About)
	}
	// Output:
	// job.submitted, by the dispatcher: A job was accepted.
	// job.claimed, by the worker: An attempt begins.
}
