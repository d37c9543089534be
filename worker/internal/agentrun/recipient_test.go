package agentrun

import (
	"errors"
	"testing"

	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/worker/agent"
)

// A silent agent takes no input.
type silent struct{ agent.Decoder }

// Whether an agent takes a message depends on what it is, and on whether its input is open.
func TestWhatAnAgentTakes(t *testing.T) {
	t.Parallel()
	image := []control.Image{{}}
	for _, tt := range []struct {
		decoder      agent.Decoder
		open, closed bool
		kept         bool
		c            control.Message
		want         control.Refusal
	}{
		{&speaker{}, true, false, false, control.Message{Verb: control.Prompt}, ""},
		{&speaker{}, true, false, false, control.Message{Verb: control.Prompt, Images: image}, ""},
		{&speaker{}, true, true, false, control.Message{Verb: control.Prompt}, control.Over},
		{&speaker{}, true, true, true, control.Message{Verb: control.Prompt}, control.NotReady},
		{&speaker{}, true, true, true, control.Message{Verb: control.Set}, control.Over},
		{&speaker{}, true, true, false, control.Message{Verb: control.Interrupt}, ""},
		{&speaker{}, true, true, false, control.Message{Verb: control.Answer}, ""},
		{&speaker{}, false, false, false, control.Message{Verb: control.Prompt}, control.Cannot},
		{silent{}, true, false, false, control.Message{Verb: control.Interrupt}, control.Cannot},
		{silent{}, true, false, false, control.Message{Verb: control.Answer}, control.Nothing},
	} {
		err := recipient{decoder: tt.decoder, open: tt.open, kept: tt.kept}.takes(tt.c, tt.closed)
		var code control.Refusal
		if refused, ok := errors.AsType[*control.RefusedError](err); ok {
			code = refused.Code
		}
		if code != tt.want || (err == nil) != (tt.want == "") {
			t.Errorf("%T, open %t, closed %t, kept %t: %s: %v, want %q", tt.decoder, tt.open, tt.closed, tt.kept, tt.c.Verb, err, tt.want)
		}
	}
}
