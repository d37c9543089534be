package modelapi

import (
	"encoding/json"

	"github.com/penstock-run/penstock/jobs"
)

// ErrorKind returns what the body of an error calls it: the most telling of its words.
func ErrorKind(body []byte) string {
	var e struct {
		Error struct {
			Type    string          `json:"type"`
			Code    json.RawMessage `json:"code"` // a word, or a number
			Status  string          `json:"status"`
			Details []struct {
				Reason string `json:"reason"`
			} `json:"details"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &e) != nil {
		return ""
	}
	var code string
	_ = json.Unmarshal(e.Error.Code, &code) // a number says nothing that the status does not
	words := []string{code, e.Error.Type}
	for _, d := range e.Error.Details {
		words = append(words, d.Reason)
	}
	for _, w := range append(words, e.Error.Status) {
		if (jobs.APIFailure{Kind: w}).Reason() != "" {
			return w[:min(len(w), 100)]
		}
	}
	return ""
}
