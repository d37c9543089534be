package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/penstock-run/penstock/dispatcher/httpapi"
	"github.com/penstock-run/penstock/jobs"
)

// object is a part of the document of OpenAPI. Its keys are sorted when it is written.
type object map[string]any

// OpenAPI returns the HTTP interface as a document of OpenAPI 3.1: the routes of its
// table, with the schemas that the operations have everywhere.
func OpenAPI() ([]byte, error) {
	d, err := newDefinitions()
	if err != nil {
		return nil, err
	}
	problem, err := d.shape(reflect.TypeFor[httpapi.Problem](), false)
	if err != nil {
		return nil, err
	}
	for _, known := range httpapi.Problems() {
		problem.Properties["code"].Enum = append(problem.Properties["code"].Enum, known.Code)
	}
	paths := map[string]object{}
	for _, route := range httpapi.Routes() {
		if route.Status == http.StatusSwitchingProtocols {
			continue // OpenAPI has no words for a WebSocket
		}
		described, err := d.route(route)
		if err != nil {
			return nil, fmt.Errorf("describe %s %s: %w", route.Method, route.Path, err)
		}
		path := strings.ReplaceAll(route.Path, "...}", "}")
		if paths[path] == nil {
			paths[path] = object{}
		}
		paths[path][strings.ToLower(route.Method)] = described
	}
	schemas := object{"problem": problem}
	for name, part := range d.parts {
		schemas[name] = part
	}
	delete(schemas, "refusal") // which is a problem here
	document, err := json.MarshalIndent(object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Penstock", "version": "1", "license": object{"name": "Apache 2.0", "identifier": "Apache-2.0"},
			"description": "A worker pool for coding agents. Lists come in pages: an answer with next is followed by the request that has it as after. Fields and parameters that a route does not have are refused by name. A job's id may be abbreviated to what only it begins or ends with.",
		},
		"servers":  []object{{"url": "/"}},
		"security": []object{{"token": []string{}}},
		"paths":    paths,
		"components": object{
			"schemas":         schemas,
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer", "description": "The file http-token in the data directory of penstock serve has one, of role operator."}},
			"responses":       problems(),
		},
	}, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(bytes.ReplaceAll(document, []byte(`"#/$defs/`), []byte(`"#/components/schemas/`)), '\n'), nil
}

// problems are the answers to requests that were not fulfilled, by their statuses.
func problems() object {
	codes := map[int][]string{}
	for _, known := range httpapi.Problems() {
		codes[known.Status] = append(codes[known.Status], string(known.Code))
	}
	delete(codes, http.StatusMethodNotAllowed) // of what stands in no path
	all := object{}
	for status, list := range codes {
		all[strconv.Itoa(status)] = object{
			"description": http.StatusText(status) + ", with code " + strings.Join(list, ", ") + ".",
			"content":     object{"application/problem+json": object{"schema": object{"$ref": "#/$defs/problem"}}},
		}
	}
	return all
}

// route describes one route.
func (d *definitions) route(route httpapi.Route) (object, error) {
	request, err := d.fieldsOf(route)
	if err != nil {
		return nil, err
	}
	var roles []string
	for _, role := range route.Roles() {
		roles = append(roles, string(role))
	}
	described := object{
		"operationId": camel(route.Name()), "tags": []string{strings.Split(route.Path, "/")[2]}, "summary": strings.TrimSuffix(route.Sentence(), "."),
		"description": route.Sentence() + " For " + strings.Join(roles, ", ") + ".",
	}
	if parameters := d.parameters(route, request); len(parameters) > 0 {
		described["parameters"] = parameters
	}
	if route.TakesBody() {
		described["requestBody"] = d.body(route, request)
	}
	described["responses"], err = d.answers(route)
	return described, err
}

// fieldsOf returns the schema of a route's request, whose properties are its fields.
func (d *definitions) fieldsOf(route httpapi.Route) (*jsonschema.Schema, error) {
	of := route.Body
	if of == nil && route.Own {
		return &jsonschema.Schema{Type: "object"}, nil
	}
	if of == nil {
		of = route.Row.Request
	}
	shape, err := d.shape(of, true)
	if err != nil {
		return nil, err
	}
	if name, ok := strings.CutPrefix(shape.Ref, "#/$defs/"); ok {
		shape = d.parts[name]
	}
	return shape, nil
}

// parameters describes those of the path, of the query and of the header.
func (d *definitions) parameters(route httpapi.Route, request *jsonschema.Schema) []object {
	var all []object
	inPath := route.Wildcards()
	for _, name := range inPath {
		property := request.Properties[name]
		if property == nil {
			property = &jsonschema.Schema{Type: "string", Description: "What the path names."}
			if name == "id" {
				property.Description = "The job's id, or what only it begins or ends with."
			}
		}
		all = append(all, parameter("path", name, property, true))
	}
	if !route.TakesBody() {
		for _, name := range slices.Sorted(maps.Keys(request.Properties)) {
			if !slices.Contains(inPath, name) {
				all = append(all, parameter("query", name, request.Properties[name], slices.Contains(request.Required, name)))
			}
		}
	}
	for where, params := range map[string][]httpapi.Param{"query": route.Query, "header": route.Header} {
		for _, p := range params {
			if p.Name != "Accept" { // which the types of the answer say
				all = append(all, parameter(where, p.Name, d.kind(p), false))
			}
		}
	}
	slices.SortStableFunc(all, func(a, b object) int { return strings.Compare(b["in"].(string), a["in"].(string)) })
	return all
}

func parameter(where, name string, property *jsonschema.Schema, required bool) object {
	bare := *property
	bare.Description = ""
	p := object{"in": where, "name": name, "schema": &bare, "description": property.Description}
	if required {
		p["required"] = true
	}
	return p
}

// kind is the schema of a parameter that is not a field.
func (d *definitions) kind(p httpapi.Param) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: p.Kind}
	if p.Kind == "duration" {
		duration := *d.types[reflect.TypeFor[jobs.Duration]()]
		s = &duration
	}
	s.Description = p.What
	return s
}

// body describes what is sent: the fields that are not in the path.
func (d *definitions) body(route httpapi.Route, request *jsonschema.Schema) object {
	inPath := func(name string) bool { return slices.Contains(route.Wildcards(), name) }
	fields := *request
	fields.Schema, fields.ID, fields.Title = "", "", ""
	fields.Properties = maps.Clone(request.Properties)
	maps.DeleteFunc(fields.Properties, func(name string, _ *jsonschema.Schema) bool { return inPath(name) })
	fields.PropertyOrder = slices.DeleteFunc(slices.Clone(request.PropertyOrder), inPath)
	fields.Required = slices.DeleteFunc(slices.Clone(request.Required), inPath)
	content := object{"schema": &fields}
	if len(route.Wildcards()) == 0 {
		for name, of := range parts {
			if of == route.Row.Request {
				content["schema"] = object{"$ref": "#/$defs/" + name}
			}
		}
	}
	if route.Example != "" {
		content["example"] = json.RawMessage(route.Example)
	}
	if route.Lines {
		return object{"required": true, "content": object{
			"application/jsonl": object{"schema": object{"type": "string", "description": "A job in each line, as the schema job has it."}},
		}}
	}
	kinds := object{"application/json": content}
	for _, kind := range route.Envelopes {
		kinds[kind] = object{"schema": object{}} // the specification of the envelope has it
	}
	return object{"required": len(fields.Required) > 0 || len(route.Wildcards()) == 0, "content": kinds}
}

// answers describes what may come back.
func (d *definitions) answers(route httpapi.Route) (object, error) {
	content := object{}
	switch answer := route.AnswerType(); {
	case answer != nil:
		shape, err := d.shape(answer, false)
		if err != nil {
			return nil, err
		}
		content["application/json"] = object{"schema": shape}
	case route.Media == "application/json":
		content[route.Media] = object{"schema": object{"type": "object"}}
	default:
		content[route.Media] = object{"schema": object{"type": "string"}}
	}
	for _, p := range route.Header {
		if p.Name == "Accept" {
			content["text/event-stream"] = object{"schema": object{"type": "string", "description": p.What}}
		}
	}
	all := object{}
	for status, what := range route.Statuses() {
		all[strconv.Itoa(status)] = object{"description": what, "content": content}
	}
	for _, status := range []int{400, 401, 403, 421, 429, 500, 503} {
		all[strconv.Itoa(status)] = object{"$ref": "#/components/responses/" + strconv.Itoa(status)}
	}
	if len(route.Wildcards()) > 0 {
		all["404"] = object{"$ref": "#/components/responses/404"}
		all["409"] = object{"$ref": "#/components/responses/409"}
	}
	if route.TakesBody() {
		for _, status := range []int{413, 415, 422, 507} {
			all[strconv.Itoa(status)] = object{"$ref": "#/components/responses/" + strconv.Itoa(status)}
		}
	}
	return all, nil
}

// camel writes a name as most languages have those of functions.
func camel(name string) string {
	words := strings.Split(name, "-")
	for i, word := range words[1:] {
		words[i+1] = strings.ToUpper(word[:1]) + word[1:]
	}
	return strings.Join(words, "")
}
