package wire

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
)

func TestWhatIsAskedAgain(t *testing.T) {
	for _, c := range []struct {
		err   error
		again bool
	}{
		{nats.ErrTimeout, true},
		{nats.ErrNoResponders, true},
		{(&APIError{503, codeNotAvailable, "JetStream system temporarily unavailable"}).known(), true},
		{(&APIError{500, codeNotLeader, "JetStream cluster can not handle request"}).known(), true},
		{(&APIError{404, codeNoMessage, "no message found"}).known(), false},
		{(&APIError{400, codeWrongLast, "wrong last sequence"}).known(), false},
		{(&APIError{404, codeNoStream, "stream not found"}).known(), false},
		{(&APIError{500, codeNoReplicas, "replicas > 1 not supported in non-clustered mode"}).known(), false},
		{(&APIError{503, codeServerLimit, "insufficient resources"}).known(), false},
		{&replyError{"X", errors.New("no JSON")}, false},
		{jobs.ErrFull, false},
	} {
		if unanswered(c.err) != c.again {
			t.Errorf("%v: asked again %v, want %v", c.err, !c.again, c.again)
		}
	}
}
