package forgetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// A Source is where a forge's description of its API comes from.
type Source struct {
	require, install string
	load             func() (*description, error) // nil, nil: it is not installed
}

// The sources of the descriptions.
var (
	OfGitHub = &Source{"octokit", "npm install @octokit/openapi, and set NODE_PATH to its node_modules", sync.OnceValues(describeGitHub)}
	OfGitea  = &Source{"gitea", "go mod download " + giteaModule, sync.OnceValues(describeGitea)}
	OfGitLab = &Source{"gitlab", "go mod download " + gitlabModule, sync.OnceValues(describeGitLab)}
)

// Described skips a test, with the reason, where a forge's description is not installed.
// Where PENSTOCK_TEST_REQUIRE names it the test fails instead.
func Described(t testing.TB, by *Source) {
	t.Helper()
	if by.describe(t) != nil {
		return
	}
	why := "no description of the forge: " + by.install
	if slices.Contains(strings.Split(os.Getenv("PENSTOCK_TEST_REQUIRE"), ","), by.require) {
		t.Fatal(why)
	}
	t.Skip(why)
}

func (s *Source) describe(t testing.TB) *description {
	t.Helper()
	d, err := s.load()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A description is what a forge says of its API, in the parts that are asked for. Nil checks
// nothing.
type description struct {
	paths      map[string]map[string]json.RawMessage
	components map[string]map[string]json.RawMessage
	strict     bool // an object has no field beside those that it is described with

	mu      sync.Mutex
	schemas map[string]*jsonschema.Resolved
}

// read makes a description of a file of OpenAPI 3.0.
func read(data []byte, strict bool) (*description, error) {
	var all struct {
		Paths      map[string]map[string]json.RawMessage
		Components map[string]map[string]json.RawMessage
	}
	err := json.Unmarshal(data, &all)
	return &description{paths: all.Paths, components: all.Components, strict: strict, schemas: map[string]*jsonschema.Resolved{}}, err
}

// describeGitHub reads the whole file: 13 MB.
func describeGitHub() (*description, error) {
	for _, dir := range filepath.SplitList(os.Getenv("NODE_PATH")) {
		data, err := os.ReadFile(filepath.Join(dir, "@octokit/openapi/generated/api.github.com.json"))
		if err == nil {
			return read(data, false)
		}
	}
	return nil, nil
}

// An operation is what the description says of one.
type operation struct {
	Parameters []struct {
		Ref  string `json:"$ref"`
		Name string
	}
	RequestBody struct{ Content map[string]media }
	Responses   map[string]response
}

type response struct {
	Ref     string `json:"$ref"`
	Content map[string]media
}

type media struct {
	Schema   json.RawMessage
	Examples map[string]struct {
		Ref string `json:"$ref"`
	}
}

func (d *description) operation(name string) (operation, error) {
	method, path, _ := strings.Cut(name, " ")
	var o operation
	err := json.Unmarshal(d.paths[path][strings.ToLower(method)], &o)
	return o, err
}

// request checks a request that was sent.
func (d *description) request(t testing.TB, name string, r *http.Request, body []byte) {
	if d == nil {
		return
	}
	o, err := d.operation(name)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	known := map[string]bool{}
	for _, p := range o.Parameters {
		known[p.Name] = true
		known[strings.ReplaceAll(p.Ref[strings.LastIndex(p.Ref, "/")+1:], "-", "_")] = true
	}
	for parameter := range r.URL.Query() {
		if !known[parameter] {
			t.Errorf("%s has no parameter %q", name, parameter)
		}
	}
	if len(body) == 0 {
		return
	}
	if name == AddLabels && body[0] == '[' { // of which the description tells in its text only
		body = []byte(`{"labels":` + string(body) + `}`)
	}
	if err := d.valid(name+" request", o.RequestBody.Content["application/json"].Schema, body); err != nil {
		t.Errorf("%s was sent %s: %v", name, body, err)
	}
}

// answer checks an answer of the stub. A broken server says what it likes.
func (d *description) answer(t testing.TB, name string, status int, body []byte) {
	if d == nil || status >= 500 {
		return
	}
	o, err := d.operation(name)
	got, ok := o.Responses[fmt.Sprint(status)]
	if !ok {
		got, ok = o.Responses["default"]
	}
	if err == nil && !ok && status < 400 {
		err = errors.New("the description has no such answer")
	}
	if err == nil && ok && got.Ref != "" {
		err = json.Unmarshal(d.components["responses"][got.Ref[strings.LastIndex(got.Ref, "/")+1:]], &got)
	}
	schema := got.Content["application/json"].Schema
	if err == nil && schema == nil { // it is said for all operations together
		schema = json.RawMessage(`{"$ref":"#/components/schemas/basic-error"}`)
	}
	if err == nil {
		err = d.valid(fmt.Sprint(name, " ", status), schema, body)
	}
	if err != nil {
		t.Errorf("%s answers %d with %d bytes: %v", name, status, len(body), err)
	}
}

// example is GitHub's own for an answer that is an object, or the first of a list.
func (d *description) example(name, status string) map[string]any {
	all := map[string]any{}
	if d == nil {
		return all
	}
	o, err := d.operation(name)
	if err != nil {
		return all
	}
	examples := o.Responses[status].Content["application/json"].Examples
	for _, of := range slices.Sorted(maps.Keys(examples)) {
		e := examples[of]
		var found struct{ Value any }
		if json.Unmarshal(d.components["examples"][e.Ref[strings.LastIndex(e.Ref, "/")+1:]], &found) != nil {
			continue
		}
		if list, ok := found.Value.([]any); ok && len(list) > 0 {
			found.Value = list[0]
		}
		if object, ok := found.Value.(map[string]any); ok {
			return object
		}
	}
	return all
}
