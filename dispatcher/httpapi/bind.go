package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
)

// pass asks for the operation of a route, and answers with what the dispatcher answers.
func (s *Server) pass(c *call, route Route) error {
	request, err := bind(c, route)
	if err != nil {
		return err
	}
	answer, err := client.Call(c.r.Context(), s.asking(c), route.Row, request)
	if err != nil {
		return err
	}
	return c.json(route.Status, answer)
}

// asking is the client of a request, which says who asks.
func (s *Server) asking(c *call) *client.Client { return s.askingAs(c, c.who.Name) }

// askingAs is asking for a request that is kept under another word for its sender.
func (s *Server) askingAs(c *call, by string) *client.Client {
	return s.cfg.Client.As(by).OnBehalf(c.who.Name, c.who.Role, "http").WithTrace(jobs.TraceOf(c.r.Header))
}

// json answers with a value.
func (c *call) json(status int, answer any) error {
	body, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	c.Header().Set("Content-Type", "application/json")
	if status != 0 {
		c.WriteHeader(status)
	}
	_, err = c.Write(append(body, '\n'))
	return err
}

// bind makes the request of an operation from path, query and body. Its fields stand in
// one of them each; a dispatcher checks their values.
func bind(c *call, route Route) (json.RawMessage, error) {
	inPath := route.Wildcards()
	fromQuery := route.Method == http.MethodGet || route.Method == http.MethodDelete
	query, err := c.query()
	if err != nil {
		return nil, err
	}
	known := paramsOf(route.Row.Request, inPath)
	if !fromQuery {
		known = nil
		if len(inPath) == 0 && len(query) == 0 {
			return c.body, nil // just as it was sent
		}
	}
	fields := map[string]json.RawMessage{}
	if len(c.body) > 0 && json.Unmarshal(c.body, &fields) != nil {
		if !json.Valid(c.body) {
			return c.body, nil // the dispatcher says where
		}
		return nil, invalid("(body)", "wants an object")
	}
	if err := bindQuery(fields, query, known); err != nil {
		return nil, err
	}
	for _, name := range inPath {
		value, err := json.Marshal(c.r.PathValue(name))
		if err != nil {
			return nil, err
		}
		if twice, ok := fields[name]; ok && !bytes.Equal(twice, value) {
			return nil, invalid(name, "is not what the path says: leave it out of the body")
		}
		fields[name] = value
	}
	return json.Marshal(fields)
}

// query reads the query, and refuses one that is not well-formed.
func (c *call) query() (url.Values, error) {
	values, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return nil, invalid("(query)", "is not well-formed: "+err.Error())
	}
	return values, nil
}

// params reads parameters that are no fields of an operation's request into variables.
// It refuses all others.
func (c *call) params(into map[string]any) error {
	query, err := c.query()
	if err != nil {
		return err
	}
	known := map[string]reflect.Type{}
	for name, v := range into {
		known[name] = reflect.TypeOf(v).Elem()
	}
	fields := map[string]json.RawMessage{}
	if err := bindQuery(fields, query, known); err != nil {
		return err
	}
	for name, raw := range fields {
		if json.Unmarshal(raw, into[name]) != nil {
			return invalid(name, fmt.Sprintf("is %s, and is to be %s", raw, wanted[known[name]]))
		}
	}
	return nil
}

// wanted are the kinds of parameters, for people.
var wanted = map[reflect.Type]string{
	reflect.TypeFor[bool](): "true or false", reflect.TypeFor[jobs.Duration](): "a duration such as 30s",
	reflect.TypeFor[string](): "text", reflect.TypeFor[uint64](): "a whole number",
}

// paramsOf are the fields of a request that a query may have, by name.
func paramsOf(request reflect.Type, inPath []string) map[string]reflect.Type {
	params := map[string]reflect.Type{}
	for field := range request.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if !slices.Contains(inPath, name) {
			params[name] = field.Type
		}
	}
	return params
}

// bindQuery puts the parameters of a query among the fields.
func bindQuery(fields map[string]json.RawMessage, query url.Values, known map[string]reflect.Type) error {
	for _, name := range slices.Sorted(maps.Keys(query)) {
		values := query[name]
		of, ok := known[name]
		if !ok {
			return unknownParam(name, slices.Sorted(maps.Keys(known)))
		}
		list := of.Kind() == reflect.Slice
		if len(values) > 1 && !list {
			return invalid(name, "stands more than once in the query")
		}
		if list {
			of = of.Elem()
		}
		var parts []string
		for _, value := range values {
			raw, err := literal(value, of)
			if err != nil {
				return err
			}
			parts = append(parts, string(raw))
		}
		fields[name] = json.RawMessage(parts[0])
		if list {
			fields[name] = json.RawMessage("[" + strings.Join(parts, ",") + "]")
		}
	}
	return nil
}

func unknownParam(name string, known []string) error {
	if len(known) == 0 {
		return invalid(name, "is not a parameter: this route has none in its query")
	}
	return invalid(name, "is not a parameter; known are "+strings.Join(known, ", "))
}

// literal writes a parameter as JSON. One that does not fit its type becomes a string,
// which the dispatcher refuses, with what it wants.
func literal(value string, of reflect.Type) (json.RawMessage, error) {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	plain := of == reflect.TypeFor[jobs.Duration]() // a number, which reads itself from a string
	switch of.Kind() {
	case reflect.Bool:
		plain = value != "true" && value != "false"
	case reflect.Int, reflect.Int64, reflect.Uint64, reflect.Float64:
		var number json.Number
		plain = plain || json.Unmarshal([]byte(value), &number) != nil || strings.HasPrefix(value, `"`)
	default:
		plain = true
	}
	if plain {
		return json.Marshal(value)
	}
	return json.RawMessage(value), nil
}
