package httpapi_test

import (
	"flag"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/dispatcher/httpapi"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/feed"
	"github.com/penstock-run/penstock/sandbox/goldentest"
)

var update = flag.Bool("update", false, "write docs/reference/http.md")

const referenceHead = `# Routes of HTTP

This page is made from the program: ` + "`make generate`" + ` writes it. [HTTP](../how-to/http.md) says how to begin, and has examples.
` + "`GET /v1/openapi.json`" + ` has the same with the types of all requests and answers, and [operations](operations.md) says what each
operation takes: of a route with ` + "`GET`" + ` or ` + "`DELETE`" + ` its fields are parameters of the query, of the others a JSON object in
the body, and those in the path stand there only. An answer with ` + "`next`" + ` is a page of a list: the next page is the same
request with that as ` + "`after`" + `.

| route | roles | what it does | operation | parameters beside those |
|---|---|---|---|---|
`

// TestReference holds docs/reference/http.md against the tables.
func TestReference(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(referenceHead)
	for _, route := range httpapi.Routes() {
		var roles, params []string
		for _, role := range route.Roles() {
			roles = append(roles, string(role))
		}
		for _, p := range slices.Concat(route.Query, route.Header) {
			params = append(params, fmt.Sprintf("`%s`: %s", p.Name, p.What))
		}
		operation := ""
		if !route.Own && route.Row.Name != "" {
			operation = "`" + route.Row.Name + "`"
		}
		fmt.Fprintf(&b, "| `%s %s` | %s | %s | %s | %s |\n", route.Method, route.Path, strings.Join(roles, ", "), route.Sentence(), operation, strings.Join(params, "<br>"))
	}
	b.WriteString("\n## Changes\n\n" +
		"The events of `GET /v1/stream`. `data` is a JSON object with the fields that are named, as far as the thing has them.\n\n" +
		"| event | what it tells |\n|---|---|\n")
	for _, row := range feed.Kinds {
		fmt.Fprintf(&b, "| `%s` | %s |\n", row.Kind, row.Meaning)
	}
	b.WriteString("\n## Problems\n\n" +
		"A request that is not fulfilled is answered with `application/problem+json`, as RFC 9457 has it. `code` is for programs,\n" +
		"`detail` for people; `fields` names the fields, parameters and headers that are wrong; `hint` says what to do. The log of\n" +
		"the server has more about 5xx, under `request_id`.\n\n" +
		"| code | status | meaning | hint |\n|---|---|---|---|\n")
	for _, p := range httpapi.Problems() {
		fmt.Fprintf(&b, "| <a id=\"%s\"></a>`%s` | %d %s | %s | %s |\n", p.Code, p.Code, p.Status, http.StatusText(p.Status), p.Title, p.Hint)
	}
	path := filepath.Join("..", "..", "docs", "reference", "http.md")
	goldentest.Compare(t, path, b.String(), *update)
	for _, p := range httpapi.Problems() {
		if p.Code == jobs.CodeInvalid && !strings.HasSuffix(p.Type, "#invalid") {
			t.Errorf("the documentation of %s is at %s", p.Code, p.Type)
		}
	}
}
