package inside

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// body reads a short body. The answer may take as long as it needs: a deadline that
// remained would end the request.
func body(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	if err == nil && !utf8.Valid(data) {
		err = Refuse("invalid", "it is not UTF-8")
	}
	return data, err
}

// read decodes a body that is one JSON object.
func read(w http.ResponseWriter, r *http.Request, limit int64, into any) error {
	data, err := body(w, r, limit)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return Refuse("invalid", "%v", err)
	}
	if decoder.More() {
		return Refuse("invalid", "there is more than one JSON object")
	}
	return nil
}

// checkText accepts text that may be shown to people.
func checkText(what, s string) error {
	switch {
	case strings.TrimSpace(s) == "":
		return Refuse("invalid", "%s is empty", what)
	case len(s) > MaxText:
		return Refuse("too_large", "%s has %d bytes, at most %d are allowed", what, len(s), MaxText)
	case strings.ContainsRune(s, 0):
		return Refuse("invalid", "%s has a NUL in it", what)
	}
	return nil
}

func checkAsk(a Ask) error {
	if err := checkText("the question", a.Question.Question); err != nil {
		return err
	}
	if len(a.Options) > 16 || len(a.Header) > 64 {
		return Refuse("invalid", "a question has at most 16 options and a header of at most 64 bytes")
	}
	seen := map[string]bool{}
	for _, o := range a.Options {
		if err := checkText("an option", o.Label+o.Description); err != nil {
			return err
		}
		if label := strings.ToLower(strings.TrimSpace(o.Label)); label == "" || len(o.Label) > 256 || seen[label] {
			return Refuse("invalid", "option %q is empty, longer than 256 bytes, or there twice", o.Label)
		}
		seen[strings.ToLower(strings.TrimSpace(o.Label))] = true
	}
	if a.Timeout < 0 {
		return Refuse("invalid", "the timeout is negative")
	}
	return nil
}

var artifactName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`) })

// checkName accepts any plain name: the names of agents' artifacts have their own
// prefix.
func checkName(name string) error {
	if !artifactName().MatchString(name) {
		return Refuse("invalid", "%q is no artifact's name: use up to 100 of A-Z, a-z, 0-9, '.', '_' and '-'", name)
	}
	return nil
}
