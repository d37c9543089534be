package tokencount

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"
)

// readFailure returns the kind of an error of any provider, and whether data is one: an
// answer, or the piece of a stream that ends it.
func readFailure(data []byte, piece bool) (string, bool) {
	if len(data) > maxFailure || !bytes.Contains(data, []byte(`"error"`)) {
		return "", false
	}
	var e struct {
		Type  string `json:"type"`
		Error struct {
			Type    string          `json:"type"`
			Code    json.RawMessage `json:"code"`
			Status  string          `json:"status"`
			Message string          `json:"message"`
			Details []struct {
				Reason string `json:"reason"`
			} `json:"details"`
		} `json:"error"`
		Response struct {
			Error struct {
				Code string `json:"code"`
			} `json:"error"`
		} `json:"response"`
	}
	if json.Unmarshal(data, &e) != nil {
		return "", false
	}
	if piece && e.Type != "error" && e.Type != "response.failed" && (e.Type != "" || e.Error.Message == "") {
		return "", false
	}
	for _, d := range e.Error.Details {
		if d.Reason == badGoogleKey {
			return d.Reason, true
		}
	}
	if strings.HasPrefix(e.Error.Message, "API key not valid") {
		return badGoogleKey, true // which names no kind if the details are missing
	}
	var code string
	_ = json.Unmarshal(e.Error.Code, &code) // Google's code is a number, and its status is the name
	kind := cmp.Or(code, e.Response.Error.Code, e.Error.Status, e.Error.Type)
	return kind, kind != ""
}

const badGoogleKey = "API_KEY_INVALID"

// maxFailure is the longest error that is read.
const maxFailure = 64 << 10
