package terminal

import (
	"encoding/json"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
)

// Away is the code of a request that no worker has taken: none has the session now, or
// the broker is away. It may be repeated.
const Away control.Refusal = control.Refusal(jobs.CodeUnavailable)

// MaxCall is how many bytes a [Call] may have.
const MaxCall = MaxBytes + 256

// A Call is a request on a connection that carries many of them, such as a WebSocket.
type Call struct {
	// Number is the client's own, from 1; the reply has the same.
	Number  uint64  `json:"number"`
	Request Request `json:"request"`
}

// A Reply is the answer to a [Call]. Replies come in the order in which there are answers.
type Reply struct {
	Number uint64 `json:"number"`
	Answer Answer `json:"answer"`
}

// DecodeCall reads a call and validates it. With an error the call has its number, if one
// can be read.
func DecodeCall(data []byte) (Call, error) {
	var c Call
	if err := jobs.DecodeBounded(data, &c, MaxCall); err != nil {
		var numbered struct {
			Number uint64 `json:"number"`
		}
		_ = json.Unmarshal(data, &numbered) // what cannot be read has no number
		return Call{Number: numbered.Number}, err
	}
	return c, c.Request.Validate()
}
