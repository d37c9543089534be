package forgetest

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Checked returns a stub whose requests and answers are checked against a forge's description,
// where that is installed. The paths of its API begin with a prefix.
func Checked(t testing.TB, by *Source, prefix string, stub http.Handler) http.Handler {
	d := by.describe(t)
	if d == nil {
		return stub
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		path, below := strings.CutPrefix(r.URL.EscapedPath(), prefix)
		name := d.find(r.Method, path)
		if name == "" || !below {
			t.Errorf("the API has no %s %s", r.Method, r.URL.EscapedPath())
		} else {
			d.request(t, name, r, body)
		}
		answer := httptest.NewRecorder()
		stub.ServeHTTP(answer, r)
		if name != "" && answer.Code/100 == 2 {
			d.answer(t, name, answer.Code, answer.Body.Bytes())
		}
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes()) // a client that is gone reads nothing
	})
}

// find is the operation that a request is for: of those that fit, the one with the most words
// of its own.
func (d *description) find(method, path string) (name string) {
	parts, most := strings.Split(path, "/"), -1
	for template, operations := range d.paths {
		if _, known := operations[strings.ToLower(method)]; !known {
			continue
		}
		if own := fit(strings.Split(template, "/"), parts); own > most {
			name, most = method+" "+template, own
		}
	}
	return name
}

// fit counts the parts of a path that a template names; -1: it is another path.
func fit(template, parts []string) (own int) {
	if len(template) != len(parts) {
		return -1
	}
	for i, part := range template {
		switch {
		case part == parts[i]:
			own++
		case !strings.HasPrefix(part, "{"):
			return -1
		}
	}
	return own
}
