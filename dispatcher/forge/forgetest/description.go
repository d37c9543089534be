package forgetest

import (
	"encoding/json"
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

// Described skips a test, with the reason, where GitHub's description is not installed. Where
// PENSTOCK_TEST_REQUIRE names octokit the test fails instead.
func Described(t testing.TB) {
	t.Helper()
	if describe(t) != nil {
		return
	}
	const why = "no description of GitHub: npm install @octokit/openapi, and set NODE_PATH to its node_modules"
	if slices.Contains(strings.Split(os.Getenv("PENSTOCK_TEST_REQUIRE"), ","), "octokit") {
		t.Fatal(why)
	}
	t.Skip(why)
}

// A description is what GitHub says of its API, in the parts that are asked for. Nil checks
// nothing.
type description struct {
	paths      map[string]map[string]json.RawMessage
	components map[string]map[string]json.RawMessage

	mu      sync.Mutex
	schemas map[string]*jsonschema.Resolved
}

// described is the whole file, read once: 13 MB.
var described = sync.OnceValues(func() (*description, error) {
	for _, dir := range filepath.SplitList(os.Getenv("NODE_PATH")) {
		data, err := os.ReadFile(filepath.Join(dir, "@octokit/openapi/generated/api.github.com.json"))
		if err != nil {
			continue
		}
		var all struct {
			Paths      map[string]map[string]json.RawMessage
			Components map[string]map[string]json.RawMessage
		}
		err = json.Unmarshal(data, &all)
		return &description{paths: all.Paths, components: all.Components, schemas: map[string]*jsonschema.Resolved{}}, err
	}
	return nil, nil
})

func describe(t testing.TB) *description {
	t.Helper()
	d, err := described()
	if err != nil {
		t.Fatal(err)
	}
	return d
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

func (d *description) valid(name string, schema json.RawMessage, body []byte) error {
	by, err := d.schema(name, schema)
	if err != nil {
		return err
	}
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		return err
	}
	return by.Validate(value)
}

// schema makes a JSON Schema of one of OpenAPI 3.0, with all that it refers to.
func (d *description) schema(name string, of json.RawMessage) (*jsonschema.Resolved, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.schemas[name]; s != nil {
		return s, nil
	}
	var root any
	if err := json.Unmarshal(of, &root); err != nil {
		return nil, err
	}
	defs := map[string]any{}
	root = d.convert(root, defs)
	whole, ok := root.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("schema of %s is no object", name)
	}
	whole["$defs"] = defs
	data, err := json.Marshal(whole)
	if err != nil {
		return nil, err
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, err
	}
	resolved, err := s.Resolve(nil)
	if err == nil {
		d.schemas[name] = resolved
	}
	return resolved, err
}

// convert turns a value of OpenAPI 3.0 into one of JSON Schema, and puts what it refers to
// into defs.
func (d *description) convert(value any, defs map[string]any) any {
	switch v := value.(type) {
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = d.convert(v[i], defs)
		}
		return list
	case map[string]any:
		return d.convertObject(v, defs)
	}
	return value
}

func (d *description) convertObject(v map[string]any, defs map[string]any) any {
	if ref, ok := v["$ref"].(string); ok {
		name := ref[strings.LastIndex(ref, "/")+1:]
		if _, known := defs[name]; !known {
			defs[name] = true // a schema may refer to itself
			var found any
			if json.Unmarshal(d.components["schemas"][name], &found) == nil {
				defs[name] = d.convert(found, defs)
			}
		}
		return map[string]any{"$ref": "#/$defs/" + name}
	}
	all := map[string]any{}
	for key, inner := range v {
		switch key {
		case "example", "examples", "default", "description", "format", "pattern", "externalDocs", "discriminator", "deprecated", "readOnly", "xml", "title":
			if _, named := inner.(map[string]any); !named || key == "externalDocs" || key == "example" || key == "examples" {
				continue // and not a property of this name
			}
		case "nullable":
			continue
		}
		all[key] = d.convert(inner, defs)
	}
	if v["nullable"] == true {
		return map[string]any{"anyOf": []any{map[string]any{"type": "null"}, maps.Clone(all)}}
	}
	return all
}
